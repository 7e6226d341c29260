"""The first difference of two recordings: the decision, its sentences on both sides, and its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine.record.wording import counted, readable, request_name
from labengine_widgets.compare.alignment import Ends, Pair, aligned, compared, first_differing
from labengine_widgets.compare.configuration import configuration_difference, is_of_configuration, shift_of
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past, Recording, Seams
from labengine_widgets.words.mentions import Sentence, in_full
from labengine_widgets.words.names import ContentIndex
from labengine_widgets.words.phrases import phrase
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import sentence

Names = tuple[str, str]
"""The names of both sides."""

Numbers = tuple[int | None, int | None]
"""Numbers of an event of the left recording and of one of the right; None where a side has no such event."""


@dataclass(frozen=True, slots=True)
class DifferencePlace:
    """The first decisions in which two recordings differ, by their event numbers; None where a side has none.

    A difference of configuration is not a decision: it gets a caption but is never the first difference.
    shares: the numbers of each side's RequestScheduled of the same request and step, if they compute different tokens.
    """

    number: int
    ends: Ends
    left: int | None
    right: int | None
    shares: Numbers = (None, None)


def is_decision(pair: Pair) -> bool:
    return pair.differs and not is_of_configuration(pair.left, pair.right)


def place_of_difference(
    number: int, pair: Pair, before: Ends, timelines: Sequence[Timeline], shift: int = 0
) -> DifferencePlace:
    """Return the first events that differ in a pair; for a reported violation, the events that caused it."""
    sides = _compared(timelines, before, pair.ends)
    one, other = ([event for _, event in side] for side in sides)
    common = first_differing(one, other, shift) or 0
    left, right = (side[common][0] if common < len(side) else None for side in sides)
    numbers = blamed(timelines, (left, right), shift)
    return DifferencePlace(number, pair.ends, *numbers, _unlike_shares(timelines, numbers, pair.ends))


def find_first_difference(left: Timeline, right: Timeline) -> tuple[DifferencePlace, Pair, Ends] | None:
    """Return the first difference of two recordings: place, pair, and the moments before it; None without one."""
    before: Ends = (left.num_dropped, right.num_dropped)
    shift = shift_of(left, right)
    for number, pair in enumerate(aligned(left.events(), right.events(), before, shift)):
        if is_decision(pair):
            return place_of_difference(number, pair, before, (left, right), shift), pair, before
        before = pair.ends
    return None


def side_sentence(
    timeline: Timeline, token_text: Callable[[int], str], captioned: Sequence[ev.Event], start: int, end: int
) -> str:
    """Return one side's sentence for a pair between two moments; empty if that side has no event in it."""
    if not captioned:
        return ""
    contents = ContentIndex()
    scene = Scene(timeline.state(start), token_text, contents)
    for event in timeline.events(start, end):
        scene.apply(event)
    scene.update()
    with in_full():
        return sentence(captioned, scene)


def _unlike_shares(timelines: Sequence[Timeline], numbers: Numbers, ends: Ends) -> Numbers:
    """Return the numbers of both RequestScheduled of a differing event's request in the rest of its step, if unlike.

    How many blocks a request gets follows from its tokens in the step, which are recorded after the blocks.
    """
    events = [_event(timeline, number) for timeline, number in zip(timelines, numbers, strict=True)]
    request_id = next((found for one in events if (found := getattr(one, "request_id", None)) is not None), None)
    if request_id is None or any(isinstance(one, ev.RequestScheduled) for one in events):
        return None, None
    left, right = (_share(timeline, end, request_id) for timeline, end in zip(timelines, ends, strict=True))
    one, other = (tokens_of(timeline, number) for timeline, number in zip(timelines, (left, right), strict=True))
    return (None, None) if one == other else (left, right)


def _share(timeline: Timeline, start: int, request_id: int) -> int | None:
    """Return the number of a request's RequestScheduled between a moment and the end of its step."""
    for number, event in enumerate(timeline.events(start), start):
        if isinstance(event, (ev.StepStarted, ev.StepEnded, ev.StepRolledBack)):
            return None
        if isinstance(event, ev.RequestScheduled) and event.request_id == request_id:
            return number
    return None


def tokens_of(timeline: Recording, number: int | None) -> int:
    """Return how many tokens a RequestScheduled computes, by its number; 0 for None."""
    event = _event(timeline, number)
    return event.num_tokens if isinstance(event, ev.RequestScheduled) else 0


