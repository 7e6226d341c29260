"""Two recordings side by side: their events in pairs, and the first event at which they differ.

Steps are matched by number, phases by name, and runs of events by subject: the fate of B's second full block is one
subject, whether it was cached on one side or merged on the other. An override that decides differently from production
does not make two runs differ; its consequences do.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from labengine import events as ev
from labengine.record.phases import phase_after
from labengine_widgets.words.event_runs import Run, by_block, runs

Ends = tuple[int, int]
"""A moment of the left recording and one of the right."""

PHASE_ORDER = ("schedule", "forward", "sample", "update", None)


@dataclass(frozen=True, slots=True)
class Pair:
    """Events of two recordings that belong together, up to the moments `ends`.

    left, right: the events of each side; empty for a side without any. differs: True if the sides are not equal.
    """

    ends: Ends
    left: tuple[ev.Event, ...]
    right: tuple[ev.Event, ...]
    phase: str | None
    differs: bool


@dataclass(frozen=True, slots=True)
class _Span:
    """Events of one step, or between two steps. key: (the current or last step's number, is inside, attempt).

    ends: the moment after each event.
    """

    key: tuple[int, bool, int]
    start: int
    events: tuple[ev.Event, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PlacedRun:
    """A run, the moment after each of its events, and the phase it belongs to."""

    run: Run
    ends: tuple[int, ...]
    phase: str | None

    @property
    def end(self) -> int:
        """The moment after the run."""
        return self.ends[-1]


def aligned(
    left: Sequence[ev.Event], right: Sequence[ev.Event], starts: Ends = (0, 0), shift: int = 0
) -> Iterator[Pair]:
    """Yield pairs for two stretches of events that begin at the moments `starts`; either may be empty.

    shift: the difference of the right side's block ids from the left side's, which a null block causes.
    """
    ends = starts
    for one, other in _matched(_spans(left, starts[0]), _spans(right, starts[1])):
        for pair in _pairs(one, other, shift):
            ends = (max(ends[0], pair.ends[0]), max(ends[1], pair.ends[1]))
            yield pair if pair.ends == ends else replace(pair, ends=ends)


def compared(events: Sequence[ev.Event], start: int) -> list[tuple[int, ev.Event]]:
    """Return the events that two runs can differ in, each with its number; start: the first event's."""
    return [(n, event) for n, event in enumerate(events, start) if type(event) is not ev.DecisionDiffered]


def first_differing(left: Sequence[ev.Event], right: Sequence[ev.Event], shift: int = 0) -> int | None:
    """Return the index of the first event in which two stretches differ; None when they are equal."""
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if (one is not other or shift) and not same(one, other, shift):
            return number
    return None if len(left) == len(right) else min(len(left), len(right))


def same(one: ev.Event, other: ev.Event, shift: int = 0) -> bool:
    """Return True for equal events; names of editions and of methods in violations may differ, block ids by `shift`."""
    if isinstance(one, ev.EngineStarted) and isinstance(other, ev.EngineStarted):
        return replace(one, edition="") == replace(other, edition="")
    if isinstance(one, ev.ViolationFound) and isinstance(other, ev.ViolationFound):
        one, other = replace(one, message=""), replace(other, message="")
    return (ev.renumbered(one, shift) if shift else one) == other


def about(run: Sequence[ev.Event]) -> Hashable:
    """Return the subject of a run of events; runs of two recordings with the same subject are paired."""
    event = run[0]
    match event:
        case _ if isinstance(event, ev.BlockCached | ev.EntryReplaced):
            return "entry", event.request_id, event.group, event.index
        case ev.BlockAllocated() | ev.BlockTouched():
            return type(event), event.request_id, event.group
        case ev.ViolationFound():
            return type(event), event.rule
        case _:
            return type(event), getattr(event, "request_id", None)


# -- steps -------------------------------------------------------------------------------------------------------------


def _spans(events: Sequence[ev.Event], start: int) -> list[_Span]:
    """Cut events into spans: one for each step, and one for the events between two steps."""
    spans: list[_Span] = []
    attempts: dict[tuple[int, bool], int] = {}
    step, first, is_inside = 0, 0, False

    def cut(stop: int) -> None:
        nonlocal first
        if found := compared(events[first:stop], start + first):
            attempt = attempts[step, is_inside] = attempts.get((step, is_inside), -1) + 1
            numbers, kept = zip(*found, strict=True)
            ends = (*(n + 1 for n in numbers[:-1]), start + stop)
            spans.append(_Span((step, is_inside, attempt), start + first, kept, ends))
        elif spans and stop > first:
            spans[-1] = replace(spans[-1], ends=(*spans[-1].ends[:-1], start + stop))
        first = stop

    for i, event in enumerate(events):
        if isinstance(event, (ev.StepStarted, ev.EngineStarted)):
            cut(i)
            step, is_inside = (event.step, True) if isinstance(event, ev.StepStarted) else (0, False)
        elif isinstance(event, (ev.StepEnded, ev.StepRolledBack)):
            is_inside, step = True, event.step
            cut(i + 1)
            is_inside = False
    cut(len(events))
    return spans


def _matched(left: Sequence[_Span], right: Sequence[_Span]) -> Iterator[tuple[_Span | None, _Span | None]]:
    """Yield the spans of equal steps in pairs, in order; a span without a counterpart is paired with None."""
    keys = [span.key for span in left], [span.key for span in right]
    if keys[0] == keys[1]:
        yield from zip(left, right, strict=True)
        return
    known = set(keys[0]), set(keys[1])
    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left) and (left[i].key not in known[1] or j == len(right)):
            yield left[i], None
            i += 1
        elif j < len(right) and (right[j].key not in known[0] or i == len(left)):
            yield None, right[j]
            j += 1
        elif left[i].key == right[j].key:
            yield left[i], right[j]
            i, j = i + 1, j + 1
        else:  # the same steps in another order: nothing to wait for
            yield left[i], None
            yield None, right[j]
            i, j = i + 1, j + 1


