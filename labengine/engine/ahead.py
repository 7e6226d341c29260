"""Scheduling overlapped with the forward pass: while the device computes a step, the host prepares the next one.

    device   forward N ............................. | forward N+1 ..........................
    host     update N, schedule N+1 | launch N+1 |    fill in | update N+1, schedule N+2 | launch N+2 | ...

When update N runs, the step's tokens are unknown. Almost nothing depends on their values: requests end at a known
length, hashes cover computed tokens only, and blocks are counted. So UNSAMPLED stands in for the tokens, and no token
is assumed to be an eos. When the tokens arrive, they are filled in. If one of them ends its request after all, or if a
decision needed a token's value too early, everything anticipated is rolled back, and the step ends like any other.

A runner with `launch_ahead` also computes step N+1 before the tokens of step N are read; on the device they are known.
If step N+1 is rolled back after all, it has already written KV, but only into blocks that are then free and without
content, or after the tokens of the blocks' own request. A step that takes a block with cached content, or one that step
N has freed, is launched only when it is due (see _launch_ahead).

The only visible difference is time. Events are held back until they are due. The next step's beginning is a separate
journal section, which is rolled back when a caller looks at or changes the engine between steps.
Only a part that looks in the middle of its own decision gets an error, as there is no state to show. From then on
nothing is anticipated, however the part handles that error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.core.proposer import Proposer
from labengine.core.step_plan import UNSAMPLED, StepPlan, UnsampledError
from labengine.engine.checked_proposer import CheckedProposer
from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.runner import Runner, is_asynchronous
from labengine.engine.step_report import StepReport
from labengine.events import Event, TokenSampled
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.system.code_roles import Role, plays, rolls_back

plays(__name__, Role.ENGINE)

PAUSE = 16
"""Number of steps launched when they are due, after one that was launched ahead for nothing.

A step launched for nothing delays the next one by a forward pass; launching ahead saves about a tenth of one.
"""
LOOKED_TOO_EARLY = "a part read the engine's state during a decision made ahead of time"


def overlap_refusal(parts: Parts, *, has_external: bool, speculates: bool = False) -> str | None:
    """Return why these parts cannot schedule a step before the last step's tokens are known; None if they can."""
    if has_external:
        return "the external tier's loads and saves cannot be anticipated"
    if speculates:
        return "drafts depend on the tokens that the step samples, and the next step depends on how many are accepted"
    if parts.kv_cache_manager.needs_tokens_to_allocate:
        return f"edition {parts.name} hashes tokens when it allocates their blocks, before they are sampled"
    return None


@dataclass(slots=True)
class Ahead:
    """Work done ahead of time since the end of the last step."""

    num_used_blocks: int
    """Number of used blocks for other threads: without the anticipated step."""
    num_subscribed: int
    """Number of subscriptions so far: a later listener misses the events held back before it."""
    is_deciding: bool = True
    """True while the parts decide on it; it cannot be rolled back then."""
    finished: tuple[int, ...] = ()
    update_events: list[Event] = field(default_factory=list)
    num_used_after_update: int = 0
    next_section: int = 0
    """Index in the journal at which the next step's section begins."""
    plan: StepPlan | None = None
    """The next step's plan; None if no request is left to run."""
    schedule_events: list[Event] = field(default_factory=list)
    peak_used_blocks: int = 0
    is_launched: bool = False
    """True if the device already computes the next step."""


