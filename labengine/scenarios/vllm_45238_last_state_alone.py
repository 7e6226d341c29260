"""vLLM issue 45238: a hybrid model keeps the state at a prompt's last boundary, but siblings need an earlier one.

A state is left only where a chunk ends. If that is after the tokens that prompts share, the state group has nothing for
the next prompt, and the hit of all groups is 0, although attention has the shared blocks. A scheduler that notes where
the groups disagreed ends a chunk there: the second prompt misses, and later ones hit. The hits of column "junction" are
the same as those of vLLM 0.32.0's own scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
    Table,
)

FIRST_OWN = 1_000_000


class NotesNoJunction(VllmKVCacheManager):
    """Chunks end only at a prompt's last boundary, regardless of where prompts diverge."""

    def note_shared_prefix(self, request: Request, hit: Hit) -> None:
        """Note nothing: the next prompt finds as little as this one where the groups disagreed."""


class Siblings(Experiment):
    """Prompts that share their first tokens, one after the other."""

    columns = (Column("vllm", NotesNoJunction), Column("vllm"))
    num_tokens = 14
    num_shared = 10
    num_prompts = 5

    def play(self, lab: Lab) -> None:
        """Run the prompts."""
        for number in range(self.num_prompts):
            lab.generate([self.prompt(number)], max_tokens=1)

    def prompt(self, number: int) -> list[int]:
        """Return the shared tokens, then unshared ones."""
        own = FIRST_OWN * (number + 1)
        return [*range(self.num_shared), *range(own, own + self.num_tokens - self.num_shared)]

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return each prompt's hit in tokens."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)]
        return {f"hit of prompt {number}": hit for number, hit in enumerate(hits, 1)}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        hits = (_listed(list(column.values())) for column in table.columns.values())
        return dict(zip(("alone", "junction"), hits, strict=True))


class SharedPastTheBoundary(Siblings):
    """Three more shared tokens, which include the last boundary."""

    num_shared = 13


class AsMeasured(Siblings):
    """The report's sizes: blocks of 528, prompts of 2200 tokens that share 1500."""

    num_tokens = 2200
    num_shared = 1500


class LastStateAlone(Siblings, Scenario):
    """The broken column has the last boundary alone, the fixed one vLLM 0.32.0's junction."""

    experiments = {"13 shared": SharedPastTheBoundary(), "as measured": AsMeasured()}

    def opening(self, lab: Lab) -> None:
        """Run three prompts, three steps each; in the fixed column the second one needs one more step."""
        for number in range(3):
            lab.add(token_ids=self.prompt(number), max_tokens=2)
            lab.step(3)


def _listed(hits: list[int]) -> str:
    return ", ".join(map(str, hits))
