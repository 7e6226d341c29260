"""DingoCache pull request 377: a preempted request's block is given away before its save has read it.

The connector copied blocks in a thread of its own, some time after the forward pass that filled them. At a normal end
the blocks were kept until then. At a preemption they were not, in steps without a load: the block went to another
request, the next forward pass wrote to it, and the copy kept those bytes under the first request's key. Here requests
that end stand for the preempted one: labengine's stores are not asked at an end.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.connector import BlockTransfer, KVAccess
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_blocks
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
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
    report = Report(
        repository="dingodb/DingoCache",
        kind="pull request",
        number="377",
        title="fix(vllm): fence preemptions before forward",
        state="merged",
        as_of="2026-09-11",
        seen_in="September 2026, before the merge",
        mended_in="pull request 377; in which version is not known here",
        needs=(
            "saves in a thread of their own",
            (
                "a preemption in a step without a synchronous load, so that vLLM calls `start_load_kv` behind "
                "the forward pass"
            ),
        ),
    )
    claim = (
        "A preempted request's block can be reused before its asynchronous save has completed; the save then keeps "
        "other content."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "It holds for a preemption. A normal end was safe before: `request_finished()` keeps the "
            "blocks until the save has read them. Pull request 76 had fenced preemptions in "
            "`start_load_kv`, which vLLM may call too late; 377 fences them in `handle_preemptions`."
        ),
        passages=(
            ThreadPassage(
                source="dingodb/DingoCache 377",
                says=(
                    "The fence ran in `start_load_kv`, which may come behind the forward pass; it moves to the "
                    "hook for preemptions."
                ),
            ),
            ThreadPassage(
                source="dingodb/DingoCache 76",
                says=(
                    "A preemption frees the blocks without a hook of the connector; `request_finished()` covers "
                    "normal ends only."
                ),
            ),
        ),
    )
    kind = "external tier"
    breaks = "The tier files another request's KV under a block's hash, and serves it to the next hit."
    wrong_figure = "blocks misread"
    seen_by = ("read", "named")
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
