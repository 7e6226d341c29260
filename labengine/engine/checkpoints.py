"""Chunks with a checkpoint: a model computes them as two, one up to the checkpoint and one after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from labengine.config import GroupSpec
from labengine.core.step_plan import ScheduledRequest, SlotRun

Runs = tuple[SlotRun, ...]
_CHECKPOINT = attrgetter("checkpoint")


def without_checkpoints(
    scheduled: Sequence[ScheduledRequest], groups: Sequence[GroupSpec]
) -> Sequence[ScheduledRequest]:
    """Return a step's chunks as a model computes them; the same object if none has a checkpoint."""
    if not any(map(_CHECKPOINT, scheduled)):
        return scheduled
    return [piece for part in scheduled for piece in (_pieces(part, groups) if part.checkpoint else (part,))]


def _pieces(part: ScheduledRequest, groups: Sequence[GroupSpec]) -> tuple[ScheduledRequest, ScheduledRequest]:
    """Return the parts of a chunk before and after its checkpoint. The second reads the KV and the state of the first.

    The first part has two state runs: it continues from the state in the first run's block, and leaves its state in the
    second run's.
    """
    num_before = part.checkpoint - part.start
    before, behind = [], []
    for spec, runs in zip(groups, part.slot_runs, strict=True):
        if spec.kind == "state":
            before.append(runs[::-1])
            behind.append(runs[-1:])
        else:
            before.append(_cut(runs, 0, num_before))
            behind.append(_cut(runs, num_before, part.num_tokens))
    head, tail = part.token_ids[:num_before], part.token_ids[num_before:]
    return (
        replace(part, token_ids=head, slot_runs=tuple(before), samples=False, checkpoint=0),
        replace(part, token_ids=tail, start=part.checkpoint, slot_runs=tuple(behind), checkpoint=0),
    )


def _cut(runs: Runs, first: int, end: int) -> Runs:
    """Return the slots of tokens [first, end), counted from the first token of the runs."""
    found, number = [], 0
    for block_id, offset, length in runs:
        begin, stop = max(first - number, 0), min(end - number, length)
        if begin < stop:
            found.append((block_id, offset + begin, stop - begin))
        number += length
    return tuple(found)
