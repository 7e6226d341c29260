"""The dashboard: a lab's pool, tables, map and queue, played event by event, with the controls to step it."""

from __future__ import annotations

from labengine_widgets.feed import Feed
from labengine_widgets.payload import step_start
from labengine_widgets.view import View
from labengine_widgets.view_source import ViewSource

LOOK_AHEAD = 1_000
"""Events after the one to show among which the end of its beat is looked for: what is told together is shown so."""


class Dashboard(View):
    """Everything about one lab at once; any number of them may watch the same one."""

    def __init__(self, source: Feed | ViewSource) -> None:
        super().__init__(source, {"kind": "dashboard", "views": []})

    def open_at(self, moment: int) -> None:
        """Show the state right after event number `moment` of the timeline; from there the reader goes back and forth.

        Until the lab moves on. A moment that is not recorded any more shows the state now.
        """
        feed = self.feeds[0]
        timeline = feed.timeline
        if timeline is None or not timeline.num_dropped <= moment < timeline.end:
            return feed.stand(None)
        told = feed.words(step_start(timeline, moment), min(timeline.end, moment + LOOK_AHEAD))
        feed.stand(next((at for at, _, _ in told if at > moment), moment + 1))
