"""Events and states as JSON rows: [index of the kind, *fields in the order of the dataclass]; bytes as hex.

    BlockFreed(3, 0, 0, 1, 0, "tail", "finished")  ->  [20, 3, 0, 0, 1, 0, "tail", "finished"]

A row's values go straight to `dumps`: tuples become lists, bytes become hex.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import chain, product
from typing import Any

from labengine.events import EVENT_KINDS, Event
from labengine.record.files.parsing import (
    HASH,
    IDS,
    INT,
    TABLES,
    TEXT,
    Shape,
    TraceError,
    array_of,
    optional,
    row_of,
    shapes_of,
)
from labengine.record.fold import Fold
from labengine.record.fold_state import RequestFold
from labengine.record.snapshot import GroupState

Row = Sequence[Any]
"""An event as values of JSON types: its kind's number, then its fields."""

Kind = Sequence[str]
"""An event kind's name, and the names of its fields."""

KINDS: list[list[str]] = [[kind.__name__, *(f.name for f in fields(kind))] for kind in EVENT_KINDS]
"""Names and fields of the rows' kinds: a file or a message carries this list in its header."""


def dumps(document: object) -> bytes:
    """Return compact JSON in UTF-8, with bytes as hex. Half a surrogate pair in a text is kept, escaped."""
    return _ENCODER.encode(document).encode()


def rows(events: Iterable[Event]) -> list[Row]:
    """Return one row per event."""
    row_of_kind = _ROW_OF
    return [row_of_kind[type(event)](event) for event in events]


def decoder(kinds: Sequence[Kind] = KINDS) -> Callable[[Row], Event]:
    """Return a function from rows of JSON with these kinds to events; it raises TraceError for what is no such row.

    Fields that the rows lack take their defaults.
    """
    makers = _MAKERS if kinds == KINDS else [_maker(kind) for kind in kinds]

    def event(row: Row) -> Event:
        try:
            number, *values = row
            if type(number) is not int or number < 0:
                raise ValueError("its kind is no number")
            return makers[number](values)
        except (LookupError, TypeError, ValueError) as error:
            raise TraceError(f"this is no event: {str(row)[:80]} ({error})") from None

    return event


def keyframe(state: Fold) -> dict[str, Any]:
    """Return a state, ready for `dumps`; blocks without content are left out."""
    return {
        "step": state.step,
        "groups": [(g.kind, g.block_size, g.window) for g in state.groups],
        "null_block": state.null_block,
        "requests": [
            (i, r.status, r.token_ids, r.num_prompt_tokens, r.num_computed_tokens, r.block_tables)
            for i, r in state.requests.items()
        ],
        "priorities": [(i, r.priority) for i, r in state.requests.items() if r.priority],
        "ref_counts": state.ref_counts,
        "block_keys": [(block_id, keys) for block_id, keys in enumerate(state.block_keys) if keys],
        "block_tokens": [(block_id, tokens) for block_id, tokens in enumerate(state.block_tokens) if tokens],
        "free_queue": list(state.free_queue),
        "prefix_map": [(*key, ids) for key, ids in state.prefix_map.items()],
        "pins": list(state.pins.items()),
        "holding": sorted(state.holding),
        "drafts": [(i, r.drafts) for i, r in state.requests.items() if r.drafts],
        "images": [(i, r.images) for i, r in state.requests.items() if r.images],
        "beams": [(i, r.first_beam) for i, r in state.requests.items() if r.first_beam is not None],
    }


def fold_of(keyframe: dict[str, Any]) -> Fold:
    """Return the state of a keyframe of JSON. Raises TraceError unless it is one."""
    try:
        return _fold_of({name: shape((_EMPTY | keyframe)[name]) for name, shape in _KEYFRAME.items()})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"this is no keyframe: {error!r}") from None


