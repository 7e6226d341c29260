"""MinivLLM issue 75: the check for a free block and the append that takes it disagree by one token.

The inverse of nano-vLLM pull request 71: the append is right, the check in front of it is not. (Upstream it costs more
than a preemption: the loop that preempts B drops A, for which it did so, from both queues.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import NANO_VLLM_2025_07
from labengine.core.nano_vllm.kv_cache_manager import EarlyHashManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import RequestFinished, RequestPreempted, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    moment_of,
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

    columns = (REPORTED, FIXED)
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


class NeedlessPreemption(OneTokenFurther, Scenario):
    """Two requests that end exactly when their blocks are full: no request ever lacks a block."""

    max_tokens = 2
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


SCENARIO = NeedlessPreemption()
