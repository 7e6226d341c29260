"""vLLM issue 57610: a window that keeps the run of one boundary, and a prompt that diverges just before it.

With retention_interval 0, vLLM's default since 0.29.0, a sliding-window group keeps the blocks that a hit at the
prompt's last boundary needs. A prompt that diverges inside the last alignment unit asks for the boundary before: its
run was never kept, so that the hit of all groups is 0. Pull request 57613 keeps one unit more. (The hits of columns
"interval 0" and "dense", and those of a second edit, are what vLLM 0.32's own scheduler finds.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.config import GroupSpec
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockCached, PrefixHit, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
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


class OneUnitMore(SlidingWindowGroup):
    """Pull request 57613: the run below a boundary is longer by one alignment unit."""

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True also for a block that is one alignment unit before one that is worth caching."""
        unit = self._config.scheduler_block_size // self.block_size
        return super().is_worth_caching(request, index) or super().is_worth_caching(request, index + unit)


class EveryBlock(SlidingWindowGroup):
    """Dense retention, vLLM's default until 0.28.0 (52216 changed it)."""

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True: these groups need every block for some hit."""
        return True


class Divergences(Experiment):
    """A prompt, and prompts that share 15, 16 ... 22 of its tokens; each pair has tokens of its own."""

    columns = (
        Column(
            "interval 0",
            "vllm",
            "Keeps the run before the last boundary, as vLLM since 0.29.0: a prompt that ends sooner hits nothing.",
        ),
        Column(
            "57613",
            Parts(name="vllm + 57613", sliding_window_group=OneUnitMore).overriding(VLLM),
            "Keeps one unit more: the boundary before the last one can be hit, and none before that.",
        ),
        Column(
            "dense",
            Parts(name="vllm, dense", sliding_window_group=EveryBlock).overriding(VLLM),
            "Keeps every block of the window group, as vLLM until 0.28.0: each boundary can be hit.",
        ),
    )
    settings = settings(num_blocks=400, groups=(GroupSpec(4), GroupSpec(2, "sliding_window", 8)), retention_interval=0)
    num_tokens = 22
    shared = tuple(range(15, 23))
    """Tokens that the second prompt shares with the first one."""

    def play(self, lab: Lab) -> None:
        """Run each pair."""
        for number, shared in enumerate(self.shared):
            tokens = range(1000 * number, 1000 * number + self.num_tokens)
            lab.generate([tokens], max_tokens=1)
            lab.generate([extended(tokens, shared)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return each second prompt's hit in tokens, and the window blocks that the first prompt leaves in the map."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1::2]
        kept = [event for event in events_of(lab, BlockCached) if event.request_id == 0 and event.group == 1]
        return {
            **{f"hit, {shared} shared": hit for shared, hit in zip(self.shared, hits, strict=True)},
            "window blocks kept": len(kept),
        }


class AsMeasured(Divergences):
    """The report's sizes: prompts of 4100 and 4110 tokens whose last five tokens differ."""

    question = "Blocks of 32 and 16, a window of 1024, the last five tokens edited: how long is the hit?"
    settings = settings(
        num_blocks=1600,
        groups=(GroupSpec(32), GroupSpec(16, "sliding_window", 1024)),
        retention_interval=0,
        max_num_batched_tokens=8192,
    )
    lengths = (4100, 4110)

    def play(self, lab: Lab) -> None:
        """Run both prompts, each with its edit after it."""
        for length in self.lengths:
            tokens = range(10_000 * length, 10_000 * length + length)
            lab.generate([tokens], max_tokens=1)
            lab.generate([extended(tokens, length - 5)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the hits of the edited prompts."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1::2]
        return {f"hit of {length}": hit for length, hit in zip(self.lengths, hits, strict=True)}

    def answer(self, table: Table) -> str:
        """State the report's two figures."""
        sparse, fixed = table["interval 0"], table["57613"]
        return (
            f"In the report's sizes the edited prompt of 4100 tokens hits {sparse['hit of 4100']} and that of 4110 "
            f"{sparse['hit of 4110']}, as reported; with the fix {fixed['hit of 4100']} and {fixed['hit of 4110']}."
        )


class Again(Divergences):
    """The same edit a second time: the groups' disagreement is remembered."""

    question = "Edits that share 17 tokens, one after the other: how long are their hits?"
    num_edits = 3

    def play(self, lab: Lab) -> None:
        """Run a prompt, and three edits of it that diverge at the same token."""
        tokens = range(self.num_tokens)
        lab.generate([tokens], max_tokens=1)
        for number in range(self.num_edits):
            lab.generate([extended(tokens, 17, number)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the hit of each edit."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1:]
        return {f"edit {number}": hit for number, hit in enumerate(hits, 1)}

    def answer(self, table: Table) -> str:
        """State that the miss comes once."""
        first, second, third = table["interval 0"].values()
        return (
            f"Seen here and in vLLM 0.32's own scheduler: the miss comes once, for the run of a boundary at which the "
            f"groups disagreed is kept. Edits at the same token hit {first}, then {second} and {third} tokens."
        )


class SparseRetention(Divergences, Scenario):
    """The sparse rule is the broken column, the proposed fix the fixed one, dense retention the reference."""

    id = "vllm-57610"
    title = "One boundary's run is kept, and a prompt that diverges before it hits nothing"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="57610",
        title=(
            "[Bug]: Sliding-window prefix cache misses entirely when a request diverges inside the last alignment "
            "block of a cached prompt (sparse retention keeps a tail exactly `need` blocks long)"
        ),
        state="open",
        as_of="2026-09-18",
        seen_in="0.29.0 with vllm-metal; the rule is the same in code of 0.33.0",
        needs=(
            "a model with full and sliding-window layers (Gemma 4 in the report), with prefix caching",
            "prefix_cache_retention_interval 0, the default since 0.29.0, or above 0",
            "a prompt that shares a cached one up to a token inside its last alignment unit",
        ),
    )
    kind = "window"
    breaks = "A prompt that diverges in the last alignment unit of a cached one hits 0 tokens instead of all before it."
    why_unseen = "A shorter hit than possible breaks no rule: all tokens are right, and computed again."
    claim = (
        "With retention_interval 0 a request that diverges inside the last aligned block of a cached prompt hits "
        "nothing; keeping one alignment unit more below each boundary (57613) mends it."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "That such a request hits nothing follows from the code. That one unit more mends it holds for the last "
            "unit alone: a prompt that diverges one unit earlier hits nothing then."
        ),
        passages=(
            CodePassage(
                version="vllm 0.29.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=1066,
                text="end - need",
                says="The run that is kept is as long as a hit at its own boundary needs, and no longer.",
            ),
            CodePassage(
                version="vllm 0.33.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=1143,
                text="end - need",
                says="The rule is unchanged.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 57613",
                says=(
                    "The proposed change, open as of 2026-09-18: it adds the blocks of one alignment unit below each "
                    "boundary, and no more."
                ),
            ),
        ),
    )
    question = "A prompt of 22 tokens, and one that shares 15 to 22 of them: how long is the hit?"
    roles = ("the rule: retention_interval 0", "the proposed fix: pull request 57613")
    guide = (
        GuideStop(
            "The prompt of 22 tokens ends its own hit at 20, the last boundary of both groups. Left, the window group "
            "keeps 4 blocks before it, tokens 12 to 20; right, two blocks more, from 8.",
            BlockCached,
            lambda event: event.group == 1,
        ),
        GuideStop(
            "The prompt is computed, and its blocks are free. The full group has five in the map, on both sides.",
            StepEnded,
        ),
        GuideStop(
            "The edited prompt shares 17 tokens: the full group has 16 of them. The window group needs tokens 8 to 16. "
            "Left, 8 to 12 were never kept, and the hit of both is 0. Right, it is 16.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Later. A second edit at the same place hits 16 on both sides: the boundary at which the groups disagreed "
            "was kept when the first edit was computed.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide[:3])
    experiments: Mapping[str, Experiment] = {"as measured": AsMeasured(), "again": Again()}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a prompt that diverges inside the last unit hits nothing."""
        return any(measured[f"hit, {shared} shared"] == 0 for shared in range(16, 20))

    def opening(self, lab: Lab) -> None:
        """Run the prompt, and an edit that shares 17 tokens."""
        lab.generate([range(self.num_tokens)], max_tokens=1)
        lab.generate([extended(range(self.num_tokens), 17)], max_tokens=1)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a second edit at the same place."""
        return (lambda lab: lab.add(token_ids=extended(range(self.num_tokens), 17, 1), max_tokens=1), Lab.step)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first look-up of a diverging prompt that finds nothing, where the fix would find a unit."""
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id in range(3, 11, 2) and not event.num_tokens)
        sentence = "The full group has 16 tokens; the window group kept no run that ends there: the hit of both is 0."
        return None if moment is None else wrong_at(lab, moment, sentence)

    def answer(self, table: Table) -> str:
        """State the rows as tuples, and what the fix costs and leaves."""
        sparse, fixed, dense = table.columns.values()
        kept = "window blocks kept"
        return (
            f"Hits at divergences from 15 to 22: {_hits(sparse)} with interval 0, {_hits(dense)} dense. The fix gives "
            f"{_hits(fixed)}: the cliff moves by one unit, from 20 to 16, and stays. It keeps {fixed[kept]} window "
            f"blocks a prompt instead of {sparse[kept]}; dense keeps {dense[kept]}."
        )


def _hits(measured: Mapping[str, int]) -> str:
    return ", ".join(str(count) for row, count in measured.items() if row.startswith("hit"))


def extended(tokens: range, num_shared: int, number: int = 0) -> list[int]:
    """Return a prompt with the first num_shared tokens, then eight of its own."""
    own = 50_000_000 + 100 * (tokens.start + number)
    return [*tokens[:num_shared], *range(own, own + 8)]


SCENARIO = SparseRetention()