def _event(timeline: Recording, number: int | None) -> ev.Event | None:
    return None if number is None else timeline.events(number, number + 1)[0]


def shares_sentence(timelines: Sequence[Recording], shares: Numbers, names: Names) -> str:
    """Return a sentence on the tokens that a step computes on each side; empty if they are alike."""
    found = next((one for one in map(_event, timelines, shares) if isinstance(one, ev.RequestScheduled)), None)
    if found is None:
        return ""
    left, right = map(tokens_of, timelines, shares)
    tokens = f"{counted(left, 'token')} of {request_name(found.request_id)}"
    return f"This step computes {tokens} for {names[0]}, and {right} for {names[1]}."


def blamed(timelines: Sequence[Timeline], numbers: Numbers, shift: int = 0) -> Numbers:
    """Return the numbers; for a ViolationFound, those of the event that it names and of that event's counterpart."""
    for side, number in enumerate(numbers):
        first = _first_event(timelines[side], number)
        if first is not None:
            like = _like(timelines, side, first, shift)
            return (first, like) if side == 0 else (like, first)
    return numbers


def _first_event(timeline: Timeline, number: int | None) -> int | None:
    """Return the number of the event that a ViolationFound names, if it is still recorded; None otherwise."""
    event = None if number is None else timeline.events(number, number + 1)[0]
    if not isinstance(event, ev.ViolationFound) or event.first_event is None:
        return None
    return event.first_event if event.first_event >= timeline.num_dropped else None


def _like(timelines: Sequence[Timeline], side: int, number: int, shift: int) -> int | None:
    """Return the number of the other side's event at the same place of the same pair."""
    left, right = timelines
    before = (left.num_dropped, right.num_dropped)
    for pair in aligned(left.events(), right.events(), before, shift):
        if number < pair.ends[side]:
            sides = _compared(timelines, before, pair.ends)
            place = sum(n < number for n, _ in sides[side])
            return sides[1 - side][place][0] if place < len(sides[1 - side]) else None
        before = pair.ends
    return None


def _compared(timelines: Sequence[Timeline], before: Ends, ends: Ends) -> list[list[tuple[int, ev.Event]]]:
    """Return each side's events between two moments that it can differ in, with their numbers."""
    return [compared(t.events(a, b), a) for t, a, b in zip(timelines, before, ends, strict=True)]


Sentences = tuple[Sentence, Sentence]

_MOVED = "a different block: its id is counted without the null block"


def distinct_sentences(words: tuple[str, str], left: Sequence[ev.Event], right: Sequence[ev.Event]) -> Sentences:
    """Return the sentences; if they are equal, append the fields in which the events differ."""
    sentences = Sentence(words[0]), Sentence(words[1])
    if words[0] != words[1]:
        return sentences
    for one, other in zip(left, right, strict=False):
        names = list(_differing(one, other))
        if type(one) is not type(other):
            return _with_suffixes(sentences, type(one).__name__, type(other).__name__)
        if names:
            return _with_suffixes(sentences, _values(one, names), _values(other, names))
    if len(left) == len(right):
        return sentences[0], Sentence(sentences[1], f" ({_MOVED})")
    return _with_suffixes(sentences, counted(len(left), "event"), counted(len(right), "event"))


def _with_suffixes(sentences: Sentences, left: str, right: str) -> Sentences:
    return Sentence(sentences[0], f" ({left})"), Sentence(sentences[1], f" ({right})")


def _differing(one: ev.Event, other: ev.Event) -> Iterable[str]:
    if type(one) is type(other):
        yield from (
            f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name) and f.name != "edition"
        )


def _values(event: ev.Event, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_plain(getattr(event, name))}" for name in names)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{value.hex()[:8]}…"
    return f"({', '.join(map(_plain, value))})" if isinstance(value, tuple) else str(value)


