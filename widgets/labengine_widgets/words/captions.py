"""Captions of a recording: one sentence per run of events, at the moment after the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from labengine import events as ev
from labengine.record.phases import phase_after
from labengine.record.timeline import Timeline
from labengine_widgets.words.event_runs import runs
from labengine_widgets.words.mentions import Sentence
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import opening_sentence, sentence

Caption = tuple[int, Sentence, str | None]
"""(moment after its events, sentence, phase)."""

MAX_CAPTIONED = 20_000
"""Maximum number of events that get captions at once; of a longer stretch, the first ones."""


MAX_FOLLOWED = 5_000
"""Maximum number of events to replay; a longer way is a jump to a state of the recording."""


def captions_of(timeline: Timeline, start: int, end: int, token_text: Callable[[int], str] = str) -> list[Caption]:
    """Return the captions of the events between two moments. IndexError for moments that are not recorded."""
    return CaptionWriter(timeline, token_text).captions(start, end)


def caption_rows(captions: Iterable[Caption]) -> list[list[Any]]:
    """Return captions as JSON types, for a browser."""
    return [[moment, words.row(), phase] for moment, words, phase in captions]


class CaptionWriter:
    """Writes captions for stretches of one recording; cheap for stretches that follow one another."""

    def __init__(self, timeline: Timeline, token_text: Callable[[int], str] = str) -> None:
        self._timeline, self._token_text = timeline, token_text
        self._jump(timeline.num_dropped)

    def captions(self, start: int, end: int) -> list[Caption]:
        """Return the captions of at most MAX_CAPTIONED events. IndexError for moments that are not recorded."""
        self.move_to(start)
        found: list[Caption] = []
        for run in runs(self._timeline.events(start, min(end, start + MAX_CAPTIONED))):
            self._follow(run.events)
            self._scene.update()
            found.append((self.moment, sentence(run.captioned, self._scene), self._phase))
        return found

    def opening_sentence(self, moment: int) -> Sentence:
        """Return the caption for a view that opens at a moment."""
        self.move_to(moment)
        return opening_sentence(self._scene)

    def move_to(self, moment: int) -> None:
        """Move to a moment: replay events if it is near, load a state of the recording otherwise."""
        is_near = 0 <= moment - self.moment <= MAX_FOLLOWED and self.moment >= self._timeline.num_dropped
        if not is_near or self.generation != self._timeline.generation:
            self._jump(moment)
        self._follow(self._timeline.events(self.moment, moment))
        self._scene.update()

    def _jump(self, moment: int) -> None:
        self.generation = self._timeline.generation
        self.moment = moment
        self._phase: str | None = None
        self._scene = Scene.at(self._timeline, moment, self._token_text)

    def _follow(self, events: Sequence[ev.Event]) -> None:
        corrected = {moment for moment, _ in self._timeline.corrections(self.moment, self.moment + len(events))}
        for event in events:
            self.moment += 1
            if type(event) is ev.StepRolledBack or self.moment in corrected:
                self._scene = Scene.at(self._timeline, self.moment, self._token_text)
            else:
                self._scene.apply(event)
            self._phase = phase_after(event, self._phase)


class SharedCaptions:
    """Captions of a lab for any thread."""

    def __init__(self, recording: Callable[[], Timeline], token_text: Callable[[int], str]) -> None:
        self._recording, self._token_text = recording, token_text
        self._guard = threading.RLock()
        self._writer: CaptionWriter | None = None

    def forget(self) -> None:
        """Start again, because the recording was replaced or writing a caption failed."""
        with self._guard:
            self._writer = None

    def captions(self, start: int, end: int) -> list[Caption]:
        """Return the captions between two moments."""
        with self._guard:
            return self._known().captions(start, end)

    def opening_sentence(self, moment: int) -> Sentence:
        """Return the caption for a view that opens at a moment."""
        with self._guard:
            return self._known().opening_sentence(moment)

    def _known(self) -> CaptionWriter:
        if self._writer is None:
            self._writer = CaptionWriter(self._recording(), self._token_text)
        return self._writer