def _fold_of(saved: dict[str, Any]) -> Fold:
    state, num_blocks = Fold(), len(saved["ref_counts"])
    state.step, state.null_block, state.ref_counts = saved["step"], saved["null_block"], list(saved["ref_counts"])
    state.groups = tuple(GroupState(*group) for group in saved["groups"])
    for request_id, status, token_ids, num_prompt, num_computed, tables in saved["requests"]:
        lists = [list(table) for table in tables]
        state.requests[request_id] = RequestFold(status, list(token_ids), num_prompt, num_computed, lists)
    for request_id, priority in saved["priorities"]:
        state.requests[request_id].priority = priority
    for request_id, drafts in saved["drafts"]:
        state.requests[request_id].drafts = drafts
    for request_id, images in saved["images"]:
        state.requests[request_id].images = images
    for request_id, first_beam in saved["beams"]:
        state.requests[request_id].first_beam = first_beam
    state.block_keys, state.block_tokens = [()] * num_blocks, [()] * num_blocks
    for block_id, keys in saved["block_keys"]:
        state.block_keys[block_id] = keys
    for block_id, tokens in saved["block_tokens"]:
        state.block_tokens[block_id] = tokens
    state.free_queue = OrderedDict.fromkeys(saved["free_queue"])
    state.prefix_map = {(group, block_hash): ids for group, block_hash, ids in saved["prefix_map"]}
    state.pins, state.holding = dict(saved["pins"]), set(saved["holding"])
    _refuse_unknown_blocks(state)
    return state


def _refuse_unknown_blocks(state: Fold) -> None:
    tables = chain.from_iterable(request.block_tables for request in state.requests.values())
    named = {*state.free_queue, *chain.from_iterable(state.prefix_map.values()), *chain.from_iterable(tables)}
    if unknown := named - {state.null_block, *range(len(state.ref_counts))}:
        raise ValueError(f"there is no block {min(unknown)}")


_KEYFRAME: dict[str, Shape] = {
    "step": INT,
    "groups": array_of(row_of(TEXT, INT, optional(INT))),
    "null_block": INT,
    "requests": array_of(row_of(INT, TEXT, IDS, INT, INT, TABLES)),
    "priorities": array_of(row_of(INT, INT)),
    "ref_counts": IDS,
    "block_keys": array_of(row_of(INT, array_of(row_of(INT, HASH)))),
    "block_tokens": array_of(row_of(INT, IDS)),
    "free_queue": IDS,
    "prefix_map": array_of(row_of(INT, HASH, IDS)),
    "pins": array_of(row_of(INT, INT)),
    "holding": IDS,
    "drafts": array_of(row_of(INT, IDS)),
    "beams": array_of(row_of(INT, INT)),
    "images": array_of(row_of(INT, array_of(row_of(INT, INT, TEXT)))),
}
_EMPTY: dict[str, Any] = {"priorities": [], "pins": [], "holding": [], "drafts": [], "beams": [], "images": []}
"""What keyframes of earlier releases lack."""


def plain(value: object) -> object:
    """Convert a value that JSON lacks: a hash, or another library's integer (a user's part may emit one)."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "__index__"):
        return value.__index__()
    raise TypeError(f"an event cannot hold {value!r}: ids, ints, texts and hashes only")


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=plain, check_circular=False, allow_nan=False)


def _row_of(number: int, kind: type[Event]) -> Callable[[Any], Row]:
    """Compile the row function of a kind: `(20, event.block_id, ...)` takes half as long as an attrgetter's tuple."""
    values = "".join(f"event.{f.name}, " for f in fields(kind))
    row: Callable[[Any], Row] = eval(f"lambda event: ({number}, {values})")
    return row


_ROW_OF = {kind: _row_of(number, kind) for number, kind in enumerate(EVENT_KINDS)}


def _maker(kind: Kind) -> Callable[[list[Any]], Event]:
    """Return a function that makes events of one kind from a row's values."""
    if not kind:
        raise TraceError("a kind of event without a name: it names no kind")
    name, *names = kind
    event_kind = _EVENT_KINDS.get(name)
    if event_kind is None:
        raise TraceError(f"this labengine knows no event {name[:80]!r}: open the trace with a newer one")
    shapes = shapes_of(event_kind)
    if names != [*shapes][: len(names)]:
        raise TraceError(f"a {name} has other fields here than {names}: open it with a newer labengine")
    used = [shapes[field_name] for field_name in names]
    accepted = set(product(*(shape.types for shape in used)))
    readers = [(i, shape.read) for i, shape in enumerate(used) if shape.read is not None]

    def make(values: list[Any]) -> Event:
        if tuple(map(type, values)) not in accepted:
            raise TypeError(f"no {name}")
        for i, read in readers:
            values[i] = read(values[i])
        return event_kind(*values)

    return make


_EVENT_KINDS = {kind.__name__: kind for kind in EVENT_KINDS}
_MAKERS = [_maker(kind) for kind in KINDS]
