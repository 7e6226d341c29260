"""Reading a recording: views, moments, Why? and exports. For labs and opened traces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from labengine.config import ConfigError, as_int, checked_text, is_single_int, shown
from labengine.engine.interrupts import interrupts_deferred
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.session.history.breakpoints import BreakpointHit
from labengine.session.history.crash import Crash
from labengine.session.history.moments import Look, moment_of, steps_after, steps_before
from labengine.session.named_views import (
    Closeable,
    MakeXRay,
    key_of_view,
    refuse_outside_dashboard,
    view_names,
    view_of,
)
from labengine.session.saved.frame import events_frame
from labengine.session.settings import request_id_of
from labengine.session.view_source import At, RecordingViewSource, picture_of
from labengine.system.closing import Closing

if TYPE_CHECKING:  # widgets and pandas are loaded for views only
    import pandas

    from labengine_widgets.feed.feed import Feed
    from labengine_widgets.selection import Selection
    from labengine_widgets.view import Dashboard
    from labengine_widgets.view_source import ViewSource
    from labengine_widgets.why import Why

# Widgets are imported inside functions, with interrupts deferred: a module whose import was interrupted stays broken.

CRASH: Final = "crash"
"""Stands for the moment of the newest crash, instead of a step."""


class Looking(Closing, ABC):
    """A recording with its widgets, each made once, and the moment that they show."""

    timeline: Timeline | None
    """The recording, or None."""

    def _begin_looking(
        self,
        held_still: Callable[[], AbstractContextManager[None]] = nullcontext,
        xray: MakeXRay | None = None,
    ) -> None:
        """Begin without widgets.

        held_still: a context manager that stops recording. xray: makes the attention X-ray; None without a model.
        """
        self._held_still, self._xray = held_still, xray
        self._feed: Feed | None = None
        self._widgets: dict[tuple[object, ...], Closeable] = {}
        """Widgets by the key of their views."""
        self._newest_picture: tuple[object, Looking] | None = None
        self._shown: tuple[int, int, int] | None = None
        """(generation, end, moment) of the last call that moved the views; outdated once an event is added."""

    # -- what is looked at ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def crash(self) -> Crash | None:
        """The newest exception raised by a part inside a step, or None."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the newest state."""

    @abstractmethod
    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""

    @abstractmethod
    def view_source(self) -> ViewSource:
        """Return the views' interface to the recording (a labengine_widgets.ViewSource)."""

    # -- views ---------------------------------------------------------------------------------------------------------

    def show(self, *names: str, at: At | None = None) -> Dashboard:
        """Return the dashboard, always the same one. at: a picture of an earlier moment instead, see `view`.

        names: show only these views, for readers who do not know the others yet: "pool", "tables", "queue" ...
        """
        if at is not None:
            return self._picture(at).show(*names)
        names = view_names(names)
        refuse_outside_dashboard(names)
        with interrupts_deferred():
            from labengine_widgets.view import Dashboard

        dashboard = self._widget(("dashboard", *names), lambda: Dashboard(self.feed, names))
        assert isinstance(dashboard, Dashboard)
        return dashboard

    @property
    def has_dashboard(self) -> bool:
        """True from the first display of a dashboard until it is closed."""
        return any(key[0] == "dashboard" for key in self._widgets)

    def view(self, *names: str, at: At | None = None, **settings: Any) -> Closeable:
        """Return one view alone, or several beside each other: "pool", "tables", "map", "queue", "timeline" ...

        at: the moment to show, as for `goto`: 2 is the end of step 2, (2, 5) is after event 5 of step 2, "crash" is
        the moment at which a part raised. Such a view stays there, whatever the lab does later; its reader can go
        back, and forward to the end of that step.
        view("pool", plain=True) draws the blocks for first-time readers: words and users, without numbers; ← and → go
        event by event.
        view("xray", request=0, position=None) is a figure of plotly: the attention of a token in a real model. Raises
        ConfigError for an unknown name, listing the known ones, and for a moment that is not recorded.
        """
        if at is not None:
            return self._picture(at).view(*names, **settings)
        names = view_names(names)
        make = view_of(names, settings, lambda: self.feed, self._xray)
        return self._widget(key_of_view(names, settings), make)

    @property
    def widgets(self) -> list[Closeable]:
        """The widgets made so far."""
        return list(self._widgets.values())

    def close_views(self) -> None:
        """Remove all views and their feed, with its states."""
        widgets, self._widgets, self._feed = self._widgets, {}, None
        for widget in widgets.values():
            widget.close()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_()

    @property
    def feed(self) -> Feed:
        """The feed of all views."""
        if self._feed is None:
            with interrupts_deferred():
                from labengine_widgets.feed.feed import feed_of

                self._feed = feed_of(self.view_source())
                self._feed.on_moment_shown = self._note_reader_moved
        return self._feed

    def _widget(self, key: tuple[object, ...], make: Callable[[], Closeable]) -> Closeable:
        """Return the widget of this key; the first one if several threads make it at once."""
        if key not in self._widgets:
            with interrupts_deferred():
                made = make()
                if self._widgets.setdefault(key, made) is not made:
                    made.close()
        return self._widgets[key]

    def _picture(self, at: At) -> Looking:
        """Return a picture of this recording at a moment; the same one for equal moments, until an event is added."""
        timeline = self._recording()
        key, newest = (timeline.generation, timeline.end, repr(at)), self._newest_picture
        if newest is None or newest[0] != key:
            with interrupts_deferred():
                source = picture_of(timeline, self.view_source(), at, self._crash_moment)
                newest = self._newest_picture = key, _Picture(source, self)
        return newest[1]

    def _settle(self) -> None:
        """Stop the views' thread, because the recording has ended. The views keep their last state."""
        if self._feed is not None:
            self._feed.settle()

    # -- the selection and the shown moment ----------------------------------------------------------------------------

    @property
    def selection(self) -> Selection | None:
        """The selection of all views. Settable: Selection("block", 3), ("request", "A"), or None for nothing.

        Raises ConfigError for an unknown subject, naming the existing ones.
        """
        return self.feed.selection

    @selection.setter
    def selection(self, wanted: Selection | tuple[str, int | str] | None) -> None:
        with interrupts_deferred():
            from labengine_widgets.selection import Selection
            from labengine_widgets.why import WhyError
            from labengine_widgets.why.subjects import known_selection

        asked: Any = wanted  # a user's value is checked here
        if isinstance(asked, (tuple, list)) and len(asked) == 2:
            kind, id_ = asked
            try:
                asked = Selection(kind, cast(Any, request_id_of(id_)) if kind == "request" else id_)
            except (TypeError, ValueError) as error:
                raise ConfigError(str(error)) from None
        if not isinstance(asked, Selection | None):
            raise ConfigError(f'selection must be a Selection, such as ("block", 3), or None, got {shown(asked)}')
        if asked is not None:
            timeline = self.feed.timeline or Timeline.starting_at(self.view_source().fold())
            try:
                asked = known_selection(timeline, asked)
            except WhyError as error:
                raise ConfigError(str(error)) from None
        self.feed.select(asked)

    @property
    def moment(self) -> int | None:
        """The moment that the views show, as a number of events; None is the newest. Settable."""
        timeline = self._recording()
        moment = self.feed.moment
        if self._shown is not None:
            generation, end, shown_moment = self._shown
            if (generation, end) == (timeline.generation, timeline.end):
                return shown_moment
            moment = None if moment == shown_moment else moment  # later events have moved the views to the newest
        return None if moment == timeline.end else moment

    @moment.setter
    def moment(self, moment: int | None) -> None:
        timeline = self._recording()
        kept = range(timeline.num_dropped, timeline.end + 1)
        if moment is not None and (not is_single_int(moment) or moment not in kept):
            known = f"here {kept[0]} to {kept[-1]}, or None for the newest"
            raise ConfigError(f"moment must be a number of events, {known}, got {shown(moment)}")
        self._move_views(as_int(moment))

    def _show_hit(self, hit: BreakpointHit) -> None:
        """Have the views, if any, show the event that ended a run."""
        if self._feed is not None and hit.moment is not None:
            self._move_views(hit.moment)

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> Look:
        """Show the state after a step, or after an event inside it (counted from 0); the engine does not move.

        0 is before the first step; "crash" is the moment at which a part raised, before the step was rolled back. The
        views show it, too. ConfigError for a moment that is not recorded.
        """
        if step == CRASH:
            return self._look(self._crash_moment(event))
        return self._look(moment_of(self._recording(), step, event))

    def back(self, num_steps: int = 1) -> Look:
        """Show the end of the step `num_steps` before the one that the views show."""
        return self._look(*steps_before([self._recording()], [self.moment], num_steps))

    def forward(self, num_steps: int = 1) -> Look:
        """Show the end of the step `num_steps` after the one that the views show, at most the newest."""
        return self._look(*steps_after([self._recording()], [self.moment], num_steps))

    def _crash_moment(self, event: int | None = None) -> int:
        if event is not None:
            raise ConfigError(f'goto("crash") is a single moment: omit event={event!r}')
        timeline, crash = self._recording(), self.crash
        if crash is None:
            raise ConfigError('goto("crash"): no part has raised an exception inside a step')
        return crash.moment_in(timeline)

    def _look(self, moment: int) -> Look:
        timeline = self._recording()
        self._move_views(None if moment == timeline.end else moment)
        look, newest = Look.at(timeline, moment), timeline.state().step
        if moment == timeline.end or not self.view_source().is_live:
            return look
        return replace(look, text=f"{look.text}\nOnly the views have moved; the engine is still after step {newest}.")

    def _move_views(self, moment: int | None) -> None:
        timeline = self._recording()
        self._shown = None if moment is None else (timeline.generation, timeline.end, moment)
        self.feed.show_moment(moment)

    def _note_reader_moved(self, moment: int | None) -> None:
        self._shown = None

    def _recording(self) -> Timeline:
        if self.timeline is None:
            raise ConfigError("this lab has no recording: it was made with record=False")
        return self.timeline

    # -- questions and exports -----------------------------------------------------------------------------------------

    def why(self, *selected: Any, **subject: Any) -> Why:
        """Explain the state of a subject at the shown moment: a chain of events, each with the reason in the code.

        subject: block=3 (about="ref_count", "lost", "free", "queue"), request=2 or "C" (about="hit", "preempted" ...),
        hash="0:ab12", event=17, next_victim=True. Or the selection: lab.why(lab.selection).
        """
        with interrupts_deferred():
            from labengine_widgets.why import why

        if "request" in subject:
            subject = {**subject, "request": request_id_of(subject["request"])}
        asked: Any = (*selected, subject) if selected and subject else selected or (subject,)
        of, about = self.view_source(), asked[0] if len(asked) == 1 else asked
        return why(self._recording(), about, self.moment, seams=of.seams(), engine_ids=of.engine_id)

    def events_frame(self) -> pandas.DataFrame:
        """Return the recorded events as a pandas frame, one per row. ConfigError without pandas or a recording."""
        return events_frame(self.timeline)

    def export_html(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write one HTML file to scrub through the run, without Python or a network; return its path."""
        with interrupts_deferred():
            from labengine_widgets.pages.export import export_html

        if title is not None:
            checked_text("title", title)
        self._recording()
        with self._held_still():
            return export_html(self.view_source(), path, title)


class _Picture(Looking):
    """A recording at an earlier moment. It never changes."""

    def __init__(self, source: RecordingViewSource, of: Looking) -> None:
        self.timeline, self._source, self._of = source.timeline, source, of
        self._begin_looking()
        self.feed.show_moment(source.moment)

    @property
    def crash(self) -> Crash | None:
        """The newest crash of the whole recording."""
        return self._of.crash

    def snapshot(self) -> Snapshot:
        """Return the state at the picture's moment."""
        return self._source.fold().snapshot()

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self._source.token_text(token_id)

    def view_source(self) -> RecordingViewSource:
        """Return the views' interface to the picture."""
        return self._source
