"""What can be done with a recording, be it a running lab's or one that was saved: look, go to a moment, ask, export."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import index
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from labengine.config import ConfigError, checked_bool, checked_text, is_single_int, shown
from labengine.engine.interrupts import interrupts_deferred
from labengine.session.request_names import request_id_of
from labengine.session.time.crash import Crash, newest_crash
from labengine.session.time.moments import Look, moment_of, steps_after, steps_before
from labengine.timeline import Timeline

if TYPE_CHECKING:
    import pandas

    from labengine.session.frozen import At, Frozen
    from labengine_widgets.dashboard import Dashboard
    from labengine_widgets.feed import Feed
    from labengine_widgets.selection import Selection
    from labengine_widgets.view_source import ViewSource
    from labengine_widgets.why import Why


CRASH: Final = "crash"
"""In place of a step: where the newest crash happened."""


class Closeable(Protocol):
    """A widget."""

    def close(self) -> None:
        """End it."""


@runtime_checkable
class Listening(Protocol):
    """A widget that listens to the engine itself, not through a feed."""

    def settle(self) -> None:
        """Stop listening and stay as it is."""


Views = dict[tuple[object, ...], Closeable]
"""Widgets by what they show."""


class Recorded:
    """A recording and its views. Whoever has one gives `timeline` and `view_source()`; the rest follows."""

    timeline: Timeline | None
    view_source: Callable[[], ViewSource]
    _own_feed: Feed | None = None
    _views: Views | None = None
    _newest_frozen: tuple[object, Frozen] | None = None
    _standing: tuple[int, int, int] | None = None
    """(generation, end, moment): where Python has put the views, until something happens."""

    # -- views ---------------------------------------------------------------------------------------------------------

    def show(self, *, at: At | None = None) -> Dashboard:
        """The dashboard, always the same one. at: a picture of an earlier moment instead, see `view`."""
        if at is not None:
            return self._frozen(at).show()
        with interrupts_deferred():  # a module whose import was cut off stays broken
            from labengine_widgets.dashboard import Dashboard

        dashboard = self._view(("dashboard",), lambda: Dashboard(self.feed))
        assert isinstance(dashboard, Dashboard)
        return dashboard

    def view(self, *names: str, at: At | None = None, **settings: Any) -> Closeable:
        """One view alone, or several beside each other: "pool", "tables", "map", "queue", "timeline" ...

        at: the moment to show, as for `goto`: 2 is the end of step 2, (2, 5) is after event 5 of step 2, "crash" is
        where a part has raised. Such a view stays there, whatever the lab does later; the reader can go back in it,
        and on to the end of that step.
        Two are figures of plotly, each alone: "charts", and "xray" (request=0, position=None), what a token of the real
        model looks at. ConfigError for a name that no view has (it lists those there are), and for a moment that is not
        recorded.
        """
        from labengine.session.views import key_of_view, named, view_of

        if at is not None:
            return self._frozen(at).view(*names, **settings)

        names = tuple(map(named, names))
        return self._view(key_of_view(names, settings), lambda: view_of(self, names, settings))

    def _view(self, key: tuple[object, ...], make: Callable[[], Closeable]) -> Closeable:
        views: Views = vars(self).setdefault("_views", {})
        if key not in views:
            with interrupts_deferred():
                self._keep_one(views, key, make())
        return views[key]

    def _keep_one(self, views: Views, key: tuple[object, ...], made: Closeable) -> None:
        """Keep the first of the views that several threads have made at once; settle it if the lab is closed by now."""
        if views.setdefault(key, made) is not made:
            made.close()
        elif not self.view_source().is_live and isinstance(made, Listening):
            made.settle()

    def _frozen(self, at: At) -> Frozen:
        """The recording at a moment: the same one for equal moments, until something happens."""
        from labengine.session.frozen import frozen

        timeline = self._recording()
        key = (timeline.generation, timeline.end, repr(at))
        newest = self._newest_frozen
        if newest is None or newest[0] != key:
            with interrupts_deferred():
                newest = self._newest_frozen = key, frozen(timeline, self.view_source(), at, self._crash_moment)
        return newest[1]

    def _settle_views(self) -> None:
        """Nothing is recorded any more: the views stay, without a thread or a listener."""
        for view in list((self._views or {}).values()):
            if isinstance(view, Listening):
                view.settle()
        if self._own_feed is not None:
            self._own_feed.settle()

    def _close_views(self) -> None:
        for view in vars(self).pop("_views", {}).values():
            view.close()

    @property
    def feed(self) -> Feed:
        """What all views of this recording hang on."""
        if self._own_feed is None:
            with interrupts_deferred():
                from labengine_widgets.feed import feed_of

                self._own_feed = feed_of(self.view_source())
                self._own_feed.on_stand = self._hear_where
        return self._own_feed

    # -- what is chosen, and where one stands --------------------------------------------------------------------------

    @property
    def selection(self) -> Selection | None:
        """What is chosen in all views. Settable: Selection("block", 3), ("request", "A"), or None for nothing.

        ConfigError for what is not there, naming what is.
        """
        return self.feed.selection

    @selection.setter
    def selection(self, chosen: Selection | tuple[str, int | str] | None) -> None:
        from labengine_widgets.chosen import known_selection
        from labengine_widgets.selection import Selection
        from labengine_widgets.why import WhyError

        if isinstance(chosen, (tuple, list)) and len(chosen) == 2:
            kind, id_ = chosen
            id_ = request_id_of(id_) if kind == "request" else id_  # type: ignore[assignment]
            try:
                chosen = Selection(kind, id_)  # type: ignore[arg-type]  # it judges the kind itself
            except (TypeError, ValueError) as error:
                raise ConfigError(str(error)) from None
        if not isinstance(chosen, Selection | None):
            raise ConfigError(f'a selection is a Selection, such as ("block", 3), or None; got {shown(chosen)}')
        if chosen is not None:
            timeline = self.feed.timeline or Timeline.starting_at(self.view_source().fold())
            try:
                chosen = known_selection(timeline, chosen)
            except WhyError as error:
                raise ConfigError(str(error)) from None
        self.feed.select(chosen)

    @property
    def moment(self) -> int | None:
        """Where the views stand: after that many events; None is the newest moment. Settable, and the views follow."""
        timeline = self._recording()
        moment = self.feed.moment
        if self._standing is not None:
            generation, end, stood = self._standing
            if (generation, end) == (timeline.generation, timeline.end):
                return stood
            moment = None if moment == stood else moment  # what has happened since has brought it to the newest
        return None if moment == timeline.end else moment

    @moment.setter
    def moment(self, moment: int | None) -> None:
        timeline = self._recording()
        kept = range(timeline.num_dropped, timeline.end + 1)
        if moment is not None and (not is_single_int(moment) or moment not in kept):
            known = f"here {kept[0]} to {kept[-1]}, or None for the newest"
            raise ConfigError(f"a moment is a number of events, {known}; got {shown(moment)}")
        self._stand(moment)

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part has raised inside a step; None without one."""
        return newest_crash(self._recording())

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> Look:
        """Look at the state after a step, or after an event inside it (counted from 0); the engine does not move.

        0 is before the first step; "crash" is the moment at which a part raised, before the step was taken back. The
        views stand there, too. ConfigError for what is not recorded.
        """
        if step == CRASH:
            return self._look(self._crash_moment(event))
        return self._look(moment_of(self._recording(), step, event))

    def _crash_moment(self, event: int | None = None) -> int:
        if event is not None:
            raise ConfigError(f'goto("crash") is one moment: leave event={event!r} out')
        timeline, crash = self._recording(), self.crash
        if crash is None:
            raise ConfigError('goto("crash"): no part has raised an exception inside a step')
        return crash.moment_in(timeline)

    def back(self, num_steps: int = 1) -> Look:
        """Look at the end of the step before the one that the views stand at; several times, or so many steps back."""
        return self._look(steps_before(self._recording(), self.moment, num_steps))

    def forward(self, num_steps: int = 1) -> Look:
        """Look at the end of the step after the one that the views stand at, up to the newest."""
        return self._look(steps_after(self._recording(), self.moment, num_steps))

    def _look(self, moment: int) -> Look:
        timeline = self._recording()
        self._stand(None if moment == timeline.end else moment)
        return Look.at(timeline, moment)

    def _stand(self, moment: int | None) -> None:
        timeline = self._recording()
        moment = None if moment is None else index(moment)
        self._standing = None if moment is None else (timeline.generation, timeline.end, moment)
        self.feed.stand(moment)

    def _hear_where(self, moment: int | None) -> None:
        """The reader has moved."""
        self._standing = None

    def _recording(self) -> Timeline:
        if self.timeline is None:
            raise ConfigError("nothing is recorded: this lab was made with record=False")
        return self.timeline

    # -- asking and taking along ---------------------------------------------------------------------------------------

    def why(self, *chosen: Any, **subject: Any) -> Why:
        """Why it is so at the moment where the views stand: a chain of events, each with the reason in the code.

        subject: block=3 (about="ref_count", "lost", "free", "queue"), request=2 or "C" (about="hit", "preempted" ...),
        hash="0:ab12", event=17, next_victim=True. Or what is chosen: lab.why(lab.selection).
        """
        with interrupts_deferred():
            from labengine_widgets.why import why

        if "request" in subject:
            subject["request"] = request_id_of(subject["request"])
        asked: Any = (*chosen, subject) if chosen and subject else chosen or (subject,)
        return why(
            self._recording(), asked[0] if len(asked) == 1 else asked, self.moment, seams=self.view_source().seams()
        )

    def events_frame(self) -> pandas.DataFrame:
        """The recorded events as a pandas frame, one row each. ConfigError without pandas, or without a recording."""
        with interrupts_deferred():
            from labengine.session.saved.frame import events_frame

        return events_frame(self.timeline)

    def export_html(self, path: str | PathLike[str], title: str | None = None, *, charts: bool = False) -> Path:
        """Write one HTML file in which the run scrubs, with no Python and no network; returns its path.

        charts: the figures of `view("charts")` too, with plotly itself (5 MB more).
        """
        with interrupts_deferred():
            from labengine_widgets.page import export_html

        charts = checked_bool("charts", charts)
        if title is not None:
            checked_text("title", title)
        self._recording()
        with self._still():
            return export_html(self.view_source(), path, title, charts=charts)

    def _still(self) -> AbstractContextManager[None]:
        """While nothing is recorded."""
        return nullcontext()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_()
