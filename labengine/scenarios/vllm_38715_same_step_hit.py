"""vLLM pull request 38715 (also 42359): is a hit on a block of the same step a bug?

vLLM registers a block's hash when the block is allocated, before its KV is computed. A request admitted later in the
same step can hit it. The pull requests say that this request reads memory that nobody has written. 38715 calls that a
likely path behind issue 38606, and 42359 a possible one behind 41838. The order inside the forward pass decides. vLLM
0.32's scheduler admits the three prompts below in one step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestScheduled, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    moment_of,
    wrong_at,
)
from labengine.scenarios.tiny_model import TinyModelScenario


class WaitsForTheBlock(TokenBudgetScheduler):
    """The proposed guard, which vLLM has had for Mamba layers since pull request 29387."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit neither a request nor any behind it while this step computes its hit's last block."""
        size = self.manager.groups[0].block_size
        uncomputed = {
            block_id
            for running in self.running
            for block_id in running.block_tables[0][running.num_computed_tokens // size :]
        }
        if uncomputed.intersection(self.manager.find_prefix(request).block_ids[0][-1:]):
            return NOT_ADMITTED
        return super().admit(request, limit, is_first=is_first)


class ThreePrompts(TinyModelScenario):
    """Three prompts that share two blocks, added at once."""

    columns: ClassVar[tuple[Column, ...]] = (Column("vllm", WaitsForTheBlock), Column("vllm"), Column("labengine"))

    def opening(self, lab: Lab) -> None:
        """Add three prompts that share 8 tokens, and take the first step."""
        for own in (40, 50, 60):
            lab.add(token_ids=[*range(10, 18), *range(own, own + 3)], max_tokens=6, ignore_eos=True)
        lab.step()

    def play(self, lab: Lab) -> None:
        """Run the prompts to the end."""
        self.opening(lab)
        lab.run()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count wrong tokens, requests that did not begin in the first step, and computed prompt tokens."""
        assert lab.timeline is not None
        begun = [event for event in events_of(lab, RequestScheduled) if event.is_prefill]
        end = moment_of(lab, StepEnded) or 0
        first = {e.request_id for e in lab.timeline.events(0, end) if isinstance(e, RequestScheduled)}
        return {
            **super().measure(lab),
            "requests that wait a step": len({event.request_id for event in begun} - first),
            "prompt tokens computed": sum(event.num_tokens for event in begun),
        }


class OtherOrder(ThreePrompts):
    """The other side: a runner that computes the step's requests one after the other, the last one first."""

    columns = tuple(replace(column, runner="LastRequestFirst") for column in ThreePrompts.columns)


class SameStepHit(ThreePrompts):
    """The first column is the guard, the second the unchanged engine."""

    experiments = {"other order": OtherOrder()}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the end of the first step if a request has needlessly waited for it."""
        if not self.measure(lab)["requests that wait a step"]:
            return super().first_wrong(lab)
        moment = moment_of(lab, StepEnded)
        assert moment is not None
        return wrong_at(lab, moment, "The step ends with one request of three: the others fitted, but waited.")
