"""Captions of a comparison as it grows, and the document in which they are sent to a browser half."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ge
from typing import Any

from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine_widgets.compare.alignment import Ends, Pair, aligned
from labengine_widgets.compare.configuration import shift_of
from labengine_widgets.compare.first_difference import (
    DifferencePlace,
    distinct_sentences,
    is_decision,
    place_of_difference,
    why_different,
)
from labengine_widgets.view_source import GuidedSentence, PairViewSource
from labengine_widgets.words.captions import MAX_CAPTIONED
from labengine_widgets.words.mentions import Sentence
from labengine_widgets.words.names import ContentIndex
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import opening_sentence, sentence


@dataclass(frozen=True, slots=True)
class PairCaption:
    """A pair with its sentences. sentence: for both sides; left, right: for each side, where they differ.

    All are empty for old pairs of a long recording. stop: index of the guided sentence reached here.
    """

    pair: Pair
    sentence: Sentence
    left: Sentence | None = None
    right: Sentence | None = None
    stop: int | None = None

    def row(self) -> list[Any]:
        """Return the caption as a row of JSON types."""
        pair = self.pair
        step = next((event.step for event in (*pair.left, *pair.right) if isinstance(event, ev.StepStarted)), None)
        left, right = (side and side.row() for side in (self.left, self.right))
        return [pair.ends, self.sentence.row(), pair.phase, pair.differs, left, right, self.stop, step]


class PairCaptions:
    """The captions of two timelines, numbered from 0. Those before `num_settled` no longer change.

    token_texts: for each side, the function that returns a token's text. guide: sentences in the order in which they
    are due.
    """

    def __init__(
        self,
        left: Timeline,
        right: Timeline,
        token_texts: tuple[Callable[[int], str], Callable[[int], str]] = (str, str),
        guide: Sequence[GuidedSentence] = (),
    ) -> None:
        self.timelines, self.guide = (left, right), guide
        self._token_texts = token_texts
        self._begin()

    def _begin(self) -> None:
        self.generations = tuple(timeline.generation for timeline in self.timelines)
        self.starts: Ends = (self.timelines[0].num_dropped, self.timelines[1].num_dropped)
        self.first = 0
        self.captions: list[PairCaption] = []
        self.difference: DifferencePlace | None = None
        self.num_settled = 0
        self._settled: Ends = self.starts
        self._next_stop = self._settled_stop = 0
        self._contents = (ContentIndex(), ContentIndex())
        self._scenes = self._scenes_at(self.starts)
        self._shift: int | None = None

    @property
    def end(self) -> int:
        """Number of captions so far, including dropped ones."""
        return self.first + len(self.captions)

    @property
    def newest(self) -> Ends:
        """The moments (left, right) after the newest caption."""
        return self.captions[-1].pair.ends if self.captions else self.starts

    def number_at(self, side: int, moment: int) -> int:
        """Return the number of captions after which a side has reached a moment; all of them if it has not."""
        place = bisect_left(self.captions, moment, key=lambda caption: caption.pair.ends[side])
        return self.first + min(place + 1, len(self.captions))

    def grow(self, aligned_at: Ends | None = None, boundary: Ends | None = None) -> int | None:
        """Add captions for new events. Returns the number of the first new caption; None without one.

        aligned_at: the last moments at which both sides had done the same acts; by default their newest. boundary: the
        last moments at which both were between two steps; captions up to there are settled.
        """
        aligned_at = (self.timelines[0].end, self.timelines[1].end) if aligned_at is None else aligned_at
        if tuple(timeline.generation for timeline in self.timelines) != self.generations:
            self._begin()
        elif aligned_at == self.newest and (boundary is None or boundary <= self._settled):
            return None
        first = self.num_settled
        self._drop_unsettled()
        if boundary is not None and boundary > self._settled:
            self._settle(boundary)
        if aligned_at > self._settled:
            scenes = self._scenes
            self._scenes = self._scenes_at(self._settled)
            self._write(aligned_at)
            self._scenes = scenes
        return max(first, self.first)

    def _settle(self, boundary: Ends) -> None:
        self._write(boundary)
        self._settled, self.num_settled, self._settled_stop = boundary, self.end, self._next_stop
        self._drop_oldest()

    def _drop_unsettled(self) -> None:
        del self.captions[self.num_settled - self.first :]
        self._next_stop = self._settled_stop
        if self.difference is not None and self.difference.number >= self.num_settled:
            self.difference = None

    def _drop_oldest(self) -> None:
        """Drop captions whose events the recordings have dropped."""
        kept = 0
        dropped = (self.timelines[0].num_dropped, self.timelines[1].num_dropped)
        while kept < len(self.captions) and not all(map(ge, self.captions[kept].pair.ends, dropped)):
            self.starts = self.captions[kept].pair.ends
            kept += 1
        del self.captions[:kept]
        self.first += kept

    # -- words ---------------------------------------------------------------------------------------------------------

    def _write(self, ends: Ends) -> None:
        """Add captions from the newest settled one to these moments; with words for the newest MAX_CAPTIONED events."""
        starts = self._settled
        sides = [t.events(start, end) for t, start, end in zip(self.timelines, starts, ends, strict=True)]
        before, has_words, shift = starts, True, self._shift_by_now
        for pair in aligned(sides[0], sides[1], starts, shift):
            is_captioned = all(end - at <= MAX_CAPTIONED for end, at in zip(ends, pair.ends, strict=True))
            if is_captioned and not has_words:
                self._scenes = self._scenes_at(before)
            has_words = is_captioned
            if self.difference is None and is_decision(pair):
                self.difference = place_of_difference(self.end, pair, before, self.timelines, shift)
            self.captions.append(
                self._caption(pair, before) if is_captioned else PairCaption(pair, Sentence(), stop=self._stop(pair))
            )
            before = pair.ends
        if not has_words:
            self._scenes = self._scenes_at(before)

    @property
    def _shift_by_now(self) -> int:
        """The shift of the right side's block ids; computed once, when both engines have started."""
        if self._shift is None:
            shift = shift_of(*self.timelines)
            self._shift = shift if all(timeline.end for timeline in self.timelines) else None
            return shift
        return self._shift

    def _caption(self, pair: Pair, before: Ends) -> PairCaption:
        left, right = (self._side(side, pair, before) for side in (0, 1))
        stop = self._stop(pair)
        if not pair.differs and (left and left.row()) == (right and right.row()):
            return PairCaption(pair, left or Sentence(), stop=stop)
        if left is not None and right is not None:
            left, right = distinct_sentences((left, right), pair.left, pair.right)
        return PairCaption(pair, Sentence(), left, right, stop)

    def _side(self, side: int, pair: Pair, before: Ends) -> Sentence | None:
        """Move one side's scene to the end of the pair; return that side's sentence."""
        start, end = before[side], pair.ends[side]
        events = self.timelines[side].events(start, end)
        is_rolled_back = any(isinstance(event, ev.StepRolledBack) for event in events)
        if is_rolled_back or self.timelines[side].corrections(start, end):
            self._scenes[side] = self._scene_at(side, end)
        else:
            for event in events:
                self._scenes[side].apply(event)
            self._scenes[side].update()
        captioned = (pair.left, pair.right)[side]
        return sentence(captioned, self._scenes[side]) if captioned else None

    def _stop(self, pair: Pair) -> int | None:
        """Return the index of the next guided sentence if this pair reaches it."""
        if self._next_stop >= len(self.guide):
            return None
        if not any(self.guide[self._next_stop].matches(event) for event in (*pair.left, *pair.right)):
            return None
        self._next_stop += 1
        return self._next_stop - 1

    def opening(self) -> tuple[Sentence, Sentence]:
        """Return each side's caption for a view that opens at the oldest caption's beginning."""
        left, right = (opening_sentence(scene) for scene in self._scenes_at(self.starts))
        return left, right

    def _scenes_at(self, ends: Ends) -> list[Scene]:
        return [self._scene_at(side, ends[side]) for side in (0, 1)]

    def _scene_at(self, side: int, moment: int) -> Scene:
        return Scene.at(self.timelines[side], moment, self._token_texts[side], self._contents[side])


