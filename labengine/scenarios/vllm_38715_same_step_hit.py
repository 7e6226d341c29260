"""vLLM pull request 38715 (also 37152, 41400, 42359): is a hit on a block of the same step a bug?

vLLM registers a block's hash when it is allocated, before its KV is computed. A request that is admitted later in the
same step can hit it. The pull requests say that it reads memory that nobody has written, and name the wrong outputs
of issues 37076, 38606 and 41838 as its effect. What decides is the order inside the forward pass. (vLLM 0.32's own
scheduler admits the three prompts below in one step.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockCached, PrefixHit, RequestScheduled, StepEnded, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)
from labengine.scenarios.tiny_model import TinyModelScenario


class WaitsForTheBlock(TokenBudgetScheduler):
    """The proposed guard, which vLLM has for Mamba layers (29387)."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Do not admit a request, and none behind it, while its hit's last block is computed in this step."""
        size = self.manager.groups[0].block_size
        uncomputed = {
            block_id
            for running in self.running
            for block_id in running.block_tables[0][running.num_computed_tokens // size :]
        }
        if uncomputed.intersection(self.manager.find_prefix(request).block_ids[0][-1:]):
            return NOT_ADMITTED
        return super().admit(request, limit, is_first=is_first)


GUARD = Parts(name="vllm + 38715", scheduler=WaitsForTheBlock).overriding(VLLM)


class ThreePrompts(TinyModelScenario):
    """Three prompts that share two blocks, added at once."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("guard", GUARD, "Waits a step for a block that is computed in this one."),
        Column("vllm", "vllm", "Hits it at once: each layer writes all KV of the batch before it attends."),
        Column("labengine", "labengine", "Registers after the step: computes the prefix anew, and merges."),
    )
    settings = settings(num_blocks=24, block_size=4, device="cpu")

    def opening(self, lab: Lab) -> None:
        """Add three prompts that share 8 tokens, and take the first step."""
        for own in (40, 50, 60):
            lab.add(token_ids=[*range(10, 18), *range(own, own + 3)], max_tokens=6, ignore_eos=True)
        lab.step()

    def play(self, lab: Lab) -> None:
        """Run them to the end."""
        self.opening(lab)
        lab.run()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count wrong tokens, requests that did not begin in the first step, and prompt tokens computed."""
        assert lab.timeline is not None
        begun = [event for event in lab.timeline.of_kind(RequestScheduled) if event.is_prefill]
        end = moment_of(lab, StepEnded) or 0
        first = {e.request_id for e in lab.timeline.events(0, end) if isinstance(e, RequestScheduled)}
        return {
            **super().measure(lab),
            "requests that wait a step": len({event.request_id for event in begun} - first),
            "prompt tokens computed": sum(event.num_tokens for event in begun),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if tokens are wrong, or requests wait."""
        return measured["wrong tokens"] > 0 or measured["requests that wait a step"] > 0


class OtherOrder(ThreePrompts):
    """The other side: a runner that computes the step's requests one after the other, the last one first."""

    question = "The same, on a runner that computes the batch's requests one by one, the last one first"
    columns = tuple(Column(c.name, c.parts, c.says, "LastRequestFirst") for c in ThreePrompts.columns)

    def answer(self, table: Table) -> str:
        """State that the order is a contract."""
        guard, vllm, late = (column["wrong tokens"] for column in table.columns.values())
        return (
            f"The hit is right because of an order that the runner keeps: on one that computes the last request first, "
            f"{vllm} tokens are wrong with hits in the same step, {guard} with the guard, {late} where a block is "
            f"registered after the step."
        )


class SameStepHit(ThreePrompts):
    """The guard is the first column, the engine as it is the second."""

    id = "vllm-38715"
    title = "A hit on a block of the same step is no bug"
    url = "https://github.com/vllm-project/vllm/pull/38715"
    upstream = "No guard is in vLLM 0.32, rightly: it admits the three prompts in one step."
    kind = "hit in flight"
    breaks = "The proposed guard puts off each request that hits a block of the step, and all requests behind it."
    why_unseen = "The guard breaks no rule: it waits for KV that would have been there in time."
    claim = (
        "When two requests share a prefix and are scheduled in one step, the second one hits blocks of the first "
        "before the GPU has written any KV to them, and reads stale memory; it has to wait for the next step."
    )
    question = "Three prompts that share two blocks, added at once: are tokens wrong, and who waits?"
    roles = ("the proposed guard: pull request 38715", "correct as it is")
    guide = (
        GuideStop(
            "A is admitted. Its two full blocks are registered at once, before any KV is computed.",
            BlockCached,
            lambda event: event.index == 1,
        ),
        GuideStop(
            "Right, B is admitted in the same step, and hits both. Left, the guard lets B wait, and C behind it.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Right, all three have sampled. In each layer the KV of the whole batch is stored first; then B attended "
            "to what A had stored an instant before. The token is the one that it gets alone.",
            TokenSampled,
            lambda event: event.request_id == 2,
        ),
        GuideStop("Left, one of three requests has begun. The other two begin a step later, without need.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"other order": OtherOrder()}

    def claim_holds(self, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Return whether the claim, which is about the engine as it is, holds: whether its tokens are wrong."""
        return after["wrong tokens"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the end of the first step if a request has waited for it without need."""
        if not self.measure(lab)["requests that wait a step"]:
            return super().first_wrong(lab)
        moment = moment_of(lab, StepEnded)
        assert moment is not None
        return wrong_at(lab, moment, "The step ends with one request of three: the others fitted in, and waited.")

    def answer(self, table: Table) -> str:
        """State both sides' figures."""
        guard, vllm, late = table.columns.values()
        waits, prompt = "requests that wait a step", "prompt tokens computed"
        return (
            f"The claim does not hold for attention: with hits in the same step {vllm['wrong tokens']} of "
            f"{vllm['tokens']} tokens are wrong, and the checks find no read of KV that is not there. The guard makes "
            f"{guard[waits]} requests wait. An engine that registers after the step computes {late[prompt]} prompt "
            f"tokens instead of {vllm[prompt]}. (For a Mamba state, which is read before the step writes it, the "
            f"claim holds: 29387.)"
        )


SCENARIO = SameStepHit()
