"""vLLM pull request 57841, after issue 45388: landed loads behind a request that waits for blocks.

A request whose KV is being loaded holds blocks but does not run. From 0.18.0 to 0.30.0 vLLM kept it in a queue of
skipped requests, and its load counted as landed only when the scan reached it. The scan ends at the first request that
does not fit. If nothing runs, and loads behind this request hold the blocks that it needs, nothing ever moves. Pull
request 44560 (0.23.0) keeps loads from taking blocks that earlier ones need, which fixes the case of issue 45388.
45406, closed, would have continued the scan; 57841 begins no load behind a request without blocks. Since 0.31.0
requests that hold blocks have a separate queue, which is scanned first: an alternative that 57841's review proposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.events import ForwardRan, StepStarted
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    Scenario,
)

URGENT = ("priority", "high")
"""Extra key of a request that is scanned before all others; it stands for priority scheduling."""


BIG, LOADED, SMALL = range(1000, 1040), range(2000, 2102), range(3000, 3003)
"""Prompts of A, B and C."""


class BusyTier(Delayed):
    """A tier whose loads arrive a step late. It once answers "ask again" for A's prompt, which it is storing."""

    was_asked = False

    def is_storing(self, request: Request) -> bool:
        """Return True for the first question about A's prompt."""
        was_asked, self.was_asked = self.was_asked, self.was_asked or request.token_ids[0] == BIG.start
        return self.was_asked and not was_asked


class AsksAgain(TokenBudgetScheduler):
    """vLLM's scan: a request for which the tier answers "ask again" is skipped and holds no blocks."""

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        """Skip a request whose KV is being stored."""
        tier = self.external.connector
        return isinstance(tier, BusyTier) and tier.is_storing(request)


class ReachedByTheScan(AsksAgain):
    """One queue of skipped requests, as in 0.30.0: a load is taken up only when the scan reaches it."""

    def take_arrived(self) -> None:
        """Take up landed loads, unless a request skipped before them does not fit."""
        if not self._is_stuck():
            super().take_arrived()

    def _is_stuck(self) -> bool:
        if not self.waiting or not self.external.loading:
            return False
        head, first_load = self.waiting[0], next(iter(self.external.loading))
        is_scanned_first = head.request_id < first_load.request_id or URGENT in head.extra_keys
        return is_scanned_first and not self.manager.can_admit(head, self.manager.find_prefix(head), 0, 0)


class ScansOn(ReachedByTheScan):
    """Pull request 45406: while nothing runs, the scan continues after a request that does not fit."""

    def take_arrived(self) -> None:
        """Take up all landed loads if nothing runs."""
        if self.running:
            super().take_arrived()
        else:
            super(ReachedByTheScan, self).take_arrived()


class NoLoadBehind(ReachedByTheScan):
    """Pull request 57841: no load begins behind a skipped request that holds no blocks."""

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        """Skip also a request that would begin a load behind one that holds nothing."""
        if super().skips(request, skipped):
            return True
        is_behind = any(not other.has_blocks for other in skipped)
        return is_behind and self.match_external(request, self.manager.find_prefix(request)) > 0


class Stranded(Experiment):
    """A is skipped once, and B loads 100 tokens behind it; then A needs more blocks than are free."""

    columns = (
        Column("vllm", ReachedByTheScan),
        Column("vllm", AsksAgain),
        Column("vllm", ScansOn),
        Column("vllm", NoLoadBehind),
    )
    num_steps = 30

    def lab(self, column: str, model: str = "simulated") -> Lab:
        """Return an empty lab of one column whose tier holds B's prompt and is storing A's."""
        lab = self.column(column).lab(model, {**self.settings, "external": BusyTier(HostStore())})
        lab.fill_external(token_ids=LOADED)
        return lab

    def play(self, lab: Lab) -> None:
        """Add A and B, then C, which needs one block; take a bounded number of steps."""
        self.begin(lab)
        for _ in range(self.num_steps - 1):
            lab.step()

    def begin(self, lab: Lab) -> None:
        """Take the step in which A is skipped and B's load begins, then add C."""
        for prompt in (BIG, LOADED):
            lab.add(token_ids=prompt, max_tokens=2)
        lab.step()
        lab.add(token_ids=SMALL, max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count finished requests, steps without a token, and free blocks at the end."""
        num_computing = len(events_of(lab, ForwardRan))
        return {
            "requests finished": num_finished(lab),
            "steps that compute": num_computing,
            "steps that compute nothing": len(events_of(lab, StepStarted)) - num_computing,
            "free blocks at the end": len(lab.snapshot().free_queue),
        }


class HeadAfterLoad(Stranded):
    """45406's own case: the large request arrives after the load has begun, and its priority puts it first."""

    def begin(self, lab: Lab) -> None:
        """Begin the load, then add the large request and, behind it, the small one."""
        lab.add(token_ids=LOADED, max_tokens=2)
        lab.step()
        lab.add(token_ids=BIG, max_tokens=2, extra_keys=dict([URGENT]))
        lab.add(token_ids=SMALL, max_tokens=1)


class StrandedLoads(Stranded, Scenario):
    """The broken column has one queue of skipped requests; the fixed one keeps loads apart, as the edition does."""

    experiments = {"later head": HeadAfterLoad()}

    def opening(self, lab: Lab) -> None:
        """Play until B has landed, or should have."""
        self.begin(lab)
        lab.step()
