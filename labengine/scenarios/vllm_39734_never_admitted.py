"""vLLM issue 39734, fixed by pull request 40946: admission counts a window group for the complete prompt.

Since 0.19.0 vLLM admits a request only if its whole prompt fits (scheduler_reserve_full_isl). The pool was sized for
the window, because blocks that the window has passed are freed after each chunk. Admission ignored this and asked for
blocks of the window group for every token. Such a prompt waits forever in an empty pool, and so do all requests behind
it.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.lab import Lab
from labengine.scenarios.counts import num_finished, num_idle_steps
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
    Table,
)


class CountsAllTokens(VllmKVCacheManager):
    """Admission as if no group had a window."""

    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        """Return True if every group has blocks for all tokens at once, which a window group never holds."""
        needed = sum(
            group.num_blocks_to_admit(ids, hit.num_tokens + num_external, -(-request.num_tokens // group.block_size))
            for group, ids in zip(self.groups, hit.block_ids, strict=True)
        )
        return needed + num_spare <= self.pool.num_free


class RefusesNothing(TokenBudgetScheduler):
    """Accepts any request at `add`."""

    def refuse_what_never_fits(self, request: Request) -> None:
        """Refuse nothing: queue even a request that the whole pool cannot hold."""


class TooLarge(Experiment):
    """The issue's title taken literally: a prompt too large for the whole pool, and a short request behind it."""

    columns = (Column("vllm", RefusesNothing), Column("vllm"))
    figures = {
        "requests taken": lambda lab: len(lab.snapshot().requests),
        "requests finished": num_finished,
    }

    def play(self, lab: Lab) -> None:
        """Add a prompt of 40 tokens, which may be refused, and one of 5."""
        for num_tokens in (40, 5):
            try:
                lab.add(token_ids=range(num_tokens), max_tokens=2)
            except ValueError:
                continue
        for _ in range(20):
            lab.step()

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"behind": table["queued"]["requests taken"] - 1}


class NeverAdmitted(Scenario):
    """A long prompt that fits by its window, and a short request behind it."""

    columns = (Column("vllm", CountsAllTokens), Column("vllm"))
    num_steps = 20
    experiments = {"larger than the pool": TooLarge()}
    figures = {
        "requests finished": num_finished,
        "free blocks": lambda lab: len(lab.snapshot().free_queue),
        "steps without progress": num_idle_steps,
    }

    def play(self, lab: Lab) -> None:
        """Add the long prompt and a short one, and take num_steps steps."""
        lab.add(token_ids=range(100, 140), max_tokens=2)
        lab.add(token_ids=range(5), max_tokens=2)
        for _ in range(self.num_steps):
            lab.step()

    def opening(self, lab: Lab) -> None:
        """Play the steps that both columns take."""
        lab.add(token_ids=range(100, 140), max_tokens=2)
        lab.add(token_ids=range(5), max_tokens=2)
        for _ in range(6):
            lab.step()
