"""Sources of views: a lab, whose commands run on its own thread, or a recording, which refuses commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from labengine.config import ConfigError, is_single_int
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.history.moments import moment_of
from labengine.session.reasons import Seam
from labengine.session.session import Session

if TYPE_CHECKING:  # widgets are loaded for views only
    from labengine_widgets.view_source import ViewSource

At = int | tuple[int, int] | Literal["crash"]
"""A moment: the end of a step, (step, event) for after an event inside it, counted from 0, or "crash"."""

CLOSED = "This lab is closed. Its recording can still be viewed; to take steps, make a new lab."
"""Text in a closed lab's view instead of its controls."""

_NOTE = "This picture stays at its moment and does not follow the lab. Use lab.show() to see the lab now."
_REFUSAL = "this picture shows an earlier moment; lab.show() has the controls"

_numbers = count(1)


def add_copies(lab: Any, prompt: str, copies: int, max_tokens: int, n: int, beams: int, priority: int) -> list[Any]:
    """Add equal requests to a lab or a comparison; return the results of `add`."""
    several = {"n": n} if n > 1 else {}
    asked: dict[str, int] = {"max_tokens": max_tokens, "beams": beams, "priority": priority, **several}
    return [lab.add(prompt, **asked) for _ in range(copies)]


Command = Callable[..., Any]
"""A command: called with the lab and a view's arguments, JSON values by name; its result is returned to the view."""

COMMANDS: Mapping[str, Command] = {
    "step": lambda lab, **arguments: lab.step(**arguments),
    "phase": lambda lab, **arguments: lab.next_phase(**arguments),
    "start": lambda lab, **arguments: lab.start(**arguments),
    "pause": lambda lab, **arguments: lab.pause(**arguments),
    "reset": lambda lab, **arguments: lab.reset(**arguments),
    "add": add_copies,
    "goto": lambda lab, **arguments: lab.goto(**arguments),
    "predict": lambda lab, **arguments: lab.session.predict(**arguments),
    "wish": lambda lab, **arguments: lab.session.wish(**arguments),
}
"""The commands of a lab's views, by the names that they send."""


