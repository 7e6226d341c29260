"""The widget of a workload that is run again with other figures: sliders above the pool, or above both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from labengine_widgets.browser import POOL
from labengine_widgets.compare.link import checked_changes, send_run, varied_message
from labengine_widgets.compare.view import CompareView
from labengine_widgets.feed.feed import Feed, feed_of
from labengine_widgets.view import View
from labengine_widgets.view_source import PairViewSource, ViewSource


class Varied(Protocol):
    """A workload and the figures that can be changed. is_plain: its pool is drawn in plain terms."""

    is_plain: bool

    def change(self, changes: Mapping[str, int]) -> ViewSource | PairViewSource:
        """Run it with these figures, and return the run. An error's message says why that is impossible."""

    def to_dict(self) -> dict[str, Any]:
        """Return {figures, outcome, note} of the newest run, as JSON types."""


class VaryView(View):
    """The pool of the newest run, with sliders; a run that is impossible leaves the picture as it is."""

    varied: Varied

    def receive(self, content: object) -> None:
        """As BrowserLink.receive; {"type": "vary", changes} runs the workload again."""
        if isinstance(content, dict) and content.get("type") == "vary":
            self.vary(content.get("changes"))
        else:
            super().receive(content)

    def vary(self, changes: object) -> None:
        """Show the run with these figures in every browser half, or say why there is none."""
        try:
            run = self.varied.change(checked_changes(changes))
        except Exception as error:  # a user's part may raise anything
            self.send(varied_message(self.varied.to_dict(), str(error) or type(error).__name__))
            return
        for feed in self.feeds:
            feed.detach(self)
        self.feeds = self._follow_run(run)
        for side, feed in enumerate(self.feeds):
            feed.attach(self, side)
        send_run(self)
        message = varied_message(self.varied.to_dict())
        self.arrangement = {**self.arrangement, "varied": message["varied"]}
        self.send(message)
        self.update_saved()

    def _follow_run(self, run: Any) -> list[Feed]:
        return [feed_of(run)]


class PairVaryView(VaryView, CompareView):
    """Both sides of the newest run of a comparison, with sliders."""

    def _follow_run(self, run: Any) -> list[Feed]:
        self.follow(run)
        return [feed_of(side) for side in run.view_sources]


def view_of(varied: Varied) -> VaryView:
    """Return the widget of a workload, with the run of its recorded figures. Raises the run's errors."""
    run: Any = varied.change({})
    view = PairVaryView(run) if hasattr(run, "view_sources") else VaryView(run, POOL)
    view.varied = varied
    view.arrangement = {**view.arrangement, "varied": varied.to_dict(), "is_plain": varied.is_plain}
    return view
