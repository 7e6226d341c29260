"""KV events as traffic: each longest prefix that an engine stored stands for one prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from labengine.config import ConfigError
from labengine.core.request import ExtraKeys
from labengine.prefix_doctor.traffic.prompt import Prompt, TokenText, Traffic
from labengine.record.files.file_access import Limits
from labengine.record.wording import counted
from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.contents import Content, hash_text
from labengine.vllm.cache_events.holdings import is_device
from labengine.vllm.cache_events.kv_files import RecordedEvents
from labengine.vllm.cache_events.stream import MAX_BLOCKS, EventStream

NOTE = (
    "KV events tell of stored blocks, not of requests: each longest stored prefix stands for one prompt, which arrives "
    "when its last block was first stored. Prompts that found all their blocks, incomplete last blocks and the lengths "
    "of answers are not in them."
)

Engine = tuple[int, int | None]
"""A publisher and a data-parallel rank."""


class _Stored(NamedTuple):
    at: float
    engine: Engine
    last: Content


def traffic_of_kv_events(path: Path, limits: Limits, token_text: TokenText | None) -> Traffic:
    """Return the prefixes in a file of KV events. Raises ConfigError, or TraceError for a damaged file."""
    recorded = RecordedEvents(path, limits)
    stream = EventStream(recorded.sources, max_blocks=MAX_BLOCKS)
    for message in recorded.messages():
        stream.take(message)
    prompts, num_unknown = _prompts(stream.cache)
    if not prompts:
        raise ConfigError(f"{path} has no stored prefix whose tokens are known from its beginning on")
    notes = [NOTE]
    if num_unknown:
        notes.append(f"{counted(num_unknown, 'prefix')} left out, whose tokens are not all known.")
    if stream.cache.num_forgotten:
        notes.append(f"Of more than {MAX_BLOCKS:,} blocks the oldest {stream.cache.num_forgotten:,} are left out.")
    return Traffic(path.name, lambda: map(replace, prompts), token_text, notes)


def _prompts(cache: EventCache) -> tuple[list[Prompt], int]:
    """Return a prompt per longest prefix and engine, in the order of storing, and the number of unknown ones."""
    found = sorted(_stored(cache), key=lambda one: one.at)
    engines = {engine: number for number, engine in enumerate(sorted({one.engine for one in found}, key=repr))}
    prompts, num_unknown = list[Prompt](), 0
    for one in found:
        tokens = _tokens(cache, one.last)
        if tokens is None:
            num_unknown += 1
            continue
        replica = engines[one.engine] if len(engines) > 1 else None
        name, arrival = hash_text(one.last.hash), one.at - found[0].at
        prompts.append(Prompt(name, tokens, arrival, extra_keys=_keys(one.last), replica=replica))
    return prompts, num_unknown


def _stored(cache: EventCache) -> Iterator[_Stored]:
    """Yield each content that an engine's memory had without any that follows it there.

    Of groups with different block sizes only the commonest size counts: the others have the same tokens.
    """
    sizes = Counter(content.size for content in cache.contents)
    contents = [content for content in cache.contents if content.size == sizes.most_common(1)[0][0]]
    held = {content: _engines(cache, content) for content in contents}
    continued = {
        (parent, engine)
        for content, engines in held.items()
        if (parent := cache.contents.parent_of(content)) is not None
        for engine in engines
    }
    for content, engines in held.items():
        for engine, at in engines.items():
            if (content, engine) not in continued:
                yield _Stored(at, engine, content)


def _engines(cache: EventCache, content: Content) -> dict[Engine, float]:
    """Return the engines that stored a content in their memory, with the first time."""
    found = dict[Engine, float]()
    for place, holding in cache.held(content).items():
        if is_device(place) and holding.first_stored is not None:
            at = found.get((place.source, place.rank), holding.first_stored)
            found[place.source, place.rank] = min(at, holding.first_stored)
    return found


def _tokens(cache: EventCache, last: Content) -> list[int] | None:
    """Return all tokens up to a content's end; None if some are unknown, or a loop leads nowhere."""
    blocks, one, passed = list[tuple[int, ...]](), last, set[Content]()
    while True:
        if one.token_ids is None or not one.is_placed or one in passed:
            return None
        passed.add(one)
        blocks.append(one.token_ids)
        if one.parent is None:
            return [token for block in reversed(blocks) for token in block]
        before = cache.contents.parent_of(one)
        if before is None:
            return None
        one = before


def _keys(content: Content) -> ExtraKeys:
    adapter = (("lora", content.adapter),) if content.adapter else ()
    return (*adapter, ("cache_salt", content.extra)) if content.extra else adapter
