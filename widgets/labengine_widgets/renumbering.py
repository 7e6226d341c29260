"""The same event in a pool whose ids begin elsewhere: a null block that is set aside moves all others up by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from labengine import events as ev

Shifted = Callable[[Any, int], Any]

_SHIFTED: dict[str, Shifted] = {
    "block_id": lambda block_id, by: block_id + by,
    "into_block_id": lambda block_id, by: block_id + by,
    "block_ids": lambda ids, by: tuple(_ids(one, by) for one in ids),
    "mapped": lambda ids, by: tuple(block_id + by for block_id in ids),
    "runs": lambda runs, by: tuple((block_id + by, *rest) for block_id, *rest in runs),
    "transfers": lambda moved, by: tuple((group, index, block + by, key) for group, index, block, key in moved),
}
"""Per field that holds block ids, the same with all of them higher."""

_NAMES: dict[type[ev.Event], tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if f.name in _SHIFTED) for kind in ev.EVENT_KINDS
}


def renumbered(event: ev.Event, by: int) -> ev.Event:
    """With all block ids higher by so much; the null block, -1 or 0, moves with them."""
    names = _NAMES.get(type(event), ())
    return replace(event, **{name: _SHIFTED[name](getattr(event, name), by) for name in names}) if names else event


def _ids(one: int | tuple[int, ...], by: int) -> int | tuple[int, ...]:
    """Ids per group, or plain ones."""
    return tuple(block_id + by for block_id in one) if isinstance(one, tuple) else one + by
