"""Contradictions between a keyframe of the engine and the events before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED, RequestFold
from labengine.record.snapshot import map_key
from labengine.record.wording import block_name, request_name

MAX_TEXT = 120

FIELDS = ("status", "num_prompt_tokens", "num_computed_tokens", "token_ids", "block_tables", "priority", "drafts")
"""What an engine's keyframe has of a request."""


def contradictions(fold: Fold, engine: Fold) -> list[str]:
    """Return one sentence for each kind of difference, about the first one.

    fold: the state by the events; engine: the state by a keyframe.
    """
    return [text for text in map(_first, _differences(fold, engine)) if text]


def _differences(fold: Fold, engine: Fold) -> Iterator[Iterator[str]]:
    yield _queues(fold, engine)
    yield _blocks("ref_count", fold.ref_counts, engine.ref_counts)
    yield _pins(fold, engine)
    yield _blocks("hashes", [_hex(keys) for keys in fold.block_keys], [_hex(keys) for keys in engine.block_keys])
    yield _blocks("content", *_known(fold, engine))
    yield _map(fold, engine)
    yield _requests(fold, engine)


def _first(found: Iterator[str]) -> str | None:
    return next(found, None)


def _queues(fold: Fold, engine: Fold) -> Iterator[str]:
    ours, real = list(fold.free_queue), list(engine.free_queue)
    if len(ours) != len(real):
        yield f"the free queue has {len(ours)} blocks according to the events, but {len(real)} in the engine"
    for place, (one, other) in enumerate(zip(ours, real, strict=False)):
        if one != other:
            names = f"{block_name(one)} according to the events, but {block_name(other)} in the engine"
            yield f"place {place} of the free queue has {names}"


def _blocks(what: str, ours: Sequence[object], real: Sequence[object]) -> Iterator[str]:
    for block_id, (one, other) in enumerate(zip(ours, real, strict=False)):
        if one != other:
            text = f"{_short(one)} according to the events, but {_short(other)} in the engine"
            yield f"the {what} of {block_name(block_id)} is {text}"


def _pins(fold: Fold, engine: Fold) -> Iterator[str]:
    for block_id in dict.fromkeys((*fold.pins, *engine.pins)):
        ours, real = fold.pins.get(block_id, 0), engine.pins.get(block_id, 0)
        if ours != real:
            text = f"{ours} references outside tables according to the events, but {real} in the engine"
            yield f"{block_name(block_id)} has {text}"


def _known(fold: Fold, engine: Fold) -> tuple[list[object], list[object]]:
    """Return the contents by the events and in the engine, empty if either does not know the block's tokens.

    The engine keeps only the tokens of blocks in tables. A recording that begins late never learns those of the other
    cached blocks, not even when a request hits them later.
    """
    pairs = list(zip(fold.block_tokens, engine.block_tokens, strict=False))
    return [ours if real else () for ours, real in pairs], [real if ours else () for ours, real in pairs]


def _map(fold: Fold, engine: Fold) -> Iterator[str]:
    for key in dict.fromkeys((*fold.prefix_map, *engine.prefix_map)):
        ours, real = fold.prefix_map.get(key, ()), engine.prefix_map.get(key, ())
        if ours != real:
            text = f"{_short(ours)} according to the events, but to {_short(real)} in the engine"
            yield f"the map leads from {map_key(*key)[:12]} to {text}"


def _requests(fold: Fold, engine: Fold) -> Iterator[str]:
    ours = {i: r for i, r in fold.requests.items() if r.status != FINISHED or i in fold.holding}
    for i in dict.fromkeys((*ours, *engine.requests)):
        one, other = ours.get(i), engine.requests.get(i)
        if one is None or other is None:
            where = "in the engine, but not in the events" if one is None else "in the events, but not in the engine"
            yield f"request {request_name(i)} is {where}"
        else:
            yield from _request(i, one, other)


def _request(i: int, one: RequestFold, other: RequestFold) -> Iterator[str]:
    """Yield a sentence for each difference. The place of rejected drafts and the images are in no keyframe."""
    for name in FIELDS:
        ours, real = getattr(one, name), getattr(other, name)
        if ours != real:
            what = f"{name} of request {request_name(i)}"
            yield f"{what} is {_short(ours)} according to the events, but {_short(real)} in the engine"


def _hex(keys: tuple[tuple[int, bytes], ...]) -> object:
    """Return keys to compare and to show, sorted because a block's further keys have no order in vLLM."""
    return sorted(map_key(*key)[:12] for key in keys)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