def why_different(
    left: Recording,
    right: Recording,
    left_event: int | None,
    right_event: int | None,
    seams: tuple[Seams | None, Seams | None] = (None, None),
    names: Names = ("the left one", "the right one"),
    shares: Numbers = (None, None),
) -> Why:
    """Explain the first decision that differs: both events, their methods, and the settings that differ.

    left_event, right_event: event numbers; None for a side that has no event there. names: the names of the sides.
    shares: as in DifferencePlace.
    """
    pasts = Past(left, None, seams[0]), Past(right, None, seams[1])
    numbers = left_event, right_event
    events = [None if n is None else past.event(n) for past, n in zip(pasts, numbers, strict=True)]
    question = f"Why do {names[0]} and {names[1]} differ here?"
    links = tuple(
        replace(past.link(n), side=side)
        for side, (past, n) in [
            *enumerate(zip(pasts, numbers, strict=True)),
            *enumerate(zip(pasts, shares, strict=True)),
        ]
        if n is not None
    )
    text = _found(pasts, numbers, names) or _sides(events, names)
    also = shares_sentence((left, right), shares, names)
    parts = text, also, _decision(events, seams, names), configuration_difference(left, right, names)
    return Why(question, " ".join(filter(None, parts)), links)


def why_not_different(left: Recording, right: Recording, names: Names, notes: Sequence[str] = ()) -> Why:
    """Return the answer for two recordings whose decisions are equal so far. notes: other facts about the sides."""
    steps = max(left.state().step, right.state().step)
    text = f"They do not differ: event by event, both have done the same {_until(steps)}."
    configurations = configuration_difference(left, right, names)
    return Why(f"Why do {names[0]} and {names[1]} differ?", " ".join(filter(None, (text, configurations, *notes))))


def _until(steps: int) -> str:
    return f"up to step {steps}" if steps else "so far, and no step has been taken yet"


def _found(pasts: tuple[Past, Past], numbers: tuple[int | None, int | None], names: Names) -> str:
    """Return sentences on the rules that the checks report at events which are equal on both sides; empty for none."""
    reports = [_rules_at(past, number) for past, number in zip(pasts, numbers, strict=True)]
    if not any(reports):
        return ""
    text = "; ".join(
        f"for {name} {report or 'no broken rule here'}" for name, report in zip(names, reports, strict=True)
    )
    return f"Their events here are the same; only the checks tell the sides apart. They report {text}."


def _rules_at(past: Past, number: int | None) -> str:
    """Return the rules that were broken by an event, each with its first message; empty for none."""
    messages: dict[str, str] = {}
    for one in past.found:
        if number is not None and one.first_event == number:
            messages.setdefault(one.rule, one.message)
    return " and ".join(f"the rule {rule} ({readable(text, 300)})" for rule, text in list(messages.items())[:2])


def _sides(events: list[ev.Event | None], names: Names) -> str:
    left, right = (Sentence("nothing like it happens.") if event is None else phrase(event) for event in events)
    if events[0] is not None and events[1] is not None:
        left, right = distinct_sentences((left, right), events[:1], events[1:])  # type: ignore[arg-type]
    return f"{names[0]}: {left} {names[1]}: {right}"


def _decision(events: list[ev.Event | None], seams: tuple[Seams | None, Seams | None], names: Names) -> str:
    """Return a sentence on the first method that decided or took part and that differs between the sides."""
    left, right = (_by_name(event_seams) for event_seams in seams)
    for name in dict.fromkeys(_asked(events, seams)):
        one, other = left.get(name), right.get(name)
        if one and other and one["source"] != other["source"] and not (_is_place(one) and _is_place(other)):
            sides = zip(names, (one, other), strict=True)
            text = "; ".join(
                f"{name_of_side} has {m['class']}.{name.partition('.')[2]} ({str(m['reason']).rstrip('.')})"
                for name_of_side, m in sides
            )
            return f"The decision is {name}: {text}."
    return ""


def _is_place(method: Mapping[str, Any]) -> bool:
    """Return True for another engine's method, of which only the place is known: two releases may have it elsewhere."""
    return "place" in method and method["source"] == f"# {method['place']}"


def _asked(events: list[ev.Event | None], seams: tuple[Seams | None, Seams | None]) -> Iterator[str]:
    """Yield the names of the seams of both events: the deciding methods, then the others that took part."""
    found = [
        seam for event in events if event is not None for known in seams if (seam := ev.entry_of(known or {}, event))
    ]
    yield from (str(seam["seam"]) for seam in found)
    for seam in found:
        yield from (str(method["seam"]) for method in seam.get("methods", ()))


def _by_name(seams: Seams | None) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for seam in (seams or {}).values():
        for method in (seam, *seam.get("methods", ())):
            found.setdefault(str(method["seam"]), method)
    return found
