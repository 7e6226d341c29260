"""Events of an engine and its steps, which begin, end, fail and are rolled back."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.events.event import Event, methods
from labengine.events.fields import GroupRow, OrNone


@dataclass(frozen=True, slots=True)
class EngineStarted(Event):
    """A new or reset engine is empty and ready: all blocks are free, queued in the order of their ids."""

    num_blocks: int
    groups: tuple[GroupRow, ...]
    """(kind, block_size, window) per KV-cache group."""
    edition: str
    null_block: OrNone = -1
    """Id that pads a block table where a group holds no block. If >= 0, it is a pool block that is never given away."""

    topic = "step"
    phase = "none"
    decided_by = {"": ("Parts.assemble", "Engine.__init__")}


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A step opened; nothing is scheduled yet. Steps are numbered from 1."""

    step: int

    topic = "step"
    phase = "schedule"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepEnded(Event):
    """The step's update is complete: tokens appended, blocks cached, finished requests freed."""

    step: int

    topic = "step"
    phase = "none"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepFailed(Event):
    """An exception ended the step. Nothing is rolled back yet: the state is as at the moment of the exception."""

    step: int
    error: str
    """Name of the exception's class."""
    message: str
    method: str
    """Class and method of the part that raised it, such as "BlockPool.release"."""

    topic = "trouble"
    phase = "any"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepRolledBack(Event):
    """The step failed or was interrupted; the state is again as just before its StepStarted."""

    step: int
    reason: str
    """Name of the exception that ended the step."""

    topic = "trouble"
    phase = "none"
    decided_by = {
        "": methods(
            "Scheduler.forget_written BlockPool.blocks_to_give_back FreeQueue.put_back FreeQueue.insert_after",
            "WaitingQueue.put_back_request Engine._roll_back",
        ),
    }
