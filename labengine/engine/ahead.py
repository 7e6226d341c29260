"""Scheduling overlapped with the forward pass: while the device computes a step, the host prepares the next one.

    device   forward N ............ | sample N |            forward N+1 .........
    host     launch | update N, schedule N+1 |  | fill in, launch | update N+1, schedule N+2

When update N runs, the step's tokens are unknown. Almost nothing depends on what they are: who has reached its length
is known, hashes cover computed tokens only, and blocks are counted. So UNSAMPLED stands in their places, and an eos is
taken for unlikely. Then the tokens come, and are filled in; if one of them ends its request after all, or a decision
has asked for a token too early, everything anticipated is taken back, and the step ends as any other.

Nobody can tell the difference but by the clock. Events are held back until their time has come. The next step's
beginning is a section of the journal of its own: whoever looks between steps, or changes something, has it taken back.
Only a part that looks in the middle of its own decision gets an error: there is no state to show. From then on nothing
is anticipated, whatever the part has made of that error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.unsampled import UNSAMPLED, UnsampledError
from labengine.engine.engine import Engine, StepReport
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.runner import Runner
from labengine.events import Event, TokenSampled
from labengine.hooks import Hooks
from labengine.snapshot import Snapshot

LOOKED_TOO_EARLY = "a part looked at the engine in the middle of a decision made ahead of time"


def overlap_refusal(parts: Parts, *, has_external: bool) -> str | None:
    """Why these parts cannot schedule a step before the tokens of the one before are there; None when they can."""
    if has_external:
        return "what the external tier loads and saves cannot be anticipated"
    if parts.kv_cache_manager.needs_tokens_to_allocate:
        return f"edition {parts.name} hashes tokens when it allocates their blocks, before they are sampled"
    return None


@dataclass(slots=True)
class Ahead:
    """What was done before its time, from the end of one step on."""

    num_used_blocks: int
    """As of now for those who ask: what is anticipated does not count."""
    num_subscribed: int
    """Listeners that have come so far: for later ones no events were held."""
    is_deciding: bool = True
    """While the parts are at work on it, it cannot be taken back under their hands."""
    finished: tuple[int, ...] = ()
    told_by_update: list[Event] = field(default_factory=list)
    num_used_after_update: int = 0
    next_section: int = 0
    """Where the journal goes on with the next step."""
    plan: StepPlan | None = None
    """The next step's; None when nobody is left to run."""
    unfilled: list[tuple[ScheduledRequest, Request]] = field(default_factory=list)
    """Parts of the plan that compute a token which is still to be sampled."""
    told_by_schedule: list[Event] = field(default_factory=list)
    peak_used_blocks: int = 0


