"""The first event at which two recordings differ, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from labengine.events import Event, StepEnded, StepRolledBack, StepStarted, entry_of
from labengine.record.timeline import Timeline
from labengine.session.compare.sides import timeline_of
from labengine.session.looking import Looking
from labengine.session.overrides_in_use import override_notes
from labengine.session.session import Session

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.why import Why

Sides = tuple[Looking, Looking]

_WRAPPED = "margin:0 0 6px;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
"""Style of a side's lines: JupyterLab's style breaks preformatted text inside words."""


@dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """The first difference. left, right: the events, None on a side without one; moments: their numbers.

    sentences: one for each side, always different. reasons: each side's deciding method and its reason, if known.
    shares: a sentence, if the step computes different numbers of tokens of the request; configuration: one on the
    settings that differ, if any do.
    """

    step: int
    phase: str | None
    names: tuple[str, str]
    moments: tuple[int, int]
    left: Event | None
    right: Event | None
    sentences: tuple[str, str]
    reasons: tuple[str, str]
    shares: str = ""
    configuration: str = ""

    @property
    def sentence(self) -> str:
        """Step, phase and each side's sentence, in one line."""
        sides = (f"{name}: {text}" for name, text in zip(self.names, self.sentences, strict=True))
        return " ".join(filter(None, [self._place, *sides, self.shares, self.configuration]))

    @property
    def _place(self) -> str:
        return f"First difference: step {self.step}" + (f", {self.phase}" if self.phase else "") + "."

    def __repr__(self) -> str:
        lines = [self._place, *(line for side in (0, 1) for line in self._lines(side))]
        return "\n".join(lines + [f"  {text}" for text in self._notes])

    @property
    def _notes(self) -> list[str]:
        return [text for text in (self.shares, self.configuration) if text]

    def _lines(self, side: int) -> list[str]:
        event = (self.left, self.right)[side]
        lines = [f"  {self.names[side]}: {self.sentences[side]}"]
        if event is not None:
            lines.append(f"    event {self.moments[side]}: {type(event).__name__}")
        return lines + ([f"    {self.reasons[side]}"] if self.reasons[side] else [])

    def _repr_html_(self) -> str:
        rows = "".join(f"<pre style='{_WRAPPED}'>{escape(chr(10).join(self._lines(side)))}</pre>" for side in (0, 1))
        notes = "".join(f"<p>{escape(text)}</p>" for text in self._notes)
        return f"<p><b>{escape(self._place)}</b></p>{rows}{notes}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, for the view."""
        return {
            "sentence": self.sentence,
            "moments": list(self.moments),
            "left": self.left is not None,
            "right": self.right is not None,
            "sentences": list(self.sentences),
            "reasons": list(self.reasons),
            "configuration": self.configuration,
        }


NOTHING, LATER = "nothing like it happens.", "it happens later in this step."
"""The sentences for a side without an event here."""


def difference_of(sides: Sides, names: tuple[str, str]) -> Difference | None:
    """Return the first difference between two sides, or None."""
    from labengine_widgets.compare.configuration import configuration_difference, shift_of
    from labengine_widgets.compare.first_difference import (
        distinct_sentences,  # for views only
        find_first_difference,
        shares_sentence,
    )

    left, right = map(timeline_of, sides)
    found = find_first_difference(left, right)
    if found is None:
        return None
    place, pair, before = found
    one = _share(sides[0], place.left, pair.left, (before[0], pair.ends[0]))
    other = _share(sides[1], place.right, pair.right, (before[1], pair.ends[1]))
    absence = _absence((left, right), pair.ends, (one.event, other.event), shift_of(left, right))
    return Difference(
        step=left.state(one.moment).step if pair.left else right.state(other.moment).step,
        phase=pair.phase,
        names=names,
        moments=(one.moment, other.moment),
        left=one.event,
        right=other.event,
        sentences=distinct_sentences((one.sentence or absence, other.sentence or absence), pair.left, pair.right),
        reasons=(_reason(sides[0], one.event, pair.left), _reason(sides[1], other.event, pair.right)),
        shares=shares_sentence((left, right), place.shares, names),
        configuration=configuration_difference(left, right, names),
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """One side's share of a difference. sentence: empty without an event."""

    moment: int
    event: Event | None
    sentence: str


def _share(side: Looking, at: int | None, events: Sequence[Event], span: tuple[int, int]) -> _Share:
    """at: the deciding event's number, or None. events: the caption's events, from span[0] to span[1]."""
    from labengine_widgets.compare.first_difference import side_sentence  # for views only
    from labengine_widgets.words.phrases import phrase

    timeline = timeline_of(side)
    event = None if at is None else timeline.events(at, at + 1)[0]
    sentence = side_sentence(timeline, side.token_text, events, *span) or ("" if event is None else phrase(event))
    return _Share(span[0] if at is None else at, event, sentence)


def _absence(timelines: Sequence[Timeline], ends: tuple[int, int], events: tuple[Event | None, ...], shift: int) -> str:
    """Return the sentence for the side without an event, which may have the other's event further on in its step."""
    from labengine_widgets.compare.alignment import same  # for views only

    side = 0 if events[0] is None else 1
    for event in timelines[side].events(ends[side]):
        if isinstance(event, StepStarted | StepEnded | StepRolledBack):
            break
        one, other = (event, events[1]) if side == 0 else (events[0], event)
        if one is not None and other is not None and same(one, other, shift):
            return LATER
    return NOTHING


def notes_of(sides: Sides) -> list[str]:
    """Return sentences on overrides without effect: those never called, and those that changed no decision."""
    sessions = [one for side in sides if isinstance(one := getattr(side, "session", None), Session)]
    return override_notes({name: found for one in sessions for name, found in one.inspection.overrides.items()})


def why_of(sides: Sides, names: tuple[str, str]) -> Why:
    """Return an answer with the causes of the first difference, or one that says the sides agree."""
    from labengine_widgets.compare.first_difference import (
        find_first_difference,  # for views only
        why_different,
        why_not_different,
    )

    left, right = map(timeline_of, sides)
    found = find_first_difference(left, right)
    if found is None:
        return why_not_different(left, right, names, notes_of(sides))
    one, other = (side.view_source().seams() for side in sides)
    return why_different(left, right, found[0].left, found[0].right, (one, other), names, found[0].shares)


def _reason(side: Looking, event: Event | None, told: Sequence[Event]) -> str:
    """Return the deciding method, with its place in another engine, and its one-line reason; empty if unknown.

    told: the events of the side's sentence, for a side that differs in having no more of them.
    """
    if event is None and not told:
        return ""
    seam = entry_of(side.view_source().seams(), event or told[-1])
    if not seam:
        return ""
    place = f" ({seam['place']})" if "place" in seam else ""
    return f"{seam['class']}.{seam['seam'].rpartition('.')[2]}{place}: {seam['reason']}"
