"""vLLM issue 45238: a hybrid model keeps the state at a prompt's last boundary, and siblings ask for an earlier one.

A state is left only where a chunk ends. If that is behind the tokens that prompts share, the state group has nothing
for the next prompt, and the hit of all groups is 0, although attention has the shared blocks. A scheduler that notes
where the groups disagreed ends a chunk there: the second prompt misses, and those after it hit. (The hits of column
"junction" are those that vLLM 0.32.0's own scheduler finds.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.config import GroupSpec
from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import BlockCached, PrefixHit, SharedPrefixFound
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

FIRST_OWN = 1_000_000


class NotesNoJunction(VllmKVCacheManager):
    """Chunks end at a prompt's last boundary alone, wherever prompts part."""

    def note_shared_prefix(self, request: Request, hit: Hit) -> None:
        """Note nothing: where the groups disagreed, the next prompt finds as little as this one."""


class Siblings(Experiment):
    """Prompts that share their first tokens, one after the other."""

    columns = (
        Column(
            "last boundary alone",
            Parts(name="vllm, last boundary alone", kv_cache_manager=NotesNoJunction).overriding(VLLM),
            "Ends a chunk at the last boundary of each prompt, and leaves a state nowhere else.",
        ),
        Column(
            "junction",
            "vllm",
            "Also ends a chunk where attention hit more than the states, as vLLM 0.32.0: the next prompt hits there.",
        ),
    )
    settings = settings(num_blocks=100, groups=(GroupSpec(4), GroupSpec(4, "state")))
    num_tokens = 14
    num_shared = 10
    num_prompts = 5

    def play(self, lab: Lab) -> None:
        """Run the prompts."""
        for number in range(self.num_prompts):
            lab.generate([self.prompt(number)], max_tokens=1)

    def prompt(self, number: int) -> list[int]:
        """Return the shared tokens, and then tokens of its own."""
        own = FIRST_OWN * (number + 1)
        return [*range(self.num_shared), *range(own, own + self.num_tokens - self.num_shared)]

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return each prompt's hit in tokens."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)]
        return {f"hit of prompt {number}": hit for number, hit in enumerate(hits, 1)}


class SharedPastTheBoundary(Siblings):
    """Three more shared tokens: the last boundary is among them."""

    question = "Prompts of 14 tokens share 13 instead of 10: what do they hit?"
    num_shared = 13

    def answer(self, table: Table) -> str:
        """State the hits."""
        alone = list(table["last boundary alone"].values())
        return f"With 13 shared tokens the last boundary, 12, is one of them: the prompts hit {_listed(alone)}."


class AsMeasured(Siblings):
    """The report's sizes: blocks of 528, prompts of 2200 tokens that share 1500."""

    question = "Blocks of 528, prompts of 2200 tokens that share 1500: what do they hit?"
    settings = settings(num_blocks=100, groups=(GroupSpec(528), GroupSpec(528, "state")), max_num_batched_tokens=8192)
    num_tokens = 2200
    num_shared = 1500

    def answer(self, table: Table) -> str:
        """State the hits of both columns."""
        alone, junction = (list(column.values()) for column in table.columns.values())
        return f"In the report's sizes the prompts hit {_listed(alone)}; with the junction {_listed(junction)}."


class LastStateAlone(Siblings, Scenario):
    """The last boundary alone is the broken column, vLLM 0.32.0's junction the fixed one."""

    id = "vllm-45238"
    title = "The one state that is kept lies behind what prompts share"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="45238",
        title=(
            "[Bug]: Hybrid-model prefix caching silently drops to 0% when the align-mode Mamba checkpoint lands in "
            "request-unique tokens"
        ),
        state="open",
        as_of="2026-06-11",
        seen_in="the main branch at 16282a9c4, with Qwen3.5-4B",
        needs=(
            "a model with attention and state-space layers, whose states are cached in mode align",
            "prompts that share a prefix which ends before the last block boundary of each of them",
        ),
    )
    kind = "state"
    breaks = "Prompts whose first 8 tokens attention has cached hit 0 of them: no state was left there."
    why_unseen = "A shorter hit than possible breaks no rule: all tokens are right, and computed again."
    claim = (
        "In mode align each request leaves the state at its last block boundary alone. If that is among tokens that no "
        "other request has, all groups' hits are 0, in every later request too."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "That a prompt of one chunk leaves its last state alone, and that the next one then hits nothing in any "
            "group, is what vLLM 0.32.0 does. There it comes once for a shared prefix: the prompt that missed leaves a "
            "state where the groups disagreed."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=526,
                text="junction = request.shared_prefix_boundary",
                says="A chunk also ends where one group had a longer hit than all together.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 47782",
                says=(
                    "The pull request, of July 2026 and merged, says that 37898 brought this caching of shared "
                    "prefixes to mode align, and extends it to sparse retention."
                ),
            ),
        ),
    )
    question = "Five prompts of 14 tokens share 10 of them: what does each hit?"
    roles = ("a state at the last boundary alone", "and one where prompts part")
    guide = (
        GuideStop(
            "The first prompt's chunk ends at 12, the last boundary that an equal prompt can hit: its state is in the "
            "map there, and nowhere else.",
            BlockCached,
            lambda event: event.group == 1,
        ),
        GuideStop(
            "The second prompt shares 10 tokens. Attention has 8 of them; the one state, at 12, is of tokens that are "
            "not its own. Right, it is noted that the groups parted at 8.",
            SharedPrefixFound,
        ),
        GuideStop("So the hit of both groups is 0, on both sides.", PrefixHit, lambda event: event.request_id == 1),
        GuideStop(
            "Right, the second prompt's first chunk ends at 8, and leaves its state there.",
            BlockCached,
            lambda event: event.request_id == 1 and event.group == 1 and event.index == 1,
        ),
        GuideStop(
            "The third prompt: left, attention has 8 tokens again, the states none, and the hit is 0. Right, it is 8.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"13 shared": SharedPastTheBoundary(), "as measured": AsMeasured()}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if the third prompt hits nothing."""
        return measured["hit of prompt 3"] == 0

    def opening(self, lab: Lab) -> None:
        """Run three prompts, three steps each: in the fixed column the second one needs a step more."""
        for number in range(3):
            lab.add(token_ids=self.prompt(number), max_tokens=2)
            for _ in range(3):
                lab.step()

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the third prompt's look-up, if it finds nothing."""
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id == 2 and not event.num_tokens)
        sentence = (
            "Attention has 8 tokens of it, as it had of the prompt before; no state was left there: the hit is 0."
        )
        return None if moment is None else wrong_at(lab, moment, sentence)

    def answer(self, table: Table) -> str:
        """State the hits of both columns."""
        alone, junction = (list(column.values()) for column in table.columns.values())
        return (
            f"Five prompts that share 10 of 14 tokens hit {_listed(alone)} with the last boundary alone, and "
            f"{_listed(junction)} when a chunk also ends where the groups disagreed: the miss comes once."
        )


def _listed(hits: list[int]) -> str:
    return ", ".join(map(str, hits))


SCENARIO = LastStateAlone()
