"""A piece of a stream: a recording without a gap, from one keyframe on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from labengine import events as ev
from labengine.record.files.codec import KINDS, check_rows, event_of
from labengine.record.files.codec import rows as rows_of
from labengine.record.files.parsing import INT, SECONDS, TEXT
from labengine.record.files.sequence import SequenceCheck
from labengine.record.files.shapes import PoolSize, Shape, shape_of
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED
from labengine.record.gap import Gap
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.late_start import LINKS, LateStart
from labengine.vllm.stream.written import InnerStates, written

EDITION = "vllm"

MAX_TIMES = 100_000
"""Number of steps whose times, and of requests whose salts, a live piece keeps."""


class RecordedInput(NamedTuple):
    """A call of the scheduler from outside: schedule, update, reset, abort (request), drafts ((request, tokens) each).

    salt (request, digest), arrival (request, time) and unread (request: it must not read the prefix cache) describe the
    request just added; unusual (why) marks a call that no other scheduler can follow. A reader that begins at a
    keyframe needs links (request, its hash chain's links in the prefix map) and earlier (step, (request, number of
    tokens) each: the step of the next update, scheduled before the newest keyframe; None if it was not observed).
    """

    moment: int
    """Number of events before it."""
    word: str
    values: tuple[Any, ...]


INPUTS: Mapping[str, tuple[Shape, ...]] = {
    "salt": (INT, TEXT),
    "arrival": (INT, SECONDS),
    "unread": (INT,),
    "abort": (INT,),
    "drafts": (shape_of(tuple[tuple[int, ev.TokenIds], ...]),),
    "unusual": (TEXT,),
    "links": (INT, LINKS),
    "earlier": (shape_of(ev.Exact | None), shape_of(tuple[tuple[ev.Exact, ev.Exact], ...])),
}
"""Shapes of the values to read; a later tap may write more values, and other words."""


class Loss(NamedTuple):
    """The reason that the tap lost rows. request_id: the request whose blocks were being cached then, or None.

    num_events: number of dropped events; 0 if unobserved. by: vLLM's method that made a change without an event,
    "Class.method"; empty if none did.
    """

    why: str
    request_id: int | None
    num_events: int
    by: str


class Piece:
    """Records the events of one stretch of a stream.

    gap: why it does not continue the previous piece; empty for the first one. gap_before: the steps between. timeline:
    records the events, from the beginning. hooks: get each event once it is recorded. max_finished: finished requests
    that are kept; None for all. inner_states: as in StreamHeader. Raises ValueError, LookupError or TypeError
    for rows that are impossible in the current state.
    """

    def __init__(
        self,
        state: Fold,
        gap: str,
        timeline: Timeline,
        hooks: Hooks | None = None,
        max_finished: int | None = None,
        gap_before: Gap | None = None,
        inner_states: InnerStates | None = None,
    ) -> None:
        self.gap = gap
        self.start: LateStart | None = None
        """The keyframe's data besides the state, or None."""
        self.fold = Fold()
        self.timeline = timeline
        self.num_keyframes = 1
        """Number of keyframes that agreed with the events, including the first."""
        self.idle_at: int | None = None
        """Number of events up to the last moment at which the tap noted that all requests were done, or None."""
        self.contradictions: list[str] = []
        """Contradictions of the keyframe at its end."""
        self.inputs: list[RecordedInput] = []
        """The inputs from outside the scheduler, in order; empty for a tap that did not write them."""
        self.has_inputs = True
        """False once a live piece has dropped its oldest events, and all inputs with them."""
        self.salts: dict[int, str] = {}
        """The digest of the cache salt of each request that was added with one; only of the newest in a live piece."""
        self.loss: Loss | None = None
        """The tap's reason for missing rows at the piece's end, in the middle of a call; None for another end."""
        self.times: dict[int, float] = {}
        """The start of each step, in seconds; only of the newest steps in a live piece."""
        self._pool = PoolSize(len(state.ref_counts), len(state.groups))
        self._scheduled: list[ev.RequestScheduled] = []
        self._began: dict[int, float] = {}
        self._hooks, self._max_finished = hooks, max_finished
        self._inner_states = inner_states
        self._finished: deque[int] = deque()
        self.is_late = not _is_new(state)
        """True if the engine had run before."""
        if not self.is_late:
            groups = tuple((group.kind, group.block_size, group.window) for group in state.groups)
            self.record(ev.EngineStarted(len(state.ref_counts), groups, EDITION, state.null_block))
        else:
            self.fold = state
            self.timeline.begin_at(state, gap_before)
        self._sequence = SequenceCheck(self.fold)
        self.first_step = state.step + 1

    def add(self, rows: Sequence[Sequence[Any]], at: float, inputs: Sequence[Sequence[Any]] = ()) -> None:
        """Record a message's rows, numbered by codec.KINDS. at: its sending time in seconds.

        inputs: [number of rows before it, word, further values] each.
        """
        check_rows(rows, self._pool)
        self._sequence.follow(rows)
        waiting = deque(inputs)
        for number, row in enumerate(rows):
            while waiting and waiting[0][0] <= number:
                self._note(waiting.popleft())
            self._follow(event_of(row), at)
        for one in waiting:
            self._note(one)
        if rows and KINDS[rows[-1][0]][0] == "StepEnded":  # between two steps
            self._forget_finished()
        self.fold.take_changes()  # not needed here

    def take_inputs(self, inputs: Iterable[Sequence[Any]]) -> None:
        """Keep saved inputs: (moment, word, further values) each."""
        for moment, *words in inputs:
            self.inputs.append(_checked_input(moment, *words))
            self._note_salt(self.inputs[-1])

    def _note(self, row: Sequence[Any]) -> None:
        _, *words = row
        found = _checked_input(self.timeline.end, *words)
        self._note_salt(found)
        is_live, num_more = self._max_finished is not None, len(self.inputs) - self.timeline.max_events
        if is_live and (self.timeline.num_dropped or num_more > 0):  # a stream may last for weeks
            self.inputs, self.has_inputs = [], False
        if self.has_inputs:
            self.inputs.append(found)

    def _note_salt(self, found: RecordedInput) -> None:
        if found.word == "salt":
            number, digest, *_ = found.values
            self.salts[number] = digest
            if self._max_finished is not None and len(self.salts) > MAX_TIMES:
                del self.salts[next(iter(self.salts))]

    def contradict(self, found: list[str]) -> None:
        """Record a keyframe's contradictions, as a violation of the rule `said`."""
        self.contradictions = found
        text = f"the engine's own state contradicts the events: {'; '.join(found)}"
        self.record(ev.ViolationFound("said", text, (), (), self.fold.step, newest_change(self.timeline)))

    def go_on_from(self, state: Fold) -> None:
        """Go on from the engine's own state, which the events do not lead to. An open step ends here.

        A keyframe has no finished requests, and no content of blocks outside tables.
        """
        if self._sequence.is_open:
            self.record(ev.StepEnded(self.fold.step))
        for request_id, request in self.fold.requests.items():
            if request_id not in state.requests:
                state.requests[request_id] = ended = request.copy()
                ended.clear(FINISHED)
        for block_id, keys in enumerate(self.fold.block_keys):
            if keys == state.block_keys[block_id] and not state.block_tokens[block_id]:
                state.block_tokens[block_id] = self.fold.block_tokens[block_id]
        self.timeline.correct(state)
        self.fold, self._sequence = state, SequenceCheck(state)

    def _follow(self, event: ev.Event, at: float) -> None:
        match event:
            case ev.StepStarted(step):
                self._began[step] = self.times[step] = at
                if self._max_finished is not None and len(self.times) > MAX_TIMES:
                    del self.times[next(iter(self.times))]
                self._scheduled = []
            case ev.RequestScheduled():
                self._scheduled.append(event)
            case ev.RequestPreempted(request_id):
                self._scheduled = [one for one in self._scheduled if one.request_id != request_id]
            case ev.ForwardRan():
                for one in self._written():
                    self.record(one)
        self.record(event)
        if isinstance(event, ev.RequestReleased) or (isinstance(event, ev.RequestFinished) and not event.holds_blocks):
            self._finished.append(event.request_id)
        elif isinstance(event, ev.StepEnded):
            self.timeline.step_seconds[event.step] = max(0.0, at - self._began.pop(event.step, at))

    def _forget_finished(self) -> None:
        """Forget the oldest finished requests, because a stream may last for weeks."""
        while self._max_finished is not None and len(self._finished) > self._max_finished:
            forgotten = ev.RequestForgotten(self._finished.popleft())
            self._sequence.follow(rows_of([forgotten]))
            self.record(forgotten)

    def _written(self) -> Iterator[ev.Event]:
        """Yield the writes of the step's forward pass."""
        for one in self._scheduled:
            end = one.start + one.num_tokens
            for number, group in enumerate(self.fold.groups):
                table = self.fold.requests[one.request_id].block_tables[number]
                share = one.request_id, number, group, table, one.start, end
                yield from written(*share, self._inner_states)

    def record(self, event: ev.Event) -> None:
        """Record a checked event."""
        self.timeline.record(event)
        self.fold.apply(event)
        if self._hooks is not None and type(event) in self._hooks:
            self._hooks.emit(event)


def newest_change(timeline: Timeline) -> int | None:
    """Return the number of the newest event that is the engine's."""
    events = timeline.events()
    own = (place for place in reversed(range(len(events))) if not isinstance(events[place], ev.ViolationFound))
    return next((timeline.num_dropped + place for place in own), None)


def _checked_input(moment: int, word: Any, *values: Any) -> RecordedInput:
    shapes = INPUTS.get(TEXT(word), ())
    if len(values) < len(shapes):
        raise ValueError(f"a {word} has {len(values)} values")
    for shape, value in zip(shapes, values, strict=False):
        shape(value)
    return RecordedInput(moment, word, values)


def _is_new(state: Fold) -> bool:
    """Return True for an engine's first state: nothing was done, and the queue is in order."""
    queue = [i for i in range(len(state.ref_counts)) if i != state.null_block]
    return not (state.step or state.requests or state.prefix_map) and list(state.free_queue) == queue
