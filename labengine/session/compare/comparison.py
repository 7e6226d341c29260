"""Comparison: two labs or opened traces side by side. Each method delegates to one part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, Unpack

from labengine.config import ConfigError, SamplingKeywords, checked_call, checked_text, shown
from labengine.driven.model import DrivenModel
from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred
from labengine.engine.request_options import RequestOptions
from labengine.engine.step_report import Phase, StepReport
from labengine.events import Event
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.session.compare.cursor import Cursor, PairLook
from labengine.session.compare.difference import Difference, difference_of, notes_of, why_of
from labengine.session.compare.history import PairBreakpoint, PairBreakpoints, PairHistory
from labengine.session.compare.lockstep import Act, FollowUps
from labengine.session.compare.pair import Ends, SidePair
from labengine.session.compare.pair_runs import PairRuns
from labengine.session.compare.repeat import PairRepeat
from labengine.session.compare.sides import LiveSide, checked_names, names_of, refuse_incomparable
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.looking import Looking
from labengine.session.requests import options_of
from labengine.session.saved.assertion import Asserting
from labengine.session.saved.driven_test import sides_test
from labengine.session.saved.regression import session_test
from labengine.session.view_source import Command, add_copies
from labengine.system.closing import Closing

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.compare.link import PairLink
    from labengine_widgets.compare.view import CompareView
    from labengine_widgets.selection import Selection
    from labengine_widgets.view_source import GuidedSentence, ViewSource
    from labengine_widgets.why import Why

_SAME = "No difference so far."


class Comparison(Closing):
    """Two labs in lockstep: each call of the comparison goes to both, left first.

    left, right: labs that have had the same requests, or opened traces (which cannot be stepped).
    names: names of the sides; by default their editions.
    title, guide, follow_ups: a scenario's title, its guided sentences, and the acts that show its later cost.
    follow_up_question: the label of the button that runs these acts.
    roles: each side's role in the story, in a few words: "the bug ...", "the fix ...".
    Raises ConfigError, before anything happens, for sides that cannot be compared.

    An interrupt may leave one side a step ahead: the next call first completes the act on the other. An error on one
    side does not stop the other: the error is raised after both have done the act. A call on both sides raises
    ConfigError, before anything happens, once one side alone has had other inputs.
    Its views read it as a labengine_widgets.view_source.PairViewSource.
    """

    def __init__(
        self,
        left: Looking,
        right: Looking,
        *,
        names: tuple[str, str] | None = None,
        roles: tuple[str, str] = ("", ""),
        title: str = "",
        guide: Sequence[GuidedSentence] = (),
        follow_ups: Sequence[Act] = (),
        follow_up_question: str = "What does it cost later?",
    ) -> None:
        refuse_incomparable(left, right)
        self.left, self.right = left, right
        self.names, self.roles = checked_names(names) or names_of(left, right), roles
        self.title = title or f"{self.names[0]} and {self.names[1]}"
        self.guide, self.follow_up_question = tuple(guide), follow_up_question
        self._view: PairLink | None = None
        self._view_guard = Lock()
        self.view_sources: tuple[ViewSource, ...] = (left.view_source(), right.view_source())
        self._pair = SidePair(left, right, FollowUps(follow_ups, left.snapshot().step), self._note_progress)
        self._cursor = Cursor(self._pair, self.names, lambda: self._view)
        self._runs = PairRuns(self._pair, lambda: self._cursor.show_hits(self._runs.hits))
        self._history = PairHistory(self._pair, self._runs)
        self._breakpoints = PairBreakpoints(self._pair)
        self.repetition = PairRepeat(self._pair, self._runs)
        """Repeats a lab's inputs on both sides; see Lab.rerun."""

    @property
    def is_live(self) -> bool:
        """False for opened traces."""
        return self._pair.is_live

    @property
    def is_going_back(self) -> bool:
        """True while both sides are being rewound or reset: one of them may finish before the other."""
        return self._pair.is_going_back

    @property
    def sides(self) -> tuple[Looking, Looking]:
        """Left and right."""
        return self._pair.sides

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""
        return self._pair.timelines

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        n: int | None = None,
        priority: int = 0,
        images: Mapping[int, tuple[str, int]] | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> Any:
        """Queue a request on both sides, as Lab.add does; return its id, or the ids of n answers or of beams.

        Either both sides accept it or neither.
        """
        options = options_of(
            Comparison.add, sampling, cache_salt=cache_salt, extra_keys=extra_keys, priority=priority, images=images
        )
        return self._add(prompt, token_ids, options, n)

    def _add(
        self, prompt: str | None, token_ids: Sequence[int] | None, options: RequestOptions, n: int | None
    ) -> int | list[int]:
        checked = {id(lab): lab.session.requests.checked(prompt, token_ids, options) for lab in self._pair.labs}
        for lab in self._pair.labs:
            lab.session.requests.answers(checked[id(lab)], n)
        queued: list[int | list[int]] = self._pair.do(
            lambda lab: lab.session.requests.queue_answers(checked[id(lab)], n)
        )
        return queued[1]

    def branch(self, request_id: int | str, *, seed: int | None = None, token: int | None = None) -> int:
        """Queue another continuation of a request on both sides, as Lab.branch does; return its id.

        Either both sides accept it or neither.
        """
        for lab in self._pair.labs:
            lab.session.requests.check_branch(request_id, seed, token)
        branched = self._pair.do(lambda lab: lab.session.requests.branch(request_id, seed, token))
        return int(branched[1])

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        *,
        cache_salt: str | None = None,
        n: int | None = None,
        priority: int = 0,
        **sampling: Unpack[SamplingKeywords],
    ) -> Any:
        """Queue a conversation on both sides through the left model's chat template; return its id, or ids."""
        options = options_of(Comparison.chat, sampling, cache_salt=cache_salt, priority=priority)
        return self._add(None, self._pair.labs[0].session.model.tokenizer.chat(messages), options, n)

    def abort(self, request_id: int) -> tuple[bool, bool]:
        """End a request on both sides. False where it had finished before."""
        left, right = self._pair.do(lambda lab: lab.session.requests.abort(request_id))
        return left, right

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, num_steps: int = 1) -> tuple[StepReport, StepReport]:
        """Take one step on each side, or several, as Lab.step does; return the two last reports.

        After an interrupt, or when one lab was stepped or rewound by itself, only the other one takes the step, until
        both are aligned again. A side whose part raises stays at its crash, while the other side takes the steps.
        ConfigError if the sides have had different requests.
        """
        left, right = self._runs.step(num_steps)
        return left, right

    def next_phase(self) -> tuple[Phase | None, Phase | None]:
        """Do the next phase on each side: schedule, forward, sample, update. None for a side without work."""
        left, right = self._pair.do(lambda lab: lab.session.runs.next_phase())
        return left, right

    def run(self, until: Callable[[Self], object] | None = None) -> None:
        """Step both until neither has anything left to do, or until(comparison) is true after a step.

        A breakpoint on either side ends the run early, with both sides at the same step.
        """
        if until is not None:
            checked_call("until", until, "comparison")
        self._runs.run(None if until is None else partial(until, self))

    def start(self) -> None:
        """Step both in the background until the work is done or pause() is called; the notebook stays free."""
        self._runs.start()

    def pause(self) -> None:
        """Stop the background after its current step: both sides are then after the same step."""
        self._runs.pause()

    @property
    def is_running(self) -> bool:
        """True while the comparison steps in the background or in run()."""
        return self._runs.is_running

    @property
    def background_error(self) -> BaseException | None:
        """The error that ended the last background run, or None."""
        return self._runs.background.error

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the comparison's thread: for callbacks, which must not wait."""
        checked_call("call", call)
        return self._runs.background.post(call)

    # -- breakpoints and rewind ----------------------------------------------------------------------------------------

    def break_on(
        self, kind: type[Event] | str | Callable[[Event], object] | None = None, **fields: Any
    ) -> PairBreakpoint:
        """End runs of both after the step in which an event of either side meets a condition; see Lab.break_on.

        `close()` removes the breakpoint from both sides. A condition that one side refuses is added to neither.
        """
        return self._breakpoints.add(kind, fields)

    @property
    def breakpoints(self) -> tuple[PairBreakpoint, ...]:
        """The breakpoints on both sides, oldest first; comparison.left.breakpoints also has the left side's own."""
        return self._breakpoints.open

    @property
    def stopped_at(self) -> tuple[BreakpointHit | None, BreakpointHit | None]:
        """Per side, the breakpoint that the newest run or step has hit, or None."""
        return self._runs.hits

    def rewind(self, step: int) -> None:
        """Rewind both engines to where step `step + 1` was about to begin; see Lab.rewind.

        A side that ran out of work earlier goes to its end. Follow-ups done after that step can be done again. Raises
        ConfigError, before anything changes, for a step not taken, and if the sides had different requests by then. An
        interrupt may leave the sides at different steps: repeat the call.
        """
        self._history.rewind(step)

    def reset(self) -> None:
        """Reset to two empty engines; forget an interrupted act and the follow-ups."""
        self._runs.reset()

    def fork(self, step: int | None = None, **settings: Any) -> NoReturn:
        """Raise ConfigError: only one side can be forked."""
        asked = ", ".join([*([] if step is None else [str(step)]), *(f"{k}={v!r}" for k, v in settings.items())])
        raise ConfigError(
            f"fork one side, with comparison.left.fork({asked}) or comparison.right.fork({asked}); "
            f"labengine.compare(one, other) compares two forks"
        )

    def follow_up(self) -> None:
        """Run the scenario's follow-up on both sides, from the end of the scenario.

        Raises ConfigError when no follow-up is left.
        """
        self._history.follow_up()

    @property
    def has_follow_up(self) -> bool:
        """True while follow_up() has something to show."""
        return self._history.has_follow_up

    # -- the state, and the shown moments ------------------------------------------------------------------------------

    @property
    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """The state of each side."""
        return self.left.snapshot(), self.right.snapshot()

    def snapshot(self) -> tuple[Snapshot, Snapshot]:
        """Return the state of each side."""
        return self.snapshots

    @property
    def aligned_at(self) -> Ends:
        """The last moments (left, right) at which both sides had done the same acts; one side may be further now."""
        return self._pair.aligned_at

    @property
    def last_boundary(self) -> Ends:
        """The last moments (left, right) at which both sides were between two steps, neither ahead of the other."""
        return self._pair.last_boundary

    @property
    def moments(self) -> Ends | None:
        """The moments that goto, back, forward or a breakpoint selected for the view; None at the newest ones."""
        return self._cursor.moments

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> PairLook:
        """Show both sides after a step (0: before the first one); no engine moves.

        A side that has taken fewer steps is shown at its end. "crash" is the moment at which a part of either side
        raised; the other side is shown at the end of that step. ConfigError for a moment that is not recorded. Only one
        side can be shown inside a step: comparison.left.goto(step, event).
        """
        return self._cursor.goto(step, event)

    def back(self, num_steps: int = 1) -> PairLook:
        """Show the end of the step `num_steps` before the one that Python has last shown."""
        return self._cursor.back(num_steps)

    def forward(self, num_steps: int = 1) -> PairLook:
        """Show the end of the step `num_steps` after the one that Python has last shown, at most the newest."""
        return self._cursor.forward(num_steps)

    @property
    def selection(self) -> Selection | None:
        """The selection on both sides. Settable: Selection("block", 3), ("block", 3), or None for nothing.

        Raises ConfigError, and changes nothing, for a subject that neither side has.
        """
        return self.left.selection

    @selection.setter
    def selection(self, selected: Selection | tuple[str, int | str] | None) -> None:
        try:
            self.left.selection = selected
        except ConfigError:  # a subject that the left side lacks may be on the right
            self.right.selection = selected
            self.left.feed.select(self.right.selection)
        else:
            self.right.feed.select(self.left.selection)

    # -- differences ---------------------------------------------------------------------------------------------------

    def first_difference(self) -> Difference | None:
        """Return the first event at which the sides decide differently, with a sentence for each; None without one.

        Settings (blocks, their size, the null block) do not count as decisions: see `configuration_difference`.
        """
        return difference_of(self.sides, self.names)

    @property
    def configuration_difference(self) -> str:
        """The settings that differ, in one sentence; empty if only the parts differ."""
        from labengine_widgets.compare.configuration import configuration_difference  # for views only

        return configuration_difference(*self.timelines, self.names)

    def why(self, **subject: Any) -> Why:
        """Return the first difference's causes: both events, and the methods that decided them.

        Raises ConfigError for a subject: ask the side that has it.
        """
        if subject:
            asked = ", ".join(f"{name}={value!r}" for name, value in subject.items())
            raise ConfigError(
                f"ask one side, with comparison.left.why({asked}) or comparison.right.why({asked}); "
                f"comparison.why() explains the first difference"
            )
        return why_of(self.sides, self.names)

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a pytest file that repeats the session of the side that goes wrong; see Lab.to_test.

        That is the side that breaks a rule or raises, or else the one with overrides, or else the right one. Without
        overrides the test is green with the parts of the other side. Of two driven engines it is a script for the one
        that goes wrong; asserting: "left" or "right", the side whose states are right, where neither does.
        ConfigError for opened traces.
        """
        if all(isinstance(lab.session.model, DrivenModel) for lab in self._pair.labs):
            return sides_test([lab.session for lab in self._pair.labs], asserting)
        right, left = reversed(self._pair.labs)
        wrong = left if _wrongness(left) > _wrongness(right) else right
        other = right if wrong is left else left
        return session_test(wrong.session, asserting, other.session.parts)

    # -- views ---------------------------------------------------------------------------------------------------------

    def show(self) -> CompareView:
        """Return the compare view, always the same one."""
        with interrupts_deferred():  # a module whose import was interrupted stays broken
            from labengine_widgets.compare.view import CompareView

        with interrupts_deferred(), self._view_guard:  # only the first of several threads makes it
            if not isinstance(self._view, CompareView):
                self._view = CompareView(self)
        return self._view

    @property
    def has_view(self) -> bool:
        """True once the compare view has been shown."""
        return self._view is not None

    def show_in(self, view: PairLink) -> None:
        """Have a front end's view follow this comparison, instead of the notebook's.

        Raises ConfigError for a view that is not a labengine_widgets.compare.link.PairLink.
        """
        needed = ("send_new_soon", "show_position", "show_moment")
        if not all(callable(getattr(view, name, None)) for name in needed):
            raise ConfigError(f"view must have {', '.join(needed)}, as a compare.link.PairLink has, got {shown(view)}")
        self._view = view

    def post_command(self, action: str, **arguments: Any) -> Future[Any]:
        """Post a view's command to the comparison's thread; return a Future with its result or error.

        ConfigError for an unknown command.
        """
        if not isinstance(action, str) or action not in _COMMANDS:
            raise ConfigError(f"the action must be one of {', '.join(_COMMANDS)}, got {shown(action)}")
        if action == "pause":  # a posted pause would wait for a step that may not end
            self._runs.background.end_step()
        return self._runs.background.post(partial(_COMMANDS[action], self, **arguments))

    def export_html(
        self,
        path: str | PathLike[str],
        title: str | None = None,
        *,
        intro: str = "",
        appendix: str = "",
    ) -> Path:
        """Write one self-contained page in which both sides scrub together; return its path.

        intro, appendix: markup above and below the two sides, inserted unchanged: escape any text that is not yours.
        """
        from labengine_widgets.pages.export import export_pair  # for views only

        checked_text("intro", intro)
        checked_text("appendix", appendix)
        if title is not None:
            checked_text("title", title)
        with ExitStack() as still:
            still.enter_context(interrupts_deferred())
            for side in self._pair.lockstep.sides if not self._pair.is_closed else ():
                still.enter_context(side.lab.session.stepper.reading())
            still.enter_context(interrupts_allowed())
            return export_pair(self, path, title, intro=intro, appendix=appendix)

    def close(self) -> None:
        """Stop and close both sides; their recordings stay readable, also in the view. Twice is harmless."""
        with interrupts_deferred():
            self._pair.is_closed = True
            self._runs.background.close()
            for side in self.sides:
                side.close()
            for feed in self._view.feeds if self._view is not None else ():
                feed.settle()

    def _note_progress(self) -> None:
        if self._view is not None:
            self._view.send_new_soon()

    def __repr__(self) -> str:
        from labengine_widgets.pictures.ascii import block_map  # for views only

        maps = zip(self.names, map(block_map, self.snapshots, self.timelines), strict=True)
        found = self.first_difference()
        difference = (
            str(found)
            if found
            else " ".join(filter(None, [_SAME, self.configuration_difference, *notes_of(self.sides)]))
        )
        return "\n\n".join([*(f"{name}\n{drawn}" for name, drawn in maps), difference])

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_()


_COMMANDS: dict[str, Command] = {
    "step": Comparison.step,
    "phase": Comparison.next_phase,
    "start": Comparison.start,
    "pause": Comparison.pause,
    "reset": Comparison.reset,
    "add": add_copies,
    "follow_up": Comparison.follow_up,
}
"""The commands of a comparison's view, by the names that it sends."""


def _wrongness(lab: LiveSide) -> tuple[bool, bool]:
    """Return whether a lab goes wrong, and whether it has overrides."""
    return bool(lab.session.inspection.violations or lab.session.crashes.newest), lab.session.settings.parts is not None
