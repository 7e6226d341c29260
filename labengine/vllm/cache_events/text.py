"""The cache-only view as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