class OverlappedEngine(Engine):
    """An engine whose whole steps overlap. Its phases() and its visible state are the same as any engine's.

    A listener receives a step's last events slightly late, when all of them are due. It may follow events and read the
    engine through `snapshot`, but not through the core, whose requests may hold UNSAMPLED in the middle of a step.
    `choose_engine` decides where this class is used.
    """

    anticipates = True
    _ahead: Ahead | None = None
    gave_up = ""
    """The reason why nothing is anticipated any more; empty while steps overlap."""
    _may_launch_at = 0
    """The number of the first step that may launch the next one ahead."""

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        parts: Parts,
        hooks: Hooks,
        connector: Connector | None = None,
        proposer: Proposer | CheckedProposer | None = None,
    ) -> None:
        refusal = overlap_refusal(parts, has_external=connector is not None, speculates=proposer is not None)
        if refusal is not None:
            raise ConfigError(f"scheduling cannot overlap with the forward pass: {refusal}")
        super().__init__(config, runner, parts, hooks, connector)

    @rolls_back
    def step(self) -> StepReport:
        """Take one whole step, and schedule the next one while its forward pass runs."""
        super().refuse_while_busy("step()")
        if self.gave_up or self.scheduler.is_idle:
            return super().step()
        with self._open_step, self._all_or_nothing():
            num_losses = self.scheduler.manager.pool.num_losses
            plan = self._enter_ahead() or self._schedule()
            logits = self._forward(plan)
            self._anticipate(plan)
            self._launch_ahead(plan, num_losses)
            token_ids = self._sample(plan, logits)
            if not self._commit_ahead(plan, token_ids):
                self._forget_ahead()
                self._update(plan, token_ids)
        self._forget_finished()
        return self.report

    # -- the next step, begun while this one is computed ---------------------------------------------------------------

    @rolls_back
    def _anticipate(self, plan: StepPlan) -> None:
        """Update with placeholder tokens, and schedule the next step.

        A failure here is rolled back, and happens again when it is due. A part that needs tokens' values once will need
        them again, so nothing is anticipated any more.
        """
        beams = self.scheduler.beams  # no beam continues before all are ranked
        if not plan.scheduled or (beams is not None and beams.num_likeliest(plan)):
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

    @rolls_back
    def _run_ahead(self, plan: StepPlan, ahead: Ahead) -> None:
        with self.hooks.held() as ahead.update_events:
            ahead.finished = self.scheduler.update(plan, [UNSAMPLED] * len(plan.sampling))
        pool, ahead.next_section = self.scheduler.manager.pool, len(self.journal)
        ahead.num_used_after_update = pool.num_used
        if not self.scheduler.is_idle:
            with self.hooks.held() as ahead.schedule_events:
                ahead.plan = self.scheduler.schedule()
            ahead.peak_used_blocks = pool.num_used

    @rolls_back
    def _launch_ahead(self, plan: StepPlan, num_losses: int) -> None:
        """Have the device compute the next step after this one, unless a rollback frees a block that it writes.

        num_losses: the pool's count at the start of this step. A failure happens again when the step is due.
        """
        ahead, pool = self._ahead, self.scheduler.manager.pool
        launch = getattr(self.runner, "launch_ahead", None)
        if launch is None or ahead is None or ahead.plan is None or self.step_number < self._may_launch_at:
            return
        if ahead.plan.copies:  # blocks are copied when the step begins
            return
        if any(group.keeps_states for group in self.scheduler.manager.groups):  # a rollback cannot bring a state back
            return
        if pool.num_losses > num_losses and not pool.blocks_to_give_back().isdisjoint(ahead.plan.written_blocks()):
            return
        with suppress(Exception):
            ahead.is_launched = launch(ahead.plan, plan)

    def _commit_ahead(self, plan: StepPlan, token_ids: list[int]) -> bool:
        """Commit the anticipated end of the step if all assumptions held, and emit its held-back events."""
        if len(token_ids) != len(plan.sampling):
            raise ValueError(f"the runner sampled {len(token_ids)} tokens for {len(plan.sampling)} requests")
        ahead = self._ahead
        if ahead is None or self._has_new_listeners(ahead) or not self._fill_in(ahead, plan, token_ids):
            return False
        with interrupts_deferred():
            self.journal.begin_next(ahead.next_section)
            ahead.num_used_blocks = ahead.num_used_after_update
            self._emit_end(plan, token_ids, ahead)
            self.report = self._report(plan, token_ids, ahead.finished)
        return True

    def _fill_in(self, ahead: Ahead, plan: StepPlan, token_ids: list[int]) -> bool:
        """Fill in the sampled tokens; return False if the anticipated work has to be rolled back."""
        ahead.is_deciding = True
        try:
            is_valid = self.scheduler.fill_in(plan, token_ids)
        except UnsampledError as error:
            self.gave_up = str(error)
            return False
        except Exception:
            if not self.gave_up:
                raise
            return False
        ahead.is_deciding = False
        return is_valid and not self.gave_up

    def _emit_end(self, plan: StepPlan, token_ids: list[int], ahead: Ahead) -> None:
        if ahead.plan is not None:
            # Also if it is launched: a runner that computed another step in between computes this one again.
            for part in ahead.plan.scheduled:
                if part.is_unfilled:
                    part.fill_in(self.requests[part.request_id].token_ids[-1])
        if ahead.update_events:
            tokens = dict(zip((request.request_id for request in plan.sampling), token_ids, strict=True))
            self.hooks.emit_all(_with_tokens(ahead.update_events, tokens))

    def _enter_ahead(self) -> StepPlan | None:
        """Return the plan made ahead, and emit its events.

        None without such a plan, or if a new listener missed its events.
        """
        ahead = self._ahead
        if ahead is None or ahead.plan is None or self._has_new_listeners(ahead):
            self._forget_ahead()
            return None
        with interrupts_deferred():
            self._ahead = None
            self.journal.enter_next()
            self.hooks.emit_all(ahead.schedule_events)
        self._peak_used_blocks = ahead.peak_used_blocks
        self._copy(ahead.plan)
        return ahead.plan

    def _has_new_listeners(self, ahead: Ahead) -> bool:
        """Return True if a listener subscribed after the events were held back."""
        return ahead.num_subscribed != self.hooks.num_subscribed

    def _forget_ahead(self) -> None:
        """Roll the anticipated work back."""
        if self._ahead is not None:
            with interrupts_deferred():
                if self._ahead.is_launched:
                    self._may_launch_at = self.step_number + PAUSE
                self._ahead = None
                self.journal.rollback_next()

    # -- keeping the overlap invisible ---------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the current state, also inside a step.

        Raises UnsampledError inside a decision made ahead of time.
        """
        self._roll_back_ahead()
        return super().snapshot()

    @property
    def num_used_blocks(self) -> int:
        """Blocks held by at least one request. Any thread may read it."""
        ahead = self._ahead
        return super().num_used_blocks if ahead is None else ahead.num_used_blocks

    def refuse_while_busy(self, call: str) -> None:
        """Roll anticipated work back before the engine changes."""
        super().refuse_while_busy(call)
        self._roll_back_ahead()

    def _roll_back_ahead(self) -> None:
        """Roll anticipated work back. Raises UnsampledError inside a decision made ahead of time."""
        if self._ahead is not None and self._ahead.is_deciding:
            self.gave_up = LOOKED_TOO_EARLY
            raise UnsampledError(LOOKED_TOO_EARLY)
        self._forget_ahead()

    def _roll_back(self, error: BaseException) -> None:
        self._ahead = None  # the journal's last section: it is rolled back first
        super()._roll_back(error)


def _with_tokens(events: Sequence[Event], tokens: Mapping[int, int]) -> Iterator[Event]:
    """Yield the events, with UNSAMPLED replaced by the sampled tokens."""
    for event in events:
        if type(event) is TokenSampled and event.token_id is UNSAMPLED:
            yield TokenSampled(event.request_id, tokens[event.request_id], event.position)
        else:
            yield event


def choose_engine(
    overlap: bool | None,
    parts: Parts,
    runner: Runner,
    *,
    has_external: bool,
    is_watched: bool,
    speculates: bool = False,
) -> tuple[type[Engine], str]:
    """Return the engine's class, and a line for status(). overlap None: overlap where it is possible and saves time.

    Raises ConfigError if overlap=True is not possible.
    """
    if not isinstance(overlap, bool | None):
        raise ConfigError(f"overlap must be True, False or None, got {overlap!r}")
    refusal = overlap_refusal(parts, has_external=has_external, speculates=speculates)
    if refusal is None and is_watched:
        refusal = "the checks inspect the core after each step; use check=False to let the next step begin earlier"
    if overlap and refusal is not None:
        raise ConfigError(f"overlap=True is not possible: {refusal}")
    if overlap is False:
        refusal = "asked for"
    elif refusal is None and not overlap and not is_asynchronous(runner):
        refusal = "the forward pass keeps the host busy"
    if refusal is not None:
        return Engine, f"synchronous ({refusal})"
    return OverlappedEngine, "overlapped with the forward"


def scheduling_line(engine: Engine, selected: str) -> str:
    """Return a line on the current scheduling: `selected`, unless a part made the engine give up overlapping."""
    gave_up = isinstance(engine, OverlappedEngine) and engine.gave_up
    return f"synchronous ({gave_up})" if gave_up else selected
