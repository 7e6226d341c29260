"""A prefix cache as known from a stream of KV events: for a notebook, a terminal, a page or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from threading import RLock
from typing import Any

from labengine.config import checked_int
from labengine.record.wording import readable
from labengine.system.atomic_write import only_for_the_user
from labengine.system.closing import Closing
from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.chains import Chain, Chains
from labengine.vllm.cache_events.document import TokensText, document_of
from labengine.vllm.cache_events.markup import markup, page
from labengine.vllm.cache_events.stream import EventStream

MAX_CHAINS = 200
"""Rows shown by default."""


class CachedPrefixes(Closing):
    """The prefix caches of one or several engines, as known from their KV events. Displays itself in a notebook."""

    def __init__(self, stream: EventStream, text_of: TokensText, note: str = "") -> None:
        self.stream = stream
        self._text_of = text_of
        self._note = note
        self._guard = RLock()

    @property
    def cache(self) -> EventCache:
        """The fold of the events."""
        return self.stream.cache

    @property
    def title(self) -> str:
        """One line: the source of the events."""
        return readable(f"Prefix cache · KV events of {', '.join(self.stream.sources)}", 400)

    @property
    def notes(self) -> list[str]:
        """Sentences on gaps and contradictions in the stream."""
        with self._held_still():
            return [*self._about_end(), *_about_stream(self.stream), *_about_cache(self.cache)]

    def chains(self, limit: int | None = None) -> list[Chain]:
        """Return the prefixes, those with the most cached blocks first, each after the one that it continues."""
        with self._held_still():
            return Chains(self.cache).rows(limit)

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        """Return everything in JSON types; None for unknown values."""
        with self._held_still():
            return document_of(self.title, self.notes, self.stream, Chains(self.cache), self._text_of, limit)

    def html(self, max_chains: int = MAX_CHAINS) -> str:
        """Return the view as markup, with all text escaped."""
        with self._held_still():
            return markup(self.to_dict(checked_int("max_chains", max_chains, 1)))

    def export_html(self, path: str | PathLike[str], *, max_chains: int = MAX_CHAINS) -> None:
        """Write the view as one page without scripts, light or dark, readable only by the user."""
        from labengine_widgets.pages.html_page import write_page

        with self._held_still(), only_for_the_user():
            write_page(path, page(self.to_dict(checked_int("max_chains", max_chains, 1))))

    def close(self) -> None:
        """Do nothing; a live one disconnects from its publishers."""

    def __str__(self) -> str:
        return "\n".join(lines_of(self.to_dict(MAX_CHAINS)))

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        sources = readable(", ".join(self.stream.sources), 400)
        return f"<{type(self).__name__} {sources}, {self.stream.num_batches:,} batches>"

    def _about_end(self) -> list[str]:
        return [self._note] if self._note else []

    @contextmanager
    def _held_still(self) -> Iterator[None]:
        with self._guard:
            yield


def _about_stream(stream: EventStream) -> Iterator[str]:
    for (source, rank), first in stream.late.items():
        name = readable(stream.sources[source], 400)
        whose = name if rank is None else f"{name}, rank {rank}"
        yield f"{whose} starts with batch {first}: blocks cached earlier are unknown until they are stored again"
    if stream.num_missing:
        yield f"{stream.num_missing:,} batches are missing, so their changes are unknown"
    yield from stream.notes


def _about_cache(cache: EventCache) -> Iterator[str]:
    if cache.num_early_removals:
        yield f"{cache.num_early_removals:,} removals were of blocks stored before the stream or during a gap"
    if cache.num_forgotten:
        yield f"{cache.num_forgotten:,} gone blocks were forgotten"
    for kind, number in cache.unknown_kinds.most_common(5):
        yield f"{number:,} events of the unknown kind {kind} were ignored"
    if cache.num_contradictions:
        yield f"{cache.num_contradictions:,} contradictions, the first: {cache.contradictions[0]}"


MAX_TEXT = 60


def lines_of(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines."""
    yield document["title"]
    yield f"{document['num_batches']:,} batches, the newest of {document['newest']}"
    yield from (f"note: {note}" for note in document["notes"])
    for place in document["places"]:
        tokens = "tokens unknown" if place["tokens"] is None else f"{place['tokens']:,} tokens"
        name = " · ".join(part for part in (place["rank"], place["tier"], place["group"]) if part)
        cached = f"{place['cached']:,} block{'s' * (place['cached'] != 1)} cached ({tokens})"
        yield f"{name}: {cached}, {place['unknown']:,} unknown, {place['gone']:,} gone"
    yield ""
    for chain in document["chains"]:
        yield _line(chain)
    left = document["num_chains"] - len(document["chains"])
    if left:
        yield f"... and {left:,} more"
    yield ""
    yield from (f"unknown: {subject}: {what}" for subject, what in document["unknown"].items())


def _line(chain: Mapping[str, Any]) -> str:
    sign = {"cached": "+", "unknown": "?", "gone": "-"}[chain["presence"]]
    before = f"{chain['before']} " if chain["before"] else ""
    text = chain["text"] if len(chain["text"]) <= MAX_TEXT else chain["text"][: MAX_TEXT - 1] + "…"
    facts = [chain["length"], ", ".join(map(_where, chain["where"])), f"stored {chain['stored']}"]
    facts += [f"removed {chain['removed']}"] * bool(chain["removed"]) + [f"hits {chain['hits']}"]
    facts += [chain["variant"]] * bool(chain["variant"])
    return f"{'  ' * chain['depth']}{sign} {before}{text}  ({'; '.join(facts)})"


def _where(place: Mapping[str, Any]) -> str:
    parts = (place["rank"], place["tier"], place["group"])
    said = "" if place["presence"] == "cached" else f" {place['presence']}"
    return " ".join(part for part in parts if part) + said
