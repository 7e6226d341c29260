"""MinivLLM issue 75: the check for a free block and the append that takes it disagree by one token.

The inverse of nano-vLLM pull request 71: the append is right, the check in front of it is not. (Upstream it costs more
than a preemption: the loop that preempts B drops A, for which it did so, from both queues.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import NANO_VLLM_2025_07
from labengine.core.nano_vllm import EarlyHashManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import RequestAdded, RequestFinished, RequestPreempted, StepEnded, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    symptom,
    wrong_at,
)


class ChecksTheFullBlock(EarlyHashManager):
    """The reported rule: `can_append` tests length % block_size == 0, `append` takes a block at == 1."""

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Return False if the length fills the last block and none is free; else take what is missing, unchecked."""
        if num_tokens % self.groups[0].block_size == 0 and not self.pool.num_free:
            return False
        for group in self.groups:
            group.extend(request, num_tokens)
        self.register(request, num_tokens, "allocated")
        return True


REPORTED = Column(
    "MinivLLM",
    Parts(name="MinivLLM", kv_cache_manager=ChecksTheFullBlock).overriding(NANO_VLLM_2025_07),
    "Asks for a free block when the length fills the last one, and takes one a token later without asking.",
)
FIXED = Column("fixed", "nano-vllm-2025-07", "Compares the blocks that the length needs with those in the table.")


class OneTokenFurther(Experiment):
    """Two requests that grow one token further, to length 5: one of them really lacks a block."""

    question = "One token further: length 5, and no block is free"
    columns = (REPORTED, FIXED)
    settings = settings(num_blocks=2, block_size=4)
    max_tokens = 3

    def play(self, lab: Lab) -> None:
        """Run two prompts of three tokens; an error may end the run."""
        self.add_both(lab)
        symptom(lab.run)

    def add_both(self, lab: Lab) -> None:
        """Add the two prompts."""
        for first in (10, 20):
            lab.add(token_ids=range(first, first + 3), max_tokens=self.max_tokens)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count preemptions, computed tokens, failed steps and finished requests."""
        return {
            "preemptions": len(events_of(lab, RequestPreempted)),
            "tokens computed": num_computed_tokens(lab),
            "steps ended by an error": len(events_of(lab, StepRolledBack)),
            "requests finished": len(events_of(lab, RequestFinished)),
        }

    def answer(self, table: Table) -> str:
        """State that the step which needs a block fails."""
        wrong, right = table[REPORTED.name], table[FIXED.name]
        return (
            f"At length 5 a block is missing, and the check says that none is: the free queue is empty, the step "
            f"raises, and {wrong['requests finished']} of 2 requests end. The fixed engine preempts "
            f"{right['preemptions']} request and ends both."
        )


class NeedlessPreemption(OneTokenFurther, Scenario):
    """Two requests that end exactly when their blocks are full: no request ever lacks a block."""

    id = "minivllm-75"
    title = "A request is preempted for a block that no request needs"
    report = Report(
        repository="Wenyueh/MinivLLM",
        kind="issue",
        number="75",
        title="Fault in BlockManager.py",
        state="open",
        as_of="2026-07-22",
        seen_in="commit e63c96c (2025-12-31)",
        mended_in="commit 72dd681, which tests for 1; pull request 85 was closed",
    )
    claim = "can_append tests num_tokens % block_size == 0; it should test for 1, as append does."
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The check asks for a free block one token before the append takes one. The owner answers the "
            'issue with "correct".'
        ),
        passages=(
            CodePassage(
                version="minivllm e63c96c",
                file="src/myvllm/engine/block_manager.py",
                line=113,
                text="if seq.num_tokens % self.block_size == 0:",
                says="The check asks for a free block when the last one is just full.",
            ),
            ThreadPassage(source="Wenyueh/MinivLLM 75", says="The owner agrees in July 2026."),
            ThreadPassage(
                source="Wenyueh/MinivLLM 85",
                says=(
                    "It names both sides of the boundary: a needless preemption, and a step that finds no free block."
                ),
            ),
        ),
    )
    kind = "boundary"
    breaks = "A full pool preempts one token too early, and one token later a step takes a block that is not there."
    why_unseen = (
        "Every state is consistent: a preemption that was not necessary only costs compute, and the missing block "
        "shows as an exception."
    )
    question = "Two requests whose four tokens fill one block each, in a pool of two: who is preempted?"
    max_tokens = 2
    roles = ("the bug: the check of issue 75", "the fix: blocks needed, compared with the table")
    guide = (
        GuideStop(
            "A and B have three tokens each, and the pool has two blocks of four: one for each of them.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Both are computed, and each has sampled its fourth token. No block is free, and none is needed: the "
            "fourth token's KV goes to the last slot of the block that is there.",
            StepEnded,
            about_slots=True,
        ),
        GuideStop(
            "Left, 4 % 4 == 0 is taken for a block that is missing: B gives its block back.",
            RequestPreempted,
        ),
        GuideStop(
            "Left, B will compute its prompt again, in a step of its own. Right, both have ended.",
            StepEnded,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"one token further": OneTokenFurther()}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request was preempted, or a step failed."""
        return measured["preemptions"] > 0 or measured["steps ended by an error"] > 0

    def opening(self, lab: Lab) -> None:
        """Run the prompts' step and the first decode."""
        self.add_both(lab)
        lab.step()
        lab.step()

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first preemption: no block was missing."""
        moment = moment_of(lab, RequestPreempted)
        text = "Request 1 is preempted for a block, and the length of both requests fits the blocks that they have."
        return None if moment is None else wrong_at(lab, moment, text)

    def answer(self, table: Table) -> str:
        """State the cost of the preemption."""
        wrong, right = table[REPORTED.name], table[FIXED.name]
        return (
            f"{wrong['preemptions']} preemption and {wrong['tokens computed']} tokens computed, instead of "
            f"{right['preemptions']} and {right['tokens computed']}. (Comparing the blocks that are needed with the "
            f"table, as pull request 85 does, also holds for blocks of one token, where % 1 is never 1.)"
        )


SCENARIO = NeedlessPreemption()
