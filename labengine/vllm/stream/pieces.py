"""A piece of a stream: a recording without a gap, from one keyframe on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from labengine import events as ev
from labengine.record.files.codec import KINDS, check_rows, event_of
from labengine.record.files.codec import rows as rows_of
from labengine.record.files.parsing import INT, SECONDS, TEXT
from labengine.record.files.sequence import SequenceCheck
from labengine.record.files.shapes import PoolSize, Shape, shape_of
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.written import written

EDITION = "vllm"

MAX_TIMES = 100_000
"""Steps whose times a live piece keeps."""


class RecordedInput(NamedTuple):
    """A call of the scheduler from outside: schedule, update, reset, abort (request), drafts ((request, tokens) each).

    salt (request, digest), arrival (request, time) and unread (request: it is not to read the prefix cache) are of the
    request that was just added; unusual (why) is what no other scheduler can follow.
    """

    moment: int
    """Events before it."""
    word: str
    values: tuple[Any, ...]


INPUTS: Mapping[str, tuple[Shape, ...]] = {
    "salt": (INT, TEXT),
    "arrival": (INT, SECONDS),
    "unread": (INT,),
    "abort": (INT,),
    "drafts": (shape_of(tuple[tuple[int, ev.TokenIds], ...]),),
    "unusual": (TEXT,),
}
"""Shapes of the values that are read; a later tap may write more of them, and other words."""


class Piece:
    """Records the events of one stretch of a stream.

    gap: why it does not continue the piece before; empty for the first one. gap_before: the steps between. timeline:
    records the events; started over.
    hooks: get each event once it is recorded. max_finished: finished requests that are kept; None for all.
    checkpoint_alignment: as in StreamHeader. Raises what its checks raise (ValueError, LookupError, TypeError) for rows
    that cannot come there.
    """

    def __init__(
        self,
        state: Fold,
        gap: str,
        timeline: Timeline,
        hooks: Hooks | None = None,
        max_finished: int | None = None,
        gap_before: Gap | None = None,
        checkpoint_alignment: int | None = None,
    ) -> None:
        self.gap = gap
        self.fold = Fold()
        self.timeline = timeline
        self.num_keyframes = 1
        """Keyframes that agreed with the events, the first one included."""
        self.idle_at: int | None = None
        """Events up to the last moment at which the tap has noted that all requests were done; None for no such one."""
        self.contradictions: list[str] = []
        """What the keyframe at its end says otherwise."""
        self.inputs: list[RecordedInput] = []
        """What came from outside the scheduler, in order; empty for a tap that did not write it."""
        self.times: dict[int, float] = {}
        """When each step began, in seconds; of a stream that goes on for weeks the newest ones."""
        self._pool = PoolSize(len(state.ref_counts), len(state.groups))
        self._scheduled: list[ev.RequestScheduled] = []
        self._began: dict[int, float] = {}
        self._hooks, self._max_finished = hooks, max_finished
        self._checkpoint_alignment = checkpoint_alignment
        self._finished: deque[int] = deque()
        if _is_new(state):
            groups = tuple((group.kind, group.block_size, group.window) for group in state.groups)
            self._record(ev.EngineStarted(len(state.ref_counts), groups, EDITION, state.null_block))
        else:
            self.fold = state
            self.timeline.begin_at(state, gap_before)
        self._sequence = SequenceCheck(self.fold)
        self.first_step = state.step + 1

    def add(self, rows: Sequence[Sequence[Any]], at: float, inputs: Sequence[Sequence[Any]] = ()) -> None:
        """Record a message's rows, numbered by codec.KINDS. at: when it was sent, in seconds.

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
        self.fold.take_changes()  # nobody asks for them here

    def _note(self, row: Sequence[Any]) -> None:
        _, word, *values = row
        shapes = INPUTS.get(TEXT(word), ())
        if len(values) < len(shapes):
            raise ValueError(f"a {word} has {len(values)} values")
        for shape, value in zip(shapes, values, strict=False):
            shape(value)
        if self._max_finished is None:  # a stream that goes on for weeks keeps none
            self.inputs.append(RecordedInput(self.timeline.end, word, tuple(values)))

    def contradict(self, found: list[str]) -> None:
        """Note what a keyframe says otherwise, as a violation of the rule `said`."""
        self.contradictions = found
        text = f"the engine's own state contradicts the events: {'; '.join(found)}"
        self._record(ev.ViolationFound("said", text, (), (), self.fold.step, None))

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
                    self._record(one)
        self._record(event)
        if isinstance(event, ev.RequestReleased) or (isinstance(event, ev.RequestFinished) and not event.holds_blocks):
            self._finished.append(event.request_id)
        elif isinstance(event, ev.StepEnded):
            self.timeline.step_seconds[event.step] = max(0.0, at - self._began.pop(event.step, at))

    def _forget_finished(self) -> None:
        """Forget the oldest finished requests: a stream may go on for weeks."""
        while self._max_finished is not None and len(self._finished) > self._max_finished:
            forgotten = ev.RequestForgotten(self._finished.popleft())
            self._sequence.follow(rows_of([forgotten]))
            self._record(forgotten)

    def _written(self) -> Iterator[ev.Event]:
        """Yield what the step's forward pass writes."""
        for one in self._scheduled:
            end = one.start + one.num_tokens
            for number, group in enumerate(self.fold.groups):
                table = self.fold.requests[one.request_id].block_tables[number]
                share = one.request_id, number, group, table, one.start, end
                yield from written(*share, checkpoint_alignment=self._checkpoint_alignment)

    def _record(self, event: ev.Event) -> None:
        self.timeline.record(event)
        self.fold.apply(event)
        if self._hooks is not None and type(event) in self._hooks:
            self._hooks.emit(event)


def _is_new(state: Fold) -> bool:
    """Return True for the state that an engine starts with: nothing was done, and the queue is in order."""
    queue = [i for i in range(len(state.ref_counts)) if i != state.null_block]
    return not (state.step or state.requests or state.prefix_map) and list(state.free_queue) == queue
