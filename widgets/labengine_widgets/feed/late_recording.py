"""A recording for a lab that keeps none: it begins when the first view is attached."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine_widgets.view_source import ViewSource


class LateRecording:
    """A recording that starts late. `timeline` is None until the state can be read between two events.

    While a lab runs, this is possible at the start of a step. Does nothing for a lab that records.
    """

    def __init__(self, source: ViewSource) -> None:
        self._view_source = source
        self.timeline: Timeline | None = None
        self._num_heard = 0
        self._subscription = None
        if source.timeline is None and source.hooks is not None:
            self._subscription = source.hooks.subscribe(self._hear)
            self._take_state()

    def close(self) -> None:
        """Stop recording."""
        if self._subscription is not None:
            self._subscription.close()

    def _take_state(self) -> None:
        for _ in range(3):
            num_heard, state = self._num_heard, self._view_source.fold()
            if num_heard == self._num_heard and self.timeline is None:
                self.timeline = Timeline.starting_at(state)
                return

    def _hear(self, event: ev.Event) -> None:
        self._num_heard += 1
        if self.timeline is None and type(event) is ev.StepStarted:
            self.timeline = Timeline.starting_at(self._view_source.fold())
        if self.timeline is not None:
            self.timeline.record(event)
