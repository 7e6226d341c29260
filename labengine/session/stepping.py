"""Stepping at the desk: by hand, phase by phase, to the end, in the background, or until prompts are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Self

from labengine.config import checked_call, checked_int
from labengine.core.request import Request, RequestStatus
from labengine.engine.engine import Phase, StepReport
from labengine.engine.interrupts import raise_deferred
from labengine.session.intake import ExtraKeySpec
from labengine.session.outputs import RequestOutput, TextStream
from labengine.session.prompts import prompt_list
from labengine.session.requesting import Requesting


class Stepping(Requesting):
    """How a lab moves. Whatever takes several steps stops where a breakpoint says so; see `break_on`."""

    def step(self, num_steps: int = 1) -> StepReport:
        """Take one step, or finish the open one; or take several. The last report is falsy with nothing left to do.

        Several steps end early at a breakpoint, and when there is nothing left: then the last step's report is given.
        """
        num_steps = checked_int("num_steps", num_steps, 1)
        with self._breakpoints.armed():
            report = self._stepper.step()
            for _ in range(1, num_steps):
                raise_deferred()
                if not report or self._breakpoints.is_hit or not (following := self._stepper.step()):
                    break
                report = following
        return report

    def next_phase(self) -> Phase | None:
        """Do the next phase of a step: schedule, forward, sample, update. None when there is nothing to do."""
        with self._breakpoints.armed():
            return self._stepper.next_phase()

    @property
    def phase(self) -> Phase | None:
        """The phase done last; None when there was nothing to do."""
        return self._stepper.phase

    def phases(self) -> Iterator[Phase]:
        """One step, phase by phase. A step that is left open is finished by whoever steps, adds or aborts next."""
        phase = self.next_phase()
        while phase is not None:
            yield phase
            phase = None if phase == "update" else self.next_phase()

    def run(self, until: Callable[[Self], object] | None = None) -> None:
        """Step until nothing waits or runs, or until(lab) is true after a step. Pauses the background first."""
        if until is not None:
            checked_call("until", until, "lab")
        self.pause()
        with self._breakpoints.armed(), self._stepper.running_freely():
            while self._stepper.step_freely() and not self._breakpoints.is_hit:
                raise_deferred()
                if until is not None and until(self):
                    return

    def start(self) -> None:
        """Step in the background until the work is done or pause() is called; the notebook stays free."""
        self._stepper.start()

    def pause(self) -> None:
        """Stop the background after the step under way."""
        self._stepper.pause()

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself (run, generate, stream, start), False while somebody steps by hand."""
        return self._stepper.is_running

    @property
    def background_error(self) -> BaseException | None:
        """What ended the last background run, if it was an error."""
        return self._stepper.background.error

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the lab's own thread: for callbacks, which may arrive on any thread and must not wait."""
        checked_call("call", call)
        return self._stepper.background.post(call)

    # -- until prompts are answered ------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        cache_salt: str | None = None,
        **sampling: Any,
    ) -> list[RequestOutput]:
        """Add one prompt or several (texts or lists of token ids), run until they are done; their outputs in order."""
        texts_and_ids = [(p, None) if isinstance(p, str) else (None, p) for p in prompt_list(prompts)]
        keys = ExtraKeySpec(cache_salt)
        requests = [self._intake.checked(Stepping.generate, text, ids, keys, sampling) for text, ids in texts_and_ids]
        self.pause()
        added = self._intake.queue_all(requests)
        if added:
            self.run(until=lambda lab: lab._have_finished(added))
        return [self._output_of(request) for request in added]

    def _have_finished(self, requests: Sequence[Request]) -> bool:
        """Between steps: an end that is seen in the middle of another thread's step may be taken back with it."""
        with self._stepper.turn_to_look():
            return all(request.finish_reason is not None for request in requests)

    def stream(self, request_id: int | str) -> Iterator[str]:
        """The generated text of a request, piece by piece; steps the lab unless the background already does."""
        return self._stream(self._intake.request(request_id))

    def _stream(self, request: Request) -> Iterator[str]:
        text = TextStream(self._model.tokenizer.decode, request.num_prompt_tokens)
        is_under_way = True
        while is_under_way and self._next_step(request):
            token_ids, is_under_way = self._seen_between_steps(request)
            yield from text.grown_by(token_ids)
            is_under_way = is_under_way and not self._breakpoints.is_hit
        yield from text.rest(self._seen_between_steps(request)[0])

    def _seen_between_steps(self, request: Request) -> tuple[tuple[int, ...], bool]:
        """Its tokens, and whether there will be more: False when it has finished, or was swept away by a reset."""
        with self._stepper.turn_to_look():
            is_known = self._stepper.engine.requests.get(request.request_id) is request
            return tuple(request.token_ids), is_known and request.status is not RequestStatus.FINISHED

    def _next_step(self, request: Request) -> bool:
        """Take a step, or leave it to the background, whose step a look waits for; False with nothing to do for it."""
        if self._stepper.background.is_running:
            return True
        if not self._seen_between_steps(request)[1]:
            return False
        with self._breakpoints.armed(), self._stepper.running_freely():
            return bool(self._stepper.step_freely())
