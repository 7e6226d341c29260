"""vLLM issue 57610: a window that keeps the run of one boundary, and a prompt that diverges just before it.

With retention_interval 0, vLLM's default since 0.29.0, a sliding-window group keeps the blocks that a hit at the
prompt's last boundary needs. A prompt that diverges inside the last alignment unit needs the previous boundary, whose
run was never kept, so the hit of all groups is 0. Pull request 57613 keeps one more unit. The hits of columns
"interval 0" and "dense", and those of a second edit, are the same as those of vLLM 0.32's own scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.events import BlockCached, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
    Table,
)


class OneUnitMore(SlidingWindowGroup):
    """Pull request 57613: the run before a boundary is longer by one alignment unit."""

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True also for a block one alignment unit before one worth caching."""
        unit = self._config.scheduler_block_size // self.block_size
        return super().is_worth_caching(request, index) or super().is_worth_caching(request, index + unit)


class EveryBlock(SlidingWindowGroup):
    """Dense retention, vLLM's default until 0.28.0 (52216 changed it)."""

    def is_worth_caching(self, request: Request, index: int) -> bool:
        """Return True: these groups need every block for some hit."""
        return True


class Divergences(Experiment):
    """A prompt, and prompts that share 15, 16 ... 22 of its tokens; each pair uses different tokens."""

    columns = (Column("vllm"), Column("vllm", OneUnitMore), Column("vllm", EveryBlock))
    num_tokens = 22
    shared = tuple(range(15, 23))
    """Numbers of tokens that the second prompt shares with the first."""

    def play(self, lab: Lab) -> None:
        """Run each pair."""
        for number, shared in enumerate(self.shared):
            tokens = range(1000 * number, 1000 * number + self.num_tokens)
            lab.generate([tokens], max_tokens=1)
            lab.generate([extended(tokens, shared)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return each second prompt's hit in tokens, and the window blocks that first prompts leave in the map."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1::2]
        kept = [event for event in events_of(lab, BlockCached) if event.request_id == 0 and event.group == 1]
        return {
            **{f"hit, {shared} shared": hit for shared, hit in zip(self.shared, hits, strict=True)},
            "window blocks kept": len(kept),
        }


class AsMeasured(Divergences):
    """The report's sizes: prompts of 4100 and 4110 tokens. That the edit begins five tokens before the end is ours."""

    lengths = (4100, 4110)

    def play(self, lab: Lab) -> None:
        """Run both prompts, each followed by its edit."""
        for length in self.lengths:
            tokens = range(10_000 * length, 10_000 * length + length)
            lab.generate([tokens], max_tokens=1)
            lab.generate([extended(tokens, length - 5)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the hits of the edited prompts."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1::2]
        return {f"hit of {length}": hit for length, hit in zip(self.lengths, hits, strict=True)}


class Again(Divergences):
    """The same edit a second time: the groups' disagreement is remembered."""

    num_edits = 3

    def play(self, lab: Lab) -> None:
        """Run a prompt, then three edits of it that diverge at the same token."""
        tokens = range(self.num_tokens)
        lab.generate([tokens], max_tokens=1)
        for number in range(self.num_edits):
            lab.generate([extended(tokens, 17, number)], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the hit of each edit."""
        hits = [hit.num_tokens for hit in events_of(lab, PrefixHit)][1:]
        return {f"edit {number}": hit for number, hit in enumerate(hits, 1)}


class SparseRetention(Divergences, Scenario):
    """The broken column has the sparse rule, the fixed one the proposed fix; dense retention is the reference."""

    experiments = {"as measured": AsMeasured(), "again": Again()}

    def opening(self, lab: Lab) -> None:
        """Run the prompt, then an edit that shares 17 tokens."""
        lab.generate([range(self.num_tokens)], max_tokens=1)
        lab.generate([extended(range(self.num_tokens), 17)], max_tokens=1)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a second edit at the same place."""
        return (lambda lab: lab.add(token_ids=extended(range(self.num_tokens), 17, 1), max_tokens=1), Lab.step)

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return dict(zip(("sparse", "fixed", "all"), map(_hits, table.columns.values()), strict=True))


def _hits(measured: Mapping[str, int]) -> str:
    return ", ".join(str(count) for row, count in measured.items() if row.startswith("hit"))


def extended(tokens: range, num_shared: int, number: int = 0) -> list[int]:
    """Return a prompt with the first num_shared tokens, then eight others."""
    own = 50_000_000 + 100 * (tokens.start + number)
    return [*tokens[:num_shared], *range(own, own + 8)]
