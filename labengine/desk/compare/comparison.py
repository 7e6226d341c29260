"""Two engines beside one another: the same requests, the same steps, and where they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.desk.background import Background, LabClosedError
from labengine.desk.compare.comparable import Recorded, names_of, refuse_strangers, refuse_unrecorded
from labengine.desk.compare.difference import Difference, difference_of
from labengine.desk.compare.lockstep import Act, Lockstep, progress
from labengine.snapshot import Snapshot
from labengine.timeline import Timeline

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from labengine.desk.time.breakpoints import Stop as BreakStop
    from labengine.engine.engine import Phase, StepReport
    from labengine.lab import Lab
    from labengine_widgets.compare import CompareView
    from labengine_widgets.compared import Stop
    from labengine_widgets.joint import CompareBench


class Comparison:
    """Two labs in lockstep: whatever is asked of the comparison is done to both, left first.

    left, right: labs that have seen the same requests, or two opened traces (which cannot be stepped).
    names: what to call them; by default their editions.
    title, guide, later: a scenario's title, its guided sentences, and the acts that show what it costs later.
    roles: what each side is in the story, in a few words: "the bug ...", "the fix ...".

    An interrupt may leave one side a step ahead: the next call first brings the other along. An error of one side does
    not hold up the other: both have their turn, then it is raised.
    """

    def __init__(
        self,
        left: Recorded,
        right: Recorded,
        *,
        names: tuple[str, str] | None = None,
        roles: tuple[str, str] = ("", ""),
        title: str = "",
        guide: Sequence[Stop] = (),
        later: Sequence[Act] = (),
        later_question: str = "What does it cost later?",
    ) -> None:
        self.left, self.right = left, right
        self.names, self.roles = names or names_of(left, right), roles
        self.title = title or f"{self.names[0]} and {self.names[1]}"
        self.guide, self.later_question = tuple(guide), later_question
        self._later = list(later)
        self._view: CompareView | None = None
        self._is_closed = False
        refuse_unrecorded(self.sides)
        self.is_live = all(hasattr(side, "hooks") and hasattr(side, "step") for side in self.sides)
        """False for opened traces."""
        if self.is_live:
            refuse_strangers(*self.snapshots)
        self._lockstep = Lockstep([*self.sides] if self.is_live else [])  # type: ignore[list-item]
        self._background = Background(self._step_in_background)
        self._freedom = ExitStack()
        self._num_free_runs = 0
        self._level = self._rest = self._newest()
        self._drift = self._steps_apart()
        self._ahead_before = 0

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
        from labengine.desk.intake import ExtraKeySpec
        from labengine.lab import Lab

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

        After an interrupt, or when one lab was stepped by itself, only the other one: then both stand level again.
        """
        labs = self._labs()
        if self._lockstep.is_behind:
            left, right = self._catch_up()
        else:
            resting = labs[0] if self._ahead > 0 else labs[1] if self._ahead < 0 else None
            left, right = self._do(lambda lab: lab._stepper.engine.report if lab is resting else lab.step())
        return left, right

    def next_phase(self) -> tuple[Phase | None, Phase | None]:
        """The next phase on either side: schedule, forward, sample, update. None where there is nothing to do."""
        left, right = self._do(lambda lab: lab.next_phase())
        return left, right

    def run(self, until: Callable[[Comparison], object] | None = None) -> None:
        """Step both until neither has anything left to do, or until(comparison) is true after a step.

        It ends early, with both sides at the same step, when one of them meets a breakpoint.
        """
        self.pause()
        with self._running_freely():
            while self._step_freely():
                if until is not None and until(self):
                    return

    def start(self) -> None:
        """Step both in the background until the work is done or pause() is called; the notebook stays free."""
        self._labs()
        self._background.start()

    def pause(self) -> None:
        """Stop the background after the step under way: both sides stand at the same step."""
        self._labs()
        self._background.pause()
        self._freedom.close()

    def reset(self) -> None:
        """Two empty engines; what was interrupted half-way is forgotten."""
        self.pause()
        self._lockstep.forget()
        self._do(lambda lab: lab.reset())

    def later(self) -> None:
        """What does it cost later? The scenario goes on, on both sides. ConfigError when it has no more to show."""
        if not self._later:
            raise ConfigError("there is nothing more to show: labengine.bug(id).compare() prepares what comes later")
        while self._later:
            self._do(self._later.pop(0))

    @property
    def has_later(self) -> bool:
        """Whether later() has something to show."""
        return bool(self._later) and self.is_live

    @property
    def stopped_at(self) -> tuple[BreakStop | None, BreakStop | None]:
        """The breakpoint that the newest run has met on either side (comparison.left.break_on(...)); None for none."""
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
        return self._background.post(call)

    def _do(self, act: Act) -> list[Any]:
        self._labs()
        if self._lockstep.is_behind:
            self._catch_up()
        self._ahead_before = self._ahead
        try:
            return self._lockstep.do(act)
        finally:
            self._note_drift()
            self._note_level()

    def _catch_up(self) -> list[Any]:
        try:
            return self._lockstep.catch_up()
        finally:
            self._note_drift()
            self._note_level()

    def _note_drift(self) -> None:
        """A side that found nothing to do has not fallen behind; one that was brought along has caught up."""
        if not self._lockstep.is_behind and not self._ahead_before:
            self._drift = self._steps_apart()

    @contextmanager
    def _running_freely(self) -> Iterator[None]:
        """Views follow instead of playing each step."""
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
        return any(map(bool, self._do(lambda lab: lab._stepper.step_freely()))) and not any(self.stopped_at)

    def _show_stop(self) -> None:
        """The view stands at the event for which a run has stopped, the left side's first."""
        for side, stop in enumerate(self.stopped_at):
            if stop is not None and stop.moment is not None and self._view is not None:
                return self._view.stand_at(side, stop.moment)

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

    def _steps_apart(self) -> int:
        """How many more steps the left side has taken: one that has nothing to do takes none."""
        if not self.is_live:
            return 0
        left, right = (progress(side.lab)[0] for side in self._lockstep.sides)
        return left - right

    @property
    def _ahead(self) -> int:
        """Steps by which the left side (below 0 the right one) is ahead because somebody stepped it by itself."""
        return self._steps_apart() - self._drift

    def _note_level(self) -> None:
        if not self._lockstep.is_behind and not self._ahead:
            self._level = self._newest()
            if all(side.lab._stepper.phase in (None, "update") for side in self._lockstep.sides):
                self._rest = self._level
        if self._view is not None:
            self._view.has_grown()

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def sides(self) -> tuple[Recorded, Recorded]:
        """Left and right."""
        return self.left, self.right

    @property
    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """The state of either side."""
        return self.left.snapshot(), self.right.snapshot()

    def snapshot(self) -> tuple[Snapshot, Snapshot]:
        """The state of either side."""
        return self.snapshots

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """What was recorded on either side."""
        return self.left.timeline, self.right.timeline

    @property
    def level(self) -> tuple[int, int]:
        """The moments up to which both sides have done the same; an interrupted side may be further."""
        return self._level

    @property
    def rest(self) -> tuple[int, int]:
        """The moments at which both sides last stood between two steps, neither ahead of the other."""
        return self._rest

    def first_difference(self) -> Difference | None:
        """The first event at which the two part, with both sides' moments and words; None while they tell the same."""
        return difference_of(self)

    def show(self) -> CompareView:
        """The compare view."""
        if self._is_closed:
            raise LabClosedError
        if self._view is None:
            from labengine_widgets.compare import CompareView

            self._view = CompareView(self.bench())
        return self._view

    def export_html(self, path: str | PathLike[str], title: str | None = None, *, charts: bool = False) -> Path:
        """One self-contained page in which both sides scrub together, with no Python and no network; its path.

        charts: plotly's figures of both sides too, with plotly itself (5 MB more).
        """
        from labengine_widgets.pair_page import export_pair

        with ExitStack() as still:
            for lab in self._labs() if self.is_live and not self._is_closed else ():
                still.enter_context(lab._still())
            return export_pair(self.bench(), path, title, charts=charts)

    def bench(self) -> CompareBench:
        """What the compare view may see and ask of this comparison (labengine_widgets.joint.CompareBench)."""
        from labengine.desk.compare.compare_bench import ComparisonBench

        return ComparisonBench(self)

    def close(self) -> None:
        """Stop, close the view and both sides; looking still works. Twice is harmless."""
        self._is_closed = True
        self._background.close()
        if self._view is not None:
            self._view.close()
            self._view = None
        for side in self.sides:
            close = getattr(side, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Comparison:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        from labengine_widgets.ascii import block_map

        maps = zip(self.names, map(block_map, self.snapshots), strict=True)
        return "\n\n".join([*(f"{name}\n{drawn}" for name, drawn in maps), self._told_difference()])

    def _told_difference(self) -> str:
        return str(self.first_difference() or "The two tell the same so far.")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {"text/plain": repr(self)} if self._is_closed else self.show()._repr_mimebundle_(**options)

    def _labs(self) -> tuple[Lab, ...]:
        """Both, to do something with them. LabClosedError once closed, ConfigError for recordings."""
        if self._is_closed:
            raise LabClosedError
        if not self.is_live:
            raise ConfigError("these are recordings, to look at and not to step: compare two labs instead")
        return tuple(side.lab for side in self._lockstep.sides)

    def _newest(self) -> tuple[int, int]:
        return self.timelines[0].end, self.timelines[1].end
