"""vLLM pull request 38715 (also 37152 and 42359): is a hit on a block of the same step a bug?

vLLM registers a block's hash when it is allocated, before its KV is computed. A request that is admitted later in the
same step can hit it. The pull requests say that it reads memory that nobody has written. 38715 calls that a likely path
behind issue 38606, 42359 a possible one behind 41838. What decides is the order inside the forward pass. (The scheduler
of vLLM 0.32 admits the three prompts below in one step.)
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
from labengine.scenarios.counts import events_of
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
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
    """The proposed guard, which vLLM has for Mamba layers since pull request 29387."""

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
        Column("guard", GUARD, "38715, as it is described: waits a step for a block that is computed in this one."),
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
        begun = [event for event in events_of(lab, RequestScheduled) if event.is_prefill]
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
            f"The hit is right because of an order that the runner keeps. On one that computes the last request first, "
            f"which no engine is known to do, "
            f"{vllm} tokens are wrong with hits in the same step, {guard} with the guard, {late} where a block is "
            f"registered after the step."
        )


class SameStepHit(ThreePrompts):
    """The guard is the first column, the engine as it is the second."""

    id = "vllm-38715"
    title = "A hit on a block of the same step is no bug for attention"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="38715",
        title="[Bugfix] Fix intra-step KV block corruption from stale prefix cache hits",
        state="closed, not merged",
        as_of="2026-09-11",
        seen_in="main of 2026-04-01 by the report; 0.32.0 admits such a hit as well, without a guard for attention",
        needs=("prefix caching", "two requests with one prefix of a full block, admitted in one step"),
    )
    kind = "hit in flight"
    breaks = "The proposed guard puts off each request that hits a block of the step, and all requests behind it."
    why_unseen = "The guard breaks no rule: it waits for KV that would have been there in time."
    claim = (
        "When two requests share a prefix and are scheduled in one step, the second one hits blocks of the first "
        "before the GPU has written any KV to them, and reads stale memory; it has to wait for the next step."
    )
    conclusion = Conclusion(
        answer="does not hold",
        reason=(
            "For attention, which the guard is proposed for: each layer stores the keys and values of the whole batch, "
            "and then attends. It holds for a Mamba state, which has had a guard since pull request 29387. What makes "
            "the outputs of issue 38606 wrong is not known here."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/model_executor/layers/attention/attention.py",
                line=548,
                text="kv_cache_dummy_dep = unified_kv_cache_update(",
                says="A layer's store of the batch's keys and values comes first.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/model_executor/layers/attention/attention.py",
                line=557,
                text="kv_cache_dummy_dep=kv_cache_dummy_dep,",
                says="The layer's attention depends on that store.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=1690,
                text="and new_computed_blocks[-1].block_hash in self.cached_blocks_this_step",
                says="Mamba groups put a request off that hits a block of the step.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 29387",
                says="A Mamba layer reads the state of a block before the step that computes it has written it.",
            ),
        ),
    )
    question = "Three prompts that share two blocks, added at once: are tokens wrong, and who waits?"
    roles = ("the proposed guard: pull request 38715", "vLLM 0.32: no guard")
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
            f"With hits in the same step {vllm['wrong tokens']} of {vllm['tokens']} tokens are wrong here, and the "
            f"checks find no read of KV that is not there. The guard makes {guard[waits]} requests wait. An engine "
            f"that registers after the step computes {late[prompt]} prompt tokens instead of {vllm[prompt]}. (A Mamba "
            f"state is read before the step writes it: there vLLM has the guard, 29387.)"
        )


SCENARIO = SameStepHit()