class PairDocument:
    """The captions of a comparison as they grow, serialised for a browser half (JSON types only)."""

    def __init__(self, source: PairViewSource) -> None:
        left, right = source.timelines
        words = (source.view_sources[0].token_text, source.view_sources[1].token_text)
        self.view_source = source
        self.captions = PairCaptions(left, right, words, source.guide)
        self._known_answer: tuple[DifferencePlace, dict[str, Any]] | None = None
        self.grow()

    def grow(self) -> int | None:
        """Add captions for new events of both sides. Returns the number of the first new caption; None without one."""
        return self.captions.grow(self.view_source.aligned_at, self.view_source.last_boundary)

    def payload(self, first: int | None = None) -> dict[str, Any]:
        """Return the captions from a number on (by default all), with the guide, names and state of the comparison."""
        captions, source = self.captions, self.view_source
        start = captions.first if first is None else first
        difference = captions.difference
        return {
            "from": start,
            "first": captions.first,
            "starts": captions.starts,
            "generations": captions.generations,
            "captions": [caption.row() for caption in captions.captions[start - captions.first :]],
            "opening": [opening.row() for opening in captions.opening()],
            "first_difference": difference and difference.number,
            "why_different": self._why_different(difference),
            "guide": [stop.sentence for stop in source.guide],
            "about_slots": any(stop.about_slots for stop in source.guide),
            "questions": [stop.question for stop in source.guide],
            "follow_up": source.follow_up_question if source.has_follow_up else None,
            "title": source.title,
            "names": source.names,
            "roles": source.roles,
            "is_running": source.is_running,
            "is_live": source.is_live,
        }

    def _why_different(self, difference: DifferencePlace | None) -> dict[str, Any] | None:
        """Return the answer to why the sides differ, found once."""
        if difference is None:
            return None
        if self._known_answer is None or self._known_answer[0] != difference:
            left, right = self.view_source.view_sources
            seams = (left.seams(), right.seams())
            numbers, names = (difference.left, difference.right), self.view_source.names
            why = why_different(*self.view_source.timelines, *numbers, seams, names, difference.shares)
            self._known_answer = difference, why.to_dict()
        return self._known_answer[1]
