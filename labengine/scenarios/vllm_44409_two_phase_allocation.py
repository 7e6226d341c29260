"""vLLM pull request 44409: two groups, one pool, and a block that was given out twice.

Each KV-cache group has its own block table, and all take their blocks from one pool. A cache hit is only a list of ids
until it is touched: the blocks are still in the free queue. When a request is admitted group by group, the first one's
fresh blocks, which the external tier is to fill, can be the second one's hits. So it was in vLLM 0.23; pull request
33775 had gone for it before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.events import BlockEvicted, BlocksLoaded, BlockTouched, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.experiment import Experiment
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import FirstWrong, GuideStop, Scenario, sentences, symptom, wrong_at
from labengine.scenarios.verdict import Table
from labengine.scenarios.vllm_44409_columns import second_entries
from labengine.scenarios.vllm_44409_experiments import (
    Conversations,
    Preempted,
    PreemptedThreeGroups,
    PrefixInTwoPlaces,
    ThreeGroups,
)


class TwoPhaseAllocation(PrefixInTwoPlaces, Scenario):
    """The order before the fix, the fixed order, and the two other pull requests for the same crash."""

    id = "vllm-44409"
    title = "Two groups, one pool: a cache hit is allocated again before it is touched"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="44409",
        title="[Bugfix] Two-phase KV allocation for cross-group prefix cache hits (supersedes #33775)",
        state="merged",
        as_of="2026-09-11",
        seen_in="code of 0.22.0 and 0.23.0",
        mended_in="0.24.0 (44409)",
        needs=(
            "a hybrid model: KV-cache groups that share a pool",
            "a connector with external tokens behind a local hit (OffloadingConnector in issue 43884)",
        ),
    )
    claim = (
        "In a hybrid model with a local prefix hit and external KV, one group's blocks for the external tokens can be "
        "another group's hit blocks: one physical block in two tables, and a failing assert in the offloading "
        "connector (issue 43884). Touching the hits of all groups first mends it."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.23 each group touches its hits and takes its fresh blocks before the next group does. Since 0.24.0 "
            "the hits of all groups come first."
        ),
        passages=(
            CodePassage(
                version="vllm 0.23.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=248,
                text="allocated_blocks = self.block_pool.get_new_blocks(",
                says="The call for one group touches its hits, and takes its fresh blocks right after.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/core/kv_cache_coordinator.py",
                line=227,
                text="manager.allocate_external_computed_blocks(",
                says="A second loop over the groups takes the blocks for external tokens.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 44409",
                says=(
                    "The pull request takes the intent of 33775 over, but touches no hit that a window skips; without "
                    "the clamp of 44329 its load test had no assertion any more."
                ),
            ),
        ),
    )
    kind = "double allocation"
    breaks = "One physical block stands in the tables of two KV-cache groups, and each overwrites the other's KV."
    wrong_figure = "blocks in two tables"
    seen_by = ("one_entry", "write", "read")
    roles = ("the bug: group by group", "the fix: pull request 44409, all hits first")
    guide = (
        GuideStop(
            "The long prompt finds 8 tokens in the pool: two blocks in either group, all four of them still in the "
            "free queue, at its head.",
            PrefixHit,
            lambda event: event.num_tokens > 0,
        ),
        GuideStop(
            "Left, the full group touches its two hits, and takes two fresh blocks at once for what the tier holds. "
            "They were the window group's hits: their content is forgotten.",
            BlockEvicted,
        ),
        GuideStop(
            "Left, the window group touches its hits as if nothing had happened: ref 2, and one block stands in two "
            "tables.",
            BlockTouched,
            lambda event: event.ref_count == 2,
        ),
        GuideStop(
            "Right, all four hits were touched before anybody took a fresh block. The tier fills what was taken; on "
            "the left the window group will read what was loaded for the full one.",
            BlocksLoaded,
        ),
        GuideStop(
            "Later. The next prompt begins like the long one. Left: nothing of it is found. Right: all of its full "
            "blocks are.",
            PrefixHit,
        ),
    )
    sentences = sentences(guide[:4])
    experiments: Mapping[str, Experiment] = {
        "three groups": ThreeGroups(),
        "preempted": Preempted(),
        "preempted, three groups": PreemptedThreeGroups(),
        "conversations": Conversations(),
    }

    def opening(self, lab: Lab) -> None:
        """Prepare pool and tier, and run the long prompt."""
        self.play_long(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a longer prompt with the same beginning."""
        return (lambda lab: lab.add(token_ids=self.prompts(lab)[1], max_tokens=1), Lab.step)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the touch that put a block into a second table.

        (The eviction before it took no block from a request yet.)
        """
        for moment, event in second_entries(lab):
            return wrong_at(
                lab,
                moment,
                f"Group {event.group} touches block {event.block_id} as its hit, but another group of the same request "
                f"has just taken it: one block in two tables, ref {event.ref_count}.",
            )
        return None

    def symptom(self, *, is_late: bool = False) -> str:
        """Return the error of a tier that checks the hits, with the old order: the assert of issue 43884.

        is_late: the tier delivers a step later, as vLLM's does.
        """
        tier = Delayed(HostStore()) if is_late else HostStore()
        with self.columns[0].lab("simulated", {**self.settings, "external": tier}) as lab:
            return symptom(lambda: self.play(lab))

    def answer(self, table: Table) -> str:
        """State where the defect was noticed, its silent effect, and what the clamp changes."""
        broken, clamped, loaded = table["interleaved"], table["clamp"], "blocks loaded for the long prompt"
        return (
            f"A tier that looks at the hits ends it ({self.symptom()}); with one that does not, "
            f"{broken['blocks misread']} blocks are misread in silence. The clamp (44329, closed without a merge; "
            f"played by its description) takes away the assert and not the cause: {clamped['blocks in two tables']} "
            f"blocks still stand in two tables, {clamped['blocks misread']} are misread, and {clamped[loaded]} are "
            f"loaded instead of {broken[loaded]}, for what the pool held is not reused."
        )

    def _texts(self, column: str, model: str) -> tuple[str, ...]:
        """Return the long prompt's text alone: the others are one word each."""
        with self.played(column, model) as lab:
            *_, long, _ = sorted(lab.snapshot().requests)
            return (lab.output(long).text,)


SCENARIO = TwoPhaseAllocation()
