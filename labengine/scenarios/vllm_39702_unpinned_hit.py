"""vLLM issue 39702, fixed by pull request 42289: the tier's hit is evicted between the look-up and its use.

SimpleCPUOffloadConnector counted the tokens that the CPU holds, and pinned nothing. Once blocks were allocated for them
it looked up again, and an assertion on the count ended the server. The issue has the eviction happen inside one pass of
the scheduler. Here, in a workload of our own, the gap is as long as the request waits for blocks, and the tier refuses
the load in place of the assertion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import BlocksSaved, ExternalHit, RequestFinished, RequestScheduled, StepEnded, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    GuideStop,
    Scenario,
    Table,
    sentences,
    settings,
    symptom,
)


class TrustsTheFirstAnswer(TokenBudgetScheduler):
    """Keeps the tier's first answer about a request until there are blocks for it."""

    def match_external(self, request: Request, hit: Hit) -> int:
        """Return the tokens behind the local hit that the tier held when a look-up first found some."""
        ends: dict[int, int] = vars(self).setdefault("ends", {})
        if found := super().match_external(request, hit):
            ends.setdefault(request.request_id, hit.num_tokens + found)
        return max(0, ends.get(request.request_id, 0) - hit.num_tokens)


def two_blocks() -> HostStore:
    """Return a host tier with room for two blocks."""
    return HostStore(max_blocks=2)


class UnpinnedHit(Scenario):
    """B is looked up while A fills the pool; A's blocks are saved, and the tier has room for two."""

    id = "vllm-39702"
    title = "The tier's hit is evicted between look-up and use"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="39702",
        title=(
            "[Bug]: SimpleCPUOffloadScheduler crashes with AssertionError: Expected N hit tokens, got 0 (TOCTOU race "
            "in update_state_after_alloc)"
        ),
        state="closed",
        as_of="2026-09-11",
        seen_in="0.19.0, the first release with the connector, to 0.21.0",
        mended_in="0.22.0 (42289): the look-up pins what it finds, and there is no second one",
        needs=("SimpleCPUOffloadConnector", "prefix caching", "a CPU cache that is full and evicts"),
    )
    claim = (
        "get_num_new_matched_tokens() finds tokens in the CPU cache and pins none of them. They can be evicted before "
        "update_state_after_alloc() looks them up again, and its assertion (expected N hit tokens, got 0) ends the "
        "server."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "The first look-up pins nothing, and the second one asserts on its count. That an eviction comes between "
            "them is not seen in 0.20.2: both calls are in one pass over the waiting queue, and the manager takes CPU "
            "blocks only when it prepares the step's stores, after that (our reading). Users have met the assertion; "
            "one tells that pinning has ended it."
        ),
        passages=(
            CodePassage(
                version="vllm 0.20.2",
                file="vllm/v1/simple_kv_offload/manager.py",
                line=225,
                text="_, hit_length = self.cpu_coordinator.find_longest_cache_hit(",
                says="The blocks that are found are dropped, and only their number is returned.",
            ),
            CodePassage(
                version="vllm 0.20.2",
                file="vllm/v1/simple_kv_offload/manager.py",
                line=553,
                text="cpu_blocks_alloc = cpu_block_pool.get_new_blocks(n_to_alloc)",
                says="CPU blocks are taken, and so evicted, while stores are prepared.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/simple_kv_offload/manager.py",
                line=385,
                text="self._pending_cpu_hits[request.request_id] = (",
                says="Since the fix the first call keeps what it has found, pinned, for the second one.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 42289",
                says=(
                    "A user met the assertion about 20 minutes into production, once the CPU cache had begun to evict, "
                    "and not any more with the blocks pinned."
                ),
            ),
        ),
    )
    kind = "external tier"
    breaks = "A load is planned for blocks that the tier no longer has."
    wrong_figure = "attempts that failed"
    seen_by = ("tier",)
    question = "B's hit was counted before A's blocks were saved: can B be loaded?"
    roles = ("the bug: the first count is used", "labengine's way: counted when it is used")
    columns = (
        Column(
            "counted once",
            Parts(name="vllm, trusts the first answer", scheduler=TrustsTheFirstAnswer).overriding(VLLM),
            "Uses the number of the first look-up, whatever the tier has evicted since: the tier refuses the load.",
            tier=two_blocks,
        ),
        Column(
            "counted when used",
            "vllm",
            "labengine's order: looks up in the step that allocates and loads. vLLM's fix pins the hit instead.",
            tier=two_blocks,
        ),
    )
    settings = settings(num_blocks=6, block_size=4)
    guide = (
        GuideStop(
            "A runs. B was looked up as well: the tier holds 8 of its tokens, but the pool has too few blocks for it. "
            "Left, the number is kept.",
            RequestScheduled,
        ),
        GuideStop("The tier has room for two blocks. A's two are saved, and B's are evicted for them.", BlocksSaved),
        GuideStop("A ends, and there are blocks for B.", RequestFinished, lambda event: event.request_id == 0),
        GuideStop("Left, B is admitted with the 8 tokens that were counted in step 1.", ExternalHit),
        GuideStop(
            "Left, the tier cannot deliver them. The step is taken back and tried anew, with the same number: it fails "
            "for good.",
            StepRolledBack,
        ),
        GuideStop("Right, the look-up has found nothing, and B has been computed.", StepEnded),
    )
    sentences = sentences(guide[:3])

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B; an error may end each of B's steps."""
        self.opening(lab)
        for _ in range(3):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Run A to its end, with B behind it."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(101, 110), max_tokens=3)
        lab.add(token_ids=prompt, max_tokens=2)
        for _ in range(3):
            lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take B's first step, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed attempts and finished requests."""
        return {
            "attempts that failed": len(events_of(lab, StepRolledBack)),
            "requests finished": num_finished(lab),
        }

    def error(self) -> str:
        """Return the error of B's first step."""
        with self.lab(self.columns[0].name) as lab:
            self.opening(lab)
            return symptom(lab.step)

    def answer(self, table: Table) -> str:
        """State what the engine says, and that a second try does not help."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"Three steps make {wrong['attempts that failed']} attempts, and all fail ({self.error()}). Beginning a "
            f"step anew after a failed load cannot help while the number stays: {wrong['requests finished']} of 2 "
            f"requests finish, and {right['requests finished']} if the tier is asked when its answer is used. (vLLM's "
            f"fix keeps the first answer true: it pins the blocks.)"
        )


SCENARIO = UnpinnedHit()
