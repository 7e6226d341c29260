"""What one does with a recording in views: show it, go to a moment, ask why, export. For labs and opened traces."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labengine.session.history.moments import Look
from labengine.session.named_views import Closeable
from labengine.session.recording_views import RecordingViews
from labengine.session.view_source import At

if TYPE_CHECKING:  # pandas and widgets, for views only
    import pandas

    from labengine_widgets.feed.feed import Feed
    from labengine_widgets.selection import Selection
    from labengine_widgets.view import Dashboard
    from labengine_widgets.why import Why


class Looking:
    """The methods of whoever has a recording's views."""

    _views: RecordingViews

    def show(self, *names: str, at: At | None = None) -> Dashboard:
        """Return the dashboard, always the same one. at: a picture of an earlier moment instead, see `view`.

        names: the views that it has, for readers who have not met the others: "pool", "tables", "queue" ...
        """
        return self._views.show(at, names)

    def view(self, *names: str, at: At | None = None, **settings: Any) -> Closeable:
        """Return one view alone, or several beside each other: "pool", "tables", "map", "queue", "timeline" ...

        at: the moment to show, as for `goto`: 2 is the end of step 2, (2, 5) is after event 5 of step 2, "crash" is
        where a part has raised. Such a view stays there, whatever the lab does later; the reader can go back in it,
        and on to the end of that step.
        view("pool", plain=True) draws the blocks for somebody who sees them for the first time: words and users, and
        nothing to count; ← and → go event by event.
        view("xray", request=0, position=None) is a figure of plotly: the attention of a token in a real model. Raises
        ConfigError for an unknown name, listing the known ones, and for a moment that is not recorded.
        """
        return self._views.view(names, at, settings)

    @property
    def feed(self) -> Feed:
        """The feed of all views."""
        return self._views.feed

    @property
    def selection(self) -> Selection | None:
        """The selection of all views. Settable: Selection("block", 3), ("request", "A"), or None for nothing.

        Raises ConfigError, naming those that exist, for an unknown subject.
        """
        return self._views.selection

    @selection.setter
    def selection(self, selected: Selection | tuple[str, int | str] | None) -> None:
        self._views.select(selected)

    @property
    def moment(self) -> int | None:
        """The moment that the views show: after that many events; None is the newest. Settable."""
        return self._views.moment

    @moment.setter
    def moment(self, moment: int | None) -> None:
        self._views.show_moment(moment)

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> Look:
        """Show the state after a step, or after an event inside it (counted from 0); the engine does not move.

        0 is before the first step; "crash" is the moment at which a part raised, before the step was rolled back. The
        views show it, too. ConfigError for what is not recorded.
        """
        return self._views.goto(step, event)

    def back(self, num_steps: int = 1) -> Look:
        """Show the end of the step before the one that the views show; several times, or so many steps back."""
        return self._views.back(num_steps)

    def forward(self, num_steps: int = 1) -> Look:
        """Show the end of the step after the one that the views show, up to the newest."""
        return self._views.forward(num_steps)

    def why(self, *selected: Any, **subject: Any) -> Why:
        """Answer why a subject is as it is at the shown moment: a chain of events, each with the reason in the code.

        subject: block=3 (about="ref_count", "lost", "free", "queue"), request=2 or "C" (about="hit", "preempted" ...),
        hash="0:ab12", event=17, next_victim=True. Or the selection: lab.why(lab.selection).
        """
        return self._views.why(selected, subject)

    def events_frame(self) -> pandas.DataFrame:
        """Return the recorded events as a pandas frame, one row each. ConfigError without pandas, or a recording."""
        return self._views.events_frame()

    def export_html(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write one HTML file in which the run scrubs, with no Python and no network; return its path."""
        return self._views.export_html(path, title)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._views.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self._views.show()._ipython_display_()
