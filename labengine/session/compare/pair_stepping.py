"""Stepping both sides of a comparison: by hand, phase by phase, to the end, in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from labengine.config import checked_call
from labengine.engine.interrupts import interrupts_deferred, raise_deferred
from labengine.session.compare.later import Later
from labengine.session.compare.pair_looking import PairLooking

if TYPE_CHECKING:
    from labengine.engine.engine import Phase, StepReport
    from labengine.lab import Lab
    from labengine.session.time.breakpoints import Stop


class PairStepping(PairLooking):
    """What is done to both. ConfigError, before anything happens, once somebody has led one side another way."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        **sampling: Any,
    ) -> int:
        """Queue a request on both sides, as Lab.add does; returns its id. Both sides take it, or neither."""
        from labengine.lab import Lab
        from labengine.session.intake import ExtraKeySpec

        keys = ExtraKeySpec(cache_salt, extra_keys)
        for lab in self._labs():
            lab._intake.checked(Lab.add, prompt, token_ids, keys, sampling)
        add = {"token_ids": token_ids, "cache_salt": cache_salt, "extra_keys": extra_keys, **sampling}
        return int(self._do(lambda lab: lab.add(prompt, **add))[1])

    def chat(self, messages: Sequence[dict[str, str]], **settings: Any) -> int:
        """Queue a conversation on both sides through the left model's chat template; returns its id."""
        return self.add(token_ids=self._labs()[0]._model.tokenizer.chat(messages), **settings)

    def abort(self, request_id: int) -> tuple[bool, bool]:
        """End a request on both sides; False where it had finished before."""
        left, right = self._do(lambda lab: lab.abort(request_id))
        return left, right

    # -- stepping ------------------------------------------------------------------------------------------------------

    def step(self) -> tuple[StepReport, StepReport]:
        """One step on either side; the two reports.

        After an interrupt, or when one lab was stepped or rewound by itself, only the other one: then both stand level
        again. A side whose part raises stands at its crash from then on, while the other one is led on. ConfigError
        when one of them was given other requests.
        """
        with self._turn:
            left, right = self._stepped()
        self._show_stop()
        return left, right

    def _stepped(self) -> list[Any]:
        labs = self._labs()
        if self._lockstep.is_behind:
            return self._catch_up()
        self._require_same_requests()
        self._later.note_other()
        resting = labs[0] if self._ahead > 0 else labs[1] if self._ahead < 0 else None
        if resting is not None:
            resting._breakpoints.forget_stop()
        crashed = self._crashed()
        return self._done(lambda lab: lab._stepper.engine.report if lab in (resting, crashed) else lab.step())

    def _crashed(self) -> Lab | None:
        """The side that stands at its crash, while the other one can go on."""
        crashed = [lab for lab in self._labs() if lab.is_at_crash]
        return crashed[0] if len(crashed) == 1 else None

    def next_phase(self) -> tuple[Phase | None, Phase | None]:
        """The next phase on either side: schedule, forward, sample, update. None where there is nothing to do."""
        left, right = self._do(lambda lab: lab.next_phase())
        return left, right

    def run(self, until: Callable[[Self], object] | None = None) -> None:
        """Step both until neither has anything left to do, or until(comparison) is true after a step.

        It ends early, with both sides at the same step, when one of them meets a breakpoint.
        """
        if until is not None:
            checked_call("until", until, "comparison")
        self.pause()
        self._require_level_to_run()
        with self._running_freely():
            while self._step_freely():
                raise_deferred()
                if until is not None and until(self):
                    return

    def start(self) -> None:
        """Step both in the background until the work is done or pause() is called; the notebook stays free."""
        with interrupts_deferred():
            self._labs()
            if not self.is_running:
                self._require_level_to_run()
            self._background.start()

    def pause(self) -> None:
        """Stop the background after the step under way: both sides stand at the same step."""
        self._labs()
        self._background.pause()

    def reset(self) -> None:
        """Two empty engines; what was interrupted half-way is forgotten, and so is what a story had still to show."""
        self.pause()
        with self._turn:
            self._lockstep.forget()
            self._later = Later()
            self._lockstep.do(lambda lab: lab.reset())
            self._begin_level()

    @property
    def has_later(self) -> bool:
        """Whether later() has something to show."""
        return bool(self._later) and self.is_live

    @property
    def stopped_at(self) -> tuple[Stop | None, Stop | None]:
        """The breakpoint that the newest run or step has met on either side; None for none."""
        left, right = (getattr(side, "stopped_at", None) for side in self.sides)
        return left, right

    @property
    def is_running(self) -> bool:
        """True while the comparison steps by itself."""
        return self._num_free_runs > 0 or self._background.is_running

    @property
    def background_error(self) -> BaseException | None:
        """What ended the last background run, if it was an error."""
        return self._background.error

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the comparison's own thread: for callbacks, which must not wait."""
        checked_call("call", call)
        return self._background.post(call)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _require_level_to_run(self) -> None:
        """What an interrupt has cut off is made good by the run's first step."""
        with self._turn:
            self._labs()
            if not self._lockstep.is_behind:
                self._require_level()

    @contextmanager
    def _running_freely(self) -> Iterator[None]:
        """Views follow instead of playing each step."""
        with interrupts_deferred():
            with ExitStack() as stack:
                for lab in self._labs():
                    stack.enter_context(lab._breakpoints.armed())
                    stack.enter_context(lab._stepper.running_freely())
                self._num_free_runs += 1
                try:
                    yield
                finally:
                    self._num_free_runs -= 1
            self._show_stop()

    def _step_freely(self) -> bool:
        crashed = self._crashed()
        reports = self._do(lambda lab: None if lab is crashed else lab._stepper.step_freely())
        return any(map(bool, reports)) and not any(self.stopped_at)

    def _show_stop(self) -> None:
        """The view stands at the event for which a run has stopped, the left side's first."""
        for side, stop in enumerate(self.stopped_at):
            if stop is not None and stop.moment is not None:
                return self._stand_at_stop(side, stop.moment)

    def _step_in_background(self) -> bool:
        """A step of a run that nobody waits for; the labs run freely until it ends."""
        if self._num_free_runs == 0:
            self._freedom.enter_context(self._running_freely())
        has_more = False
        try:
            has_more = self._step_freely()
        finally:
            if not has_more:
                self._freedom.close()
        return has_more
