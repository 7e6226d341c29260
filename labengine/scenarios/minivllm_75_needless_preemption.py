"""MinivLLM issue 75: the check for a free block and the append that takes it disagree by one token.

The inverse of nano-vLLM pull request 71: the append is right, but the check before it is not. Upstream this costs more
than a preemption: the loop that preempts B for A drops A from both queues.
"""

from __future__ import annotations

from labengine.core.nano_vllm.kv_cache_manager import EarlyHashManager
from labengine.core.request import Request
from labengine.events import RequestFinished, RequestPreempted, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_computed_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
    symptom,
)


class ChecksTheFullBlock(EarlyHashManager):
    """The reported rule: `can_append` tests length % block_size == 0, `append` takes a block at == 1."""

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Return False if the length fills the last block and none is free; else take missing blocks, unchecked."""
        if num_tokens % self.groups[0].block_size == 0 and not self.pool.num_free:
            return False
        for group in self.groups:
            group.extend(request, num_tokens)
        self.register(request, num_tokens, "allocated")
        return True


class OneTokenFurther(Experiment):
    """Two requests that grow by one more token, to length 5: one of them really lacks a block."""

    columns = (Column("nano-vllm-2025-07", ChecksTheFullBlock), Column("nano-vllm-2025-07"))
    max_tokens = 3
    figures = {
        "preemptions": lambda lab: len(events_of(lab, RequestPreempted)),
        "tokens computed": num_computed_tokens,
        "steps ended by an error": lambda lab: len(events_of(lab, StepRolledBack)),
        "requests finished": lambda lab: len(events_of(lab, RequestFinished)),
    }

    def play(self, lab: Lab) -> None:
        """Run two prompts of three tokens; an error may end the run."""
        self.add_both(lab)
        symptom(lab.run)

    def add_both(self, lab: Lab) -> None:
        """Add the two prompts."""
        for first in (10, 20):
            lab.add(token_ids=range(first, first + 3), max_tokens=self.max_tokens)


class NeedlessPreemption(OneTokenFurther, Scenario):
    """Two requests that end exactly when their blocks are full, so no request ever lacks a block."""

    max_tokens = 2
    experiments = {"one token further": OneTokenFurther()}

    def opening(self, lab: Lab) -> None:
        """Run the prompts' step and the first decode."""
        self.add_both(lab)
        lab.step(2)
