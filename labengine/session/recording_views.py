"""The views of one recording, and the operations on it: go to a moment, ask why, export.

A lab and an opened trace have one instance each. A view with at= has its own, for a recording that ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from labengine.config import ConfigError, as_int, checked_text, is_single_int, shown
from labengine.engine.interrupts import interrupts_deferred
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
from labengine.session.view_source import At, picture_of

if TYPE_CHECKING:  # widgets and pandas are loaded for views only
    import pandas

    from labengine_widgets.feed.feed import Feed
    from labengine_widgets.selection import Selection
    from labengine_widgets.view import Dashboard
    from labengine_widgets.view_source import ViewSource
    from labengine_widgets.why import Why

# Widgets are imported inside functions, with interrupts deferred: a module whose import was cut off stays broken.

CRASH: Final = "crash"
"""In place of a step: the moment of the newest crash."""


class RecordingViews:
    """The widgets of one recording, made once each, and the moment that they show.

    view_source: returns the widgets' interface. crash: returns the newest crash. held_still: a context manager during
    which nothing is recorded. xray: makes the attention X-ray; None without a model.
    """

    def __init__(
        self,
        timeline: Timeline | None,
        view_source: Callable[[], ViewSource],
        *,
        crash: Callable[[], Crash | None],
        held_still: Callable[[], AbstractContextManager[None]] = nullcontext,
        xray: MakeXRay | None = None,
    ) -> None:
        self._timeline, self._view_source, self._crash = timeline, view_source, crash
        self._held_still, self._xray = held_still, xray
        self._feed: Feed | None = None
        self._views: dict[tuple[object, ...], Closeable] = {}
        """Widgets by their views' key."""
        self._newest_picture: tuple[object, RecordingViews] | None = None
        self._shown: tuple[int, int, int] | None = None
        """(generation, end, moment) of the last call that moved the views; outdated once an event is added."""

    # -- views ---------------------------------------------------------------------------------------------------------

    def show(self, at: At | None = None, names: tuple[str, ...] = ()) -> Dashboard:
        """Return the dashboard, always the same one, with all views or those named; with `at` that of a picture."""
        if at is not None:
            return self._picture(at).show(None, names)
        names = view_names(names)
        refuse_outside_dashboard(names)
        with interrupts_deferred():
            from labengine_widgets.view import Dashboard

        dashboard = self._view(("dashboard", *names), lambda: Dashboard(self.feed, names))
        assert isinstance(dashboard, Dashboard)
        return dashboard

    @property
    def has_dashboard(self) -> bool:
        """True once a dashboard was shown, and until it is closed."""
        return any(key[0] == "dashboard" for key in self._views)

    def view(self, names: tuple[str, ...], at: At | None, settings: dict[str, Any]) -> Closeable:
        """Return a widget with the views of these names; with `at` that of a picture."""
        if at is not None:
            return self._picture(at).view(names, None, settings)
        names = view_names(names)
        make = view_of(names, settings, lambda: self.feed, self._xray)
        return self._view(key_of_view(names, settings), make)

    @property
    def widgets(self) -> list[Closeable]:
        """The widgets made so far."""
        return list(self._views.values())

    @property
    def feed(self) -> Feed:
        """The feed of all views of this recording."""
        if self._feed is None:
            with interrupts_deferred():
                from labengine_widgets.feed.feed import feed_of

                self._feed = feed_of(self._view_source())
                self._feed.on_moment_shown = self._note_reader_moved
        return self._feed

    def _view(self, key: tuple[object, ...], make: Callable[[], Closeable]) -> Closeable:
        if key not in self._views:
            with interrupts_deferred():
                self._keep_one(key, make())
        return self._views[key]

    def _keep_one(self, key: tuple[object, ...], made: Closeable) -> None:
        """Keep the first of the views that several threads have made at once."""
        if self._views.setdefault(key, made) is not made:
            made.close()

    def _picture(self, at: At) -> RecordingViews:
        """Return the views of this recording at a moment: the same ones for equal moments, until an event is added."""
        timeline = self._recording()
        key = (timeline.generation, timeline.end, repr(at))
        newest = self._newest_picture
        if newest is None or newest[0] != key:
            with interrupts_deferred():
                newest = self._newest_picture = key, self._new_picture(timeline, at)
        return newest[1]

    def _new_picture(self, timeline: Timeline, at: At) -> RecordingViews:
        of = self._view_source()
        named = (of.title, of.lab, of.token_text, of.seams())
        source = picture_of(timeline, *named, at, self._crash_moment, of.engine_id)
        picture = RecordingViews(source.timeline, lambda: source, crash=self._crash)
        picture.feed.show_moment(source.moment)
        return picture

    def settle(self) -> None:
        """Stop the thread of all views, which keep their last state: nothing is recorded any more."""
        if self._feed is not None:
            self._feed.settle()

    def close(self) -> None:
        """Remove all views, and their feed with its states."""
        views, self._views, self._feed = self._views, {}, None
        for view in views.values():
            view.close()

    # -- the selection and the shown moment ----------------------------------------------------------------------------

    @property
    def selection(self) -> Selection | None:
        """The selection of all views."""
        return self.feed.selection

    def select(self, wanted: Selection | tuple[str, int | str] | None) -> None:
        """Select a subject in all views. Raises ConfigError, naming those that exist, for an unknown subject."""
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
            raise ConfigError(f'a selection is a Selection, such as ("block", 3), or None; got {shown(asked)}')
        if asked is not None:
            timeline = self.feed.timeline or Timeline.starting_at(self._view_source().fold())
            try:
                asked = known_selection(timeline, asked)
            except WhyError as error:
                raise ConfigError(str(error)) from None
        self.feed.select(asked)

    @property
    def moment(self) -> int | None:
        """The number of events after which the views show the state; None is the newest moment."""
        timeline = self._recording()
        moment = self.feed.moment
        if self._shown is not None:
            generation, end, shown_moment = self._shown
            if (generation, end) == (timeline.generation, timeline.end):
                return shown_moment
            moment = None if moment == shown_moment else moment  # later events have brought the views to the newest
        return None if moment == timeline.end else moment

    def show_moment(self, moment: int | None) -> None:
        """Have the views show a moment. ConfigError for one that is not recorded."""
        timeline = self._recording()
        kept = range(timeline.num_dropped, timeline.end + 1)
        if moment is not None and (not is_single_int(moment) or moment not in kept):
            known = f"here {kept[0]} to {kept[-1]}, or None for the newest"
            raise ConfigError(f"a moment is a number of events, {known}; got {shown(moment)}")
        self._move_views(as_int(moment))

    def show_hit(self, hit: BreakpointHit) -> None:
        """Have the views, if there are any, show the event for which a run has ended."""
        if self._feed is not None and hit.moment is not None:
            self._move_views(hit.moment)

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> Look:
        """Show the state after a step, or after an event inside it."""
        if step == CRASH:
            return self._look(self._crash_moment(event))
        return self._look(moment_of(self._recording(), step, event))

    def back(self, num_steps: int = 1) -> Look:
        """Show the end of the step so many before the one that the views show."""
        return self._look(steps_before(self._recording(), self.moment, num_steps))

    def forward(self, num_steps: int = 1) -> Look:
        """Show the end of the step so many after the one that the views show, up to the newest."""
        return self._look(steps_after(self._recording(), self.moment, num_steps))

    def _crash_moment(self, event: int | None = None) -> int:
        if event is not None:
            raise ConfigError(f'goto("crash") is one moment: leave event={event!r} out')
        timeline, crash = self._recording(), self._crash()
        if crash is None:
            raise ConfigError('goto("crash"): no part has raised an exception inside a step')
        return crash.moment_in(timeline)

    def _look(self, moment: int) -> Look:
        timeline = self._recording()
        self._move_views(None if moment == timeline.end else moment)
        look, newest = Look.at(timeline, moment), timeline.state().step
        if moment == timeline.end or not self._view_source().is_live:
            return look
        return replace(look, text=f"{look.text}\nOnly the views go there; the engine stays after step {newest}.")

    def _move_views(self, moment: int | None) -> None:
        timeline = self._recording()
        self._shown = None if moment is None else (timeline.generation, timeline.end, moment)
        self.feed.show_moment(moment)

    def _note_reader_moved(self, moment: int | None) -> None:
        self._shown = None

    def _recording(self) -> Timeline:
        if self._timeline is None:
            raise ConfigError("nothing is recorded: this lab was made with record=False")
        return self._timeline

    # -- questions and exports -----------------------------------------------------------------------------------------

    def why(self, selected: tuple[Any, ...], subject: dict[str, Any]) -> Why:
        """Return the answer to why a subject is as it is at the shown moment."""
        with interrupts_deferred():
            from labengine_widgets.why import why

        if "request" in subject:
            subject = {**subject, "request": request_id_of(subject["request"])}
        asked: Any = (*selected, subject) if selected and subject else selected or (subject,)
        of, about = self._view_source(), asked[0] if len(asked) == 1 else asked
        return why(self._recording(), about, self.moment, seams=of.seams(), engine_ids=of.engine_id)

    def events_frame(self) -> pandas.DataFrame:
        """Return the recorded events as a pandas frame, one row each."""
        return events_frame(self._timeline)

    def export_html(self, path: str | PathLike[str], title: str | None) -> Path:
        """Write one self-contained HTML page; return its path."""
        with interrupts_deferred():
            from labengine_widgets.pages.export import export_html

        if title is not None:
            checked_text("title", title)
        self._recording()
        with self._held_still():
            return export_html(self._view_source(), path, title)
