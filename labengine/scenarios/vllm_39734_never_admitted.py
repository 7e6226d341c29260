"""vLLM issue 39734, fixed by pull request 40946: admission counts a window group for the complete prompt.

Since 0.19.0 vLLM admits a request only if its whole prompt fits (scheduler_reserve_full_isl). The pool was sized for
the window, because blocks that the window has passed are freed from chunk to chunk. Admission did not know that: it
asked for blocks of the window group for every token. Such a prompt waits for ever in an empty pool, and so do all
requests behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.config import GroupSpec
from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockFreed, RequestFinished, RequestScheduled, StepEnded, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import num_finished, num_idle_steps
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
    wrong_at,
)


class CountsAllTokens(VllmKVCacheManager):
    """Admission as if no group had a window."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True when every group has blocks for all tokens at once, though a window group never holds so many."""
        needed = sum(
            group.num_blocks_to_admit(ids, hit.num_tokens + num_external, -(-request.num_tokens // group.block_size))
            for group, ids in zip(self.groups, hit.block_ids, strict=True)
        )
        return needed + num_spare <= self.pool.num_free


class RefusesNothing(TokenBudgetScheduler):
    """Takes any request at `add`."""

    def refuse_what_never_fits(self, request: Request) -> None:
        """Refuse nothing: a request that the whole pool cannot hold is queued like any other."""


GROUPS = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))