class LabViewSource:
    """A lab's labengine_widgets.ViewSource. Reads are direct; commands are posted to the lab's own thread.

    lab: the session's Lab, for COMMANDS. Widget callbacks, on any thread, post these commands.
    """

    def __init__(self, session: Session, lab: Any) -> None:
        self.title = session.inspection.title
        self.lab = session.lab_id
        self.hooks: Hooks | None = session.hooks
        self.timeline: Timeline | None = session.timeline
        self._session = session
        self._lab = lab
        self._newest_hit: tuple[BreakpointHit | None, str | None] = None, None

    @property
    def is_live(self) -> bool:
        """False once the lab is closed and only its recording is left."""
        return not self._session.stepper.is_closed

    @property
    def note(self) -> str:
        """The text instead of a closed lab's controls; empty for an open one."""
        return "" if self.is_live else CLOSED

    @property
    def is_running(self) -> bool:
        """True while the lab runs."""
        return self._session.runs.is_running

    @property
    def phase(self) -> str | None:
        """The last phase done in an open step; None between steps."""
        phase = self._session.stepper.phase
        return None if phase == "update" else phase

    @property
    def stopped(self) -> str | None:
        """The breakpoint that the newest run or step has hit, as a sentence, or None."""
        hit = self._session.breakpoints.hit
        if hit is not self._newest_hit[0]:
            self._newest_hit = hit, None if hit is None else str(hit)
        return self._newest_hit[1]

    @property
    def asked(self) -> dict[str, Any] | None:
        """The question about the next step, serialised for the browser, or None."""
        question = self._session.question
        return None if question is None else question.to_dict()

    @cached_property
    def request_options(self) -> tuple[str, ...]:
        """The options among n, beams and priority that the lab supports."""
        return self._session.requests.options

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self._session.token_text(token_id)

    def engine_id(self, request_id: int) -> str:
        """Return an empty string, because a lab's requests are only named A, B, C."""
        return ""

    def fold(self) -> Fold:
        """Return a copy of the current state."""
        return Fold.of(self._session.inspection.snapshot())

    def seams(self) -> dict[str, Seam]:
        """Return the method that decides each kind of event; empty for a lab that hides methods."""
        return {} if self._session.hides_seams else self._seams

    @cached_property
    def _seams(self) -> dict[str, Seam]:
        return self._session.seams

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Post a command to the lab's thread; return a Future with its result or error.

        A closed lab has no thread: the command runs at once. ConfigError for an unknown command.
        """
        if action not in COMMANDS:
            raise ConfigError(f"a view has no command {action!r}; it has {', '.join(COMMANDS)}")
        call = partial(COMMANDS[action], self._lab, **arguments)
        background = self._session.runs.background
        if action == "pause":  # a posted pause would wait for a step that may not end
            background.end_step()
        return background.post(call) if self.is_live else _done(call)


@dataclass(slots=True)
class RecordingViewSource:
    """A labengine_widgets.ViewSource for a recording, which never changes and refuses commands.

    refusal: why commands are refused, and what to do instead. moment: the moment that pictures show; None: the end.
    """

    title: str
    lab: str
    timeline: Timeline | None
    token_text: Callable[[int], str]
    code: dict[str, Seam]
    refusal: str
    moment: int | None = None
    engine_ids: Callable[[int], str] | None = None
    note: str = ""
    hooks: Hooks | None = None
    is_live: bool = False
    is_running: bool = False
    phase: str | None = None
    stopped: str | None = None
    asked: dict[str, Any] | None = None
    request_options: tuple[str, ...] = ()

    def fold(self) -> Fold:
        """Return the state at the moment that pictures show."""
        assert self.timeline is not None
        return self.timeline.state(self.moment)

    def engine_id(self, request_id: int) -> str:
        """Return the engine's id of a request; empty without one."""
        return "" if self.engine_ids is None else self.engine_ids(request_id)

    def seams(self) -> dict[str, Seam]:
        """Return the method that decided each kind of event, in the code at the time of the recording."""
        return self.code

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Refuse the command; return a Future with the error."""
        return refused(action, self.refusal)


def refused(action: str, why: str) -> Future[Any]:
    """Return a Future with the refusal of a command."""
    answer: Future[Any] = Future()
    answer.set_exception(ConfigError(f"{action}: {why}"))
    return answer


def picture_of(timeline: Timeline, of: ViewSource, at: Any, crash_moment: Callable[[], int]) -> RecordingViewSource:
    """Return a picture of the recording at a moment, up to the end of the moment's step. It never changes.

    of: the source of the whole recording. at: see At; checked here, because it comes from the user. ConfigError for a
    moment that is not recorded.
    """
    if at == "crash":
        moment = end = crash_moment()
        where = f"at the crash of step {timeline.state(moment).step}"
    else:
        step, event = _step_and_event(at)
        moment = moment_of(timeline, step, event)
        end = moment if event is None else timeline.step_moments(step)[1]
        where = f"at step {step}" if event is None else f"at event {event} of step {step}"
    return RecordingViewSource(
        title=f"{of.title} · {where}",
        lab=f"{of.lab}, picture {next(_numbers)}",
        timeline=timeline.until(end),
        token_text=of.token_text,
        code=of.seams(),
        refusal=_REFUSAL,
        moment=moment,
        engine_ids=of.engine_id,
        note=_NOTE,
    )


def _step_and_event(at: Any) -> tuple[int, int | None]:
    if is_single_int(at):
        return at, None
    if isinstance(at, (tuple, list)) and len(at) == 2 and all(map(is_single_int, at)):
        return at[0], at[1]
    raise ConfigError(f'at must be a step, (step, event) for an event inside it, or "crash", got {at!r}')


def _done(call: Callable[[], Any]) -> Future[Any]:
    """Call at once, and return a Future with the result or error."""
    done: Future[Any] = Future()
    try:
        done.set_result(call())
    except Exception as error:
        done.set_exception(error)
    return done
