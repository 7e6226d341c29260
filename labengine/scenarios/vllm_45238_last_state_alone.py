"""vLLM issue 45238: a hybrid model keeps the state at a prompt's last boundary, and siblings ask for an earlier one.

A state is left only where a chunk ends. If that is behind the tokens that prompts share, the state group has nothing
for the next prompt, and the hit of all groups is 0, although attention has the shared blocks. A scheduler that notes
where the groups disagreed ends a chunk there: the second prompt misses, and those after it hit. (The hits of column
"junction" are those that vLLM 0.32.0's own scheduler finds.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    Table,
    moment_of,
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
        Column(parts=Parts(name="vllm, last boundary alone", kv_cache_manager=NotesNoJunction).overriding(VLLM)),
        Column(parts="vllm"),
    )
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

    num_shared = 13

    def answer(self, table: Table) -> str:
        """State the hits."""
        alone = list(table["last boundary alone"].values())
        return f"With 13 shared tokens the last boundary, 12, is one of them: the prompts hit {_listed(alone)}."


class AsMeasured(Siblings):
    """The report's sizes: blocks of 528, prompts of 2200 tokens that share 1500."""

    num_tokens = 2200
    num_shared = 1500

    def answer(self, table: Table) -> str:
        """State the hits of both columns."""
        alone, junction = (list(column.values()) for column in table.columns.values())
        return f"In the report's sizes the prompts hit {_listed(alone)}; with the junction {_listed(junction)}."


class LastStateAlone(Siblings, Scenario):
    """The last boundary alone is the broken column, vLLM 0.32.0's junction the fixed one."""

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
