"""The writes of a forward pass, which no stream contains: they follow from the tables and the scheduled tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from labengine import events as ev
from labengine.core.vllm.checkpoints import is_reachable
from labengine.record.snapshot import GroupState


class InnerStates(NamedTuple):
    """Where the chunks of state groups may leave a state inside them, in tokens."""

    alignment: int
    """The state is left at a multiple of it after the chunk's start."""
    link: int
    """The hash chain's link: chunks have to begin at a multiple of it."""
    unit: int
    """The state is left at the last multiple of it inside the chunk."""


def written(
    request_id: int,
    number: int,
    group: GroupState,
    table: Sequence[int],
    start: int,
    end: int,
    inner_states: InnerStates | None = None,
) -> Iterator[ev.Event]:
    """Yield the events in one group's blocks when a request's tokens [start, end) are computed.

    number: the group's. A state moves to the block of the last of these tokens; if the previous state is in another
    block, it is copied there first (vLLM's worker does so by the same tables). inner_states: for chunks that may leave
    a state inside them; it is in the previous entry. No events of states if no table tells them; see `says_states`.
    """
    if group.kind != "state":
        yield ev.SlotsWritten(request_id, number, start, tuple(slot_runs(table, start, end, group.block_size)))
        return
    if not says_states(table, end, group.block_size):
        return
    last = (end - 1) // group.block_size
    before = (start - 1) // group.block_size
    if start and before != last:
        yield ev.StateCopied(table[before], table[last], request_id, number, start)
    if inner_states is not None:
        alignment, link, unit = inner_states
        inside = (end - 1) // unit * unit
        if is_reachable(start, end, inside, alignment, link, group.block_size) and table[last - 1]:
            yield ev.StateAdvanced(request_id, number, table[last - 1], start, inside)
            start = inside
    yield ev.StateAdvanced(request_id, number, table[last], start, end)


def says_states(table: Sequence[int], end: int, block_size: int) -> bool:
    """Return True if a state group's table tells the block (the last) of the state after a step up to token `end`.

    With speculation a table ends in scratch blocks, and the accepted drafts determine in which of them the worker
    leaves a state.
    """
    return (end - 1) // block_size + 1 == len(table)


def slot_runs(table: Sequence[int], start: int, end: int, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block_id, offset, length) for the slots of positions [start, end), as far as the table reaches."""
    while start < end and start // block_size < len(table):
        offset = start % block_size
        length = min(block_size - offset, end - start)
        yield table[start // block_size], offset, length
        start += length
