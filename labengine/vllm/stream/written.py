"""What a forward pass writes, which no stream says: it follows from the tables, and from what was scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine import events as ev
from labengine.core.vllm.checkpoints import is_reachable
from labengine.record.snapshot import GroupState


def written(
    request_id: int,
    number: int,
    group: GroupState,
    table: Sequence[int],
    start: int,
    end: int,
    checkpoint_alignment: int | None = None,
) -> Iterator[ev.Event]:
    """Yield what happens in one group's blocks when a request's tokens [start, end) are computed.

    number: the group's. A state goes on in the block of the last of these tokens; where the one before is in another
    block, it is copied there first (vLLM's worker does so by the same tables). checkpoint_alignment: that of the state
    groups whose chunks may leave a state inside them, where hits end at blocks of one size. It is in the entry before.
    Nothing of states where no table says it; see `says_states`.
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
    inside = last * group.block_size
    if is_reachable(start, end, inside, checkpoint_alignment, group.block_size, group.block_size) and table[last - 1]:
        yield ev.StateAdvanced(request_id, number, table[last - 1], start, inside)
        start = inside
    yield ev.StateAdvanced(request_id, number, table[last], start, end)


def says_states(table: Sequence[int], end: int, block_size: int) -> bool:
    """Return True where a state group's table says which block a step up to token `end` leaves its state in: the last.

    With speculation a table ends in scratch blocks: which of them the worker leaves a state in depends on the drafts
    that it accepts.
    """
    return (end - 1) // block_size + 1 == len(table)


def slot_runs(table: Sequence[int], start: int, end: int, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block_id, offset, length) for the slots of positions [start, end), as far as the table reaches."""
    while start < end and start // block_size < len(table):
        offset = start % block_size
        length = min(block_size - offset, end - start)
        yield table[start // block_size], offset, length
        start += length