# -- inside a step -----------------------------------------------------------------------------------------------------


def _pairs(left: _Span | None, right: _Span | None, shift: int) -> Iterator[Pair]:
    one, other = _placed_runs(left), _placed_runs(right)
    starts = (left.start if left else 0, right.start if right else 0)
    if left and right and first_differing(left.events, right.events, shift) is None:
        for a, b in zip(one, other, strict=True):
            yield Pair((a.end, b.end), a.run.captioned, b.run.captioned, a.phase, False)
        return
    ends = starts
    one, other = _cut_like(one, other), _cut_like(other, one)
    for phase in _phases(one, other):
        rows = ([row for row in side if row.phase == phase] for side in (one, other))
        for mine, yours in _paired(*rows):
            ends = (mine.end if mine else ends[0], yours.end if yours else ends[1])
            captioned = mine.run.captioned if mine else (), yours.run.captioned if yours else ()
            yield Pair(ends, *captioned, phase, _differ(mine, yours, shift))


def _placed_runs(span: _Span | None) -> list[_PlacedRun]:
    if span is None:
        return []
    found, ends, phase = [], span.ends, None
    for run in runs(span.events):
        length = len(run.events)
        for event in run.events:
            phase = phase_after(event, phase)
        is_update = phase is None and span.key[1]
        found.append(_PlacedRun(run, ends[:length], "update" if is_update else phase))
        ends = ends[length:]
    return found


def _cut_like(rows: Sequence[_PlacedRun], others: Sequence[_PlacedRun]) -> list[_PlacedRun]:
    """Cut a row of full blocks where the other side has a caption for one of them.

    A long row has one caption, a short one a caption for each block: uncut, the long row would be paired with the first
    block of the short one, and the blocks that are equal on both sides would count as different.
    """
    subjects = {about(row.run.captioned) for row in others}
    single = {about(row.run.captioned) for row in others if len(by_block(row.run.captioned)) == 1}
    return [piece for row in rows for piece in _cut(row, subjects, single)]


def _cut(row: _PlacedRun, begin: Container[Hashable], single: Container[Hashable]) -> Iterator[_PlacedRun]:
    """Yield the parts of a row: one begins at each subject in `begin`, and one after each in `single`."""
    silent, ends = row.run.silent, row.ends
    part: tuple[ev.Event, ...] = ()
    is_alone = False
    for piece in by_block(row.run.captioned):
        subject = about(piece)
        if part and (subject in begin or is_alone):
            length = len(silent) + len(part)
            yield _PlacedRun(Run(silent, part), ends[:length], row.phase)
            silent, part, ends = (), (), ends[length:]
        part, is_alone = part + piece, subject in single
    yield _PlacedRun(Run(silent, part), ends, row.phase)


def _phases(left: Sequence[_PlacedRun], right: Sequence[_PlacedRun]) -> list[str | None]:
    known = {row.phase for row in (*left, *right)}
    return [phase for phase in PHASE_ORDER if phase in known]


def _paired(
    left: Sequence[_PlacedRun], right: Sequence[_PlacedRun]
) -> Iterator[tuple[_PlacedRun | None, _PlacedRun | None]]:
    """Pair runs about the same subject; pair the runs between them in order."""
    subjects = [[about(row.run.captioned) for row in side] for side in (left, right)]
    matcher = SequenceMatcher(None, subjects[0], subjects[1], autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        yield from zip_longest(left[i:i_end], right[j:j_end])


def _differ(left: _PlacedRun | None, right: _PlacedRun | None, shift: int) -> bool:
    return left is None or right is None or first_differing(left.run.events, right.run.events, shift) is not None
