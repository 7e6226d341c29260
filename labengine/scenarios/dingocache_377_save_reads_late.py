"""DingoCache pull request 377: a block is given away before its save has read it.

The connector copied blocks on a stream of its own, some time after the forward pass that filled them. Nothing kept a
block until then. When its request ended or was preempted, the block went to another request, the next forward wrote to
it, and the copy kept those bytes under the first request's key. The error comes back with a later hit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.connector import BlockTransfer, KVAccess
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.figures import events_of, num_misread_blocks
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)


class SavesWithTheNext(HostStore):
    """Accepts saves now, and copies them with the next ones."""

    accepted: Sequence[BlockTransfer] = ()

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Copy the blocks that were accepted before, and accept these: their content is read at the next call."""
        due, self.accepted = self.accepted, tuple(saves)
        super().save_kv(due, kv)
        return tuple(saves)


class SaveReadsLate(Scenario):
    """A ends, B computes in A's blocks, and then C has A's prompt: three requests, one after the other."""

    id = "dingocache-377"
    title = "A block is given away before its save has read it"
    url = "https://github.com/dingodb/DingoCache/pull/377"
    upstream = "Pull request 377 keeps a block until its save has read it. State not known."
    claim = "A block can be reused before its asynchronous save has completed; the save then keeps other content."
    kind = "external tier"
    breaks = "The tier files another request's KV under a block's hash, and serves it to the next hit."
    seen_by = ("read",)
    question = "A's blocks are reused before their save has read them, and C has A's prompt: what does C load?"
    roles = ("the bug: copied later", "correct: copied before the block can be given away")
    columns = (
        Column(
            "copied later",
            "vllm",
            "Accepts a save after the step, and reads the block when the next one comes.",
            tier=SavesWithTheNext,
        ),
        Column("copied at once", "vllm", "Reads the block after the forward pass that filled it.", tier=HostStore),
    )
    settings = settings(num_blocks=4, block_size=4)
    guide = (
        GuideStop(
            "A's prompt is computed, and its two full blocks are saved. Left, the save is only accepted.",
            BlocksSaved,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "A has ended. B gets its blocks, and computes in them.",
            SlotsWritten,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "B's blocks are saved, and left the copies of A's blocks run: what they read is B's KV.",
            BlocksSaved,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "C has A's prompt. The pool has forgotten it; the tier has both blocks, by A's hashes.",
            ExternalHit,
        ),
        GuideStop("They are loaded. Left, it is B's KV, under A's name.", BlocksLoaded),
        GuideStop(
            "C computes its last token, and left it reads KV of another prompt.",
            SlotsWritten,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, B and C, each for the one step that it takes."""
        for first in (1, 101, 1):
            lab.add(token_ids=range(first, first + 9), max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count saved, loaded and misread blocks."""
        return {
            "blocks said to be saved": sum(len(event.transfers) for event in events_of(lab, BlocksSaved)),
            "blocks loaded": sum(len(event.transfers) for event in events_of(lab, BlocksLoaded)),
            "blocks misread": num_misread_blocks(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV that is not its own."""
        return measured["blocks misread"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the event that filed the wrong content. The checks see the read alone."""
        moment = moment_of(lab, BlocksSaved, lambda event: event.request_id == 1)
        if moment is None or not lab.violations:
            return None
        return wrong_at(lab, moment, "With B's saves the copies of A's blocks run, and file B's KV under A's hashes.")

    def answer(self, table: Table) -> str:
        """State how far the error is from its cause."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"{wrong['blocks misread']} of {wrong['blocks loaded']} loaded blocks hold another prompt's KV, and "
            f"{right['blocks misread']} if the copy comes first. The step that goes wrong is B's, the wrong answer is "
            "C's, and no block of the pool was ever in a wrong state: only the content that a save carries shows it."
        )


SCENARIO = SaveReadsLate()