class TooLarge(Experiment):
    """The issue's title at its word: a prompt that no pool of this size can hold, and a short request behind it."""

    question = "A prompt larger than the pool, and a short request behind it: 20 steps"
    columns = (
        Column(
            "queued",
            Parts(name="vllm, refuses nothing", scheduler=RefusesNothing).overriding(VLLM),
            "Queues it, as vLLM 0.32: a later check finds that it does not fit, at every step.",
        ),
        Column("refused", "vllm", "Refuses it at `add`: labengine's own rule, in every edition. vLLM 0.32 has none."),
    )
    settings = settings(num_blocks=9, block_size=4)

    def play(self, lab: Lab) -> None:
        """Add a prompt of 40 tokens, which is refused or not, and one of 5."""
        for num_tokens in (40, 5):
            try:
                lab.add(token_ids=range(num_tokens), max_tokens=2)
            except ValueError:
                continue
        for _ in range(20):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the requests that were taken and that have finished."""
        return {"requests taken": len(lab.snapshot().requests), "requests finished": num_finished(lab)}

    def answer(self, table: Table) -> str:
        """State that only a refusal keeps the queue going."""
        queued, refused = table["queued"], table["refused"]
        return (
            f"A request that no pool of this size can hold: queued, it blocks the {queued['requests taken'] - 1} "
            f"behind it ({queued['requests finished']} finished); refused at once, as labengine does, "
            f"{refused['requests finished']} of {refused['requests taken']} finish. Pull requests that would have vLLM "
            f"refuse it were closed without a merge (35570, 39828, 52530): vLLM checks at its start that the pool "
            f"holds a request of max_model_len."
        )


class NeverAdmitted(Scenario):
    """A long prompt that fits by its window, and a short request behind it."""

    id = "vllm-39734"
    title = "A prompt that fits by its window is never admitted"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="39734",
        title="[Bug]: Scheduler deadlocks when request exceeds KV cache capacity but is within max_model_len",
        state="open",
        as_of="2026-09-11",
        seen_in="0.19.0, the first release with scheduler_reserve_full_isl, and 0.19.1",
        mended_in="0.20.0, for models with a window (40946)",
        needs=(
            "a model with full and sliding-window layers (Gemma 4 in the report)",
            "chunked prefill with scheduler_reserve_full_isl, the default",
        ),
    )
    claim = (
        "A request within max_model_len that exceeds the KV-cache capacity is never admitted and never refused: the "
        "scheduler makes no progress, and every request behind it waits as well."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "In 0.19 such a request is never admitted, and all behind it wait. But it does not exceed the capacity: "
            "the size that is logged in tokens counts every group for every token, and the prompt fits by its window."
        ),
        passages=(
            CodePassage(
                version="vllm 0.19.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=734,
                text="and not self.kv_cache_manager.can_fit_full_sequence(",
                says="Admission asks for the blocks of the whole prompt, without a cap for a window.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=225,
                text="num_required_blocks, self.max_admission_blocks_per_request",
                says="A window group is counted for what it holds at one time, as when the pool is sized.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 40946",
                says=(
                    "The pool's size takes into account that blocks outside the window are used again, and admission "
                    "did not: prompts that fit were turned away."
                ),
            ),
            ThreadPassage(
                source="vllm-project/vllm 55800",
                says="The same stall where the drafter of speculative decoding has a window, reported on 2026-09-08.",
            ),
        ),
    )
    kind = "deadlock"
    breaks = "A request waits for more blocks than it would ever hold, and the queue waits for it."
    why_unseen = (
        "Nothing is in a wrong state: no step allocates, writes or reads, so there is nothing to judge, and a rule on "
        "progress can only hold for requests that are scheduled."
    )
    question = "A prompt of 40 tokens in a pool of 16 blocks that holds it by its window: 20 steps"
    roles = ("the bug: all tokens counted", "the fix: pull request 40946")
    columns = (
        Column(
            "all tokens counted",
            Parts(name="vllm, counts all tokens", kv_cache_manager=CountsAllTokens).overriding(VLLM),
            "Asks for 10 blocks in either group, as vLLM 0.19: 20, and the pool has 16.",
        ),
        Column(
            "window counted",
            "vllm",
            "Asks for 10 blocks and for the 5 that a window of 8 and a step of 8 hold, as vLLM since 0.20.0.",
        ),
    )
    settings = settings(num_blocks=17, groups=GROUPS, max_num_batched_tokens=8)
    num_steps = 20
    experiments: Mapping[str, Experiment] = {"larger than the pool": TooLarge()}
    guide = (
        GuideStop(
            "All 16 blocks are free. Left, A asks for 20: 10 in the full group, and 10 in the window group, which "
            "would never hold more than 5. A waits.",
            StepStarted,
        ),
        GuideStop(
            "Right, A is admitted, and computes 8 tokens in each step.",
            RequestScheduled,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "Right, the window has moved on: its first blocks are free, and the next chunk uses them.",
            BlockFreed,
            lambda event: event.reason == "window",
        ),
        GuideStop("Right, A has ended. Left, nothing has moved.", RequestFinished, lambda event: event.request_id == 0),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Add the long prompt and a short one, and take num_steps steps."""
        lab.add(token_ids=range(100, 140), max_tokens=2)
        lab.add(token_ids=range(5), max_tokens=2)
        for _ in range(self.num_steps):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count finished requests, and steps without progress."""
        return {
            "requests finished": num_finished(lab),
            "free blocks": len(lab.snapshot().free_queue),
            "steps without progress": num_idle_steps(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if requests wait and no step computes a token."""
        return measured["requests finished"] < 2 and measured["steps without progress"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the end of the first step, if it scheduled nothing with all blocks free."""
        if num_finished(lab):
            return None
        moment = moment_of(lab, StepEnded)
        assert moment is not None
        return wrong_at(lab, moment, "The step is over, and nothing was scheduled: A waits in an empty pool.")

    def opening(self, lab: Lab) -> None:
        """Play as many steps as both columns take."""
        lab.add(token_ids=range(100, 140), max_tokens=2)
        lab.add(token_ids=range(5), max_tokens=2)
        for _ in range(6):
            lab.step()

    def answer(self, table: Table) -> str:
        """State how much is free while nothing moves."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"With all {wrong['free blocks']} blocks free, {wrong['steps without progress']} of {self.num_steps} steps "
            f"compute nothing, and the short request behind waits too: {wrong['requests finished']} of 2 finish, "
            f"instead of {right['requests finished']}. The report's title is about prompts that exceed the capacity; "
            f"the one that hangs here fits."
        )


SCENARIO = NeverAdmitted()