class OverlappedEngine(Engine):
    """An engine whose whole steps overlap. Its phases(), and all that can be looked at, are those of any engine.

    A listener is told of a step's end a moment late, when all of it has happened: it may follow events, and look at
    the engine through `snapshot`, but not at the core itself (in whose requests, in the middle of a step, UNSAMPLED may
    stand). See choose_engine for where it is used.
    """

    anticipates = True
    _ahead: Ahead | None = None
    gave_up = ""
    """Why nothing is anticipated any more; empty while it is."""

    def __init__(
        self, config: EngineConfig, runner: Runner, parts: Parts, hooks: Hooks, connector: Connector | None = None
    ) -> None:
        refusal = overlap_refusal(parts, has_external=connector is not None)
        if refusal is not None:
            raise ConfigError(f"scheduling cannot overlap with the forward pass: {refusal}")
        super().__init__(config, runner, parts, hooks, connector)

    def step(self) -> StepReport:
        """Take one whole step, and schedule the next one while its forward pass runs."""
        super()._refuse_while_busy("step()")
        if self.gave_up or self.scheduler.is_idle:
            return super().step()
        with self._open_step, self._all_or_nothing():
            plan = self._enter_ahead() or self._schedule()
            logits = self._forward(plan)
            self._anticipate(plan)
            token_ids = self.runner.sample(plan, logits) if plan.sampling else []
            if not self._came_true(plan, token_ids):
                self._forget_ahead()
                self._update(plan, token_ids)
        self._forget_finished()
        return self.report

    # -- the next step, begun while this one is computed ---------------------------------------------------------------

    def _anticipate(self, plan: StepPlan) -> None:
        """Update with tokens that are not there yet, and schedule the next step.

        What fails here is taken back, to fail in its time. Where tokens are asked for once, they will be again: then
        nothing is anticipated any more.
        """
        if not plan.scheduled:
            return
        with interrupts_deferred():
            self._ahead = ahead = Ahead(self.num_used_blocks, self.hooks.num_subscribed)
            self.journal.begin_next()
            try:
                self._run_ahead(plan, ahead)
            except UnsampledError as error:
                self.gave_up = str(error)
            except Exception:
                self._forget_ahead()
            ahead.is_deciding = False
            if self.gave_up:
                self._forget_ahead()

    def _run_ahead(self, plan: StepPlan, ahead: Ahead) -> None:
        with self.hooks.held() as ahead.told_by_update:
            ahead.finished = self.scheduler.update(plan, [UNSAMPLED] * len(plan.sampling))
        pool, ahead.next_section = self.scheduler.manager.pool, len(self.journal)
        ahead.num_used_after_update = pool.num_used
        if not self.scheduler.is_idle:
            with self.hooks.held() as ahead.told_by_schedule:
                ahead.plan = plan = self.scheduler.schedule()
            ahead.unfilled = [(part, self.requests[part.request_id]) for part in plan.scheduled if part.is_unfilled]
            ahead.peak_used_blocks = pool.num_used

    def _came_true(self, plan: StepPlan, token_ids: list[int]) -> bool:
        """Now that the tokens are there: if nothing was assumed wrongly, the step's end has happened, and is told."""
        if len(token_ids) != len(plan.sampling):
            raise ValueError(f"the runner sampled {len(token_ids)} tokens for {len(plan.sampling)} requests")
        ahead = self._ahead
        if ahead is None or self._has_new_listeners(ahead) or not self._fill_in(ahead, plan, token_ids):
            return False
        with interrupts_deferred():
            self.journal.begin_next(ahead.next_section)
            ahead.num_used_blocks = ahead.num_used_after_update
            self._tell_end(plan, token_ids, ahead)
            self.report = self._report(plan, token_ids, ahead.finished)
        return True

    def _fill_in(self, ahead: Ahead, plan: StepPlan, token_ids: list[int]) -> bool:
        """The tokens take their places; False when what was anticipated has to be taken back."""
        ahead.is_deciding = True
        try:
            came_true = self.scheduler.fill_in(plan, token_ids)
        except UnsampledError as error:
            self.gave_up = str(error)
            return False
        except Exception:
            if not self.gave_up:
                raise
            return False
        ahead.is_deciding = False
        return came_true and not self.gave_up

    def _tell_end(self, plan: StepPlan, token_ids: list[int], ahead: Ahead) -> None:
        for part, request in ahead.unfilled:
            part.fill_in(request.token_ids[-1])
        if ahead.told_by_update:
            told = dict(zip((request.request_id for request in plan.sampling), token_ids, strict=True))
            self.hooks.emit_all(_with_tokens(ahead.told_by_update, told))

    def _enter_ahead(self) -> StepPlan | None:
        """The plan that was made ahead, told now; None when there is none, or somebody new wants to hear of it."""
        ahead = self._ahead
        if ahead is None or ahead.plan is None or self._has_new_listeners(ahead):
            self._forget_ahead()
            return None
        with interrupts_deferred():
            self._ahead = None
            self.journal.enter_next()
            self.hooks.emit_all(ahead.told_by_schedule)
        self._peak_used_blocks = ahead.peak_used_blocks
        return ahead.plan

    def _has_new_listeners(self, ahead: Ahead) -> bool:
        """Somebody may want to hear what was not even built."""
        return ahead.num_subscribed != self.hooks.num_subscribed

    def _forget_ahead(self) -> None:
        """As if nothing had been anticipated."""
        if self._ahead is not None:
            with interrupts_deferred():
                self._ahead = None
                self.journal.rollback_next()

    # -- nobody sees it ------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state right now, also inside a step.

        UnsampledError for a part in a decision made ahead of time.
        """
        self._make_way()
        return super().snapshot()

    @property
    def num_used_blocks(self) -> int:
        """Blocks that some request holds. Any thread may ask."""
        ahead = self._ahead
        return super().num_used_blocks if ahead is None else ahead.num_used_blocks

    def _refuse_while_busy(self, call: str) -> None:
        """Whoever asks is about to change something."""
        super()._refuse_while_busy(call)
        self._make_way()

    def _make_way(self) -> None:
        """Forget what is anticipated; if a part asks for that in the middle of it, once it has decided."""
        if self._ahead is not None and self._ahead.is_deciding:
            self.gave_up = LOOKED_TOO_EARLY
            raise UnsampledError(LOOKED_TOO_EARLY)
        self._forget_ahead()

    def _roll_back(self, error: BaseException) -> None:
        self._ahead = None  # in the journal it is the last section, and goes first
        super()._roll_back(error)


def _with_tokens(events: Sequence[Event], told: Mapping[int, int]) -> Iterator[Event]:
    """Yield the events, with the tokens that each request was given."""
    for event in events:
        if type(event) is TokenSampled and event.token_id is UNSAMPLED:
            yield TokenSampled(event.request_id, told[event.request_id], event.position)
        else:
            yield event
