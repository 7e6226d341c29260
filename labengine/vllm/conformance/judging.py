"""The comparison, act by act, of the recorded scheduler's events with those of an edition with the same inputs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from labengine import events as ev
from labengine.config import ConfigError, EngineConfig
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.record.files.parsing import INT, TEXT
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.vllm.conformance.edition_run import Rerun, arrivals_of, ends_of, order_by_names, salts_of, unread_of
from labengine.vllm.conformance.known_hashes import KnownHashes, known_at_start
from labengine.vllm.conformance.resuming import late_start_of, restore_pool, restore_queues, restore_request
from labengine.vllm.conformance.settings import CannotJudgeError
from labengine.vllm.stream.late_start import LateStart
from labengine.vllm.stream.pieces import Piece

REASONS = ("stop", "length", "repetition", "abort")
"""Reasons for a request's end that an edition can be given."""


MARKS = (ev.EngineStarted, ev.StepStarted, ev.StepEnded)
"""Events that no part decides, and that both sides have at the same place."""

FACTS = ("salt", "arrival", "unread", "links")
"""Inputs that are not calls, but describe a request."""


@dataclass(slots=True)
class Act:
    """One call from outside, and the events up to the next call. start: the number of the first event.

    words: add, schedule, update, abort, reset; mark (an event of MARKS); earlier and unusual as in
    pieces.RecordedInput.
    """

    word: str
    values: tuple[Any, ...]
    start: int
    events: list[ev.Event] = field(default_factory=list)


def acts_of(piece: Piece) -> Iterator[Act]:
    """Yield the acts of a piece in order. Events without a call come as an act with the word `unasked`."""
    waiting, act = deque(one for one in piece.inputs if one.word not in FACTS), Act("unasked", (), 0)
    for number, event in enumerate(piece.timeline.events(), piece.timeline.num_dropped):
        while waiting and waiting[0].moment <= number:
            yield act
            called = waiting.popleft()
            act = Act(called.word, called.values, number)
        if isinstance(event, ev.RequestAdded):
            yield act
            act = Act("add", (event,), number)
        elif isinstance(event, MARKS):
            yield act
            yield Act("mark", (event,), number)
            act = Act("unasked", (), number + 1)
        else:
            act.events.append(event)
    yield act
    yield from (Act(called.word, called.values, called.moment) for called in waiting)


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference: the numbers of the events, and the events; None on a side without one."""

    moments: tuple[int, int]
    recorded: ev.Event | None
    expected: ev.Event | None


@dataclass(slots=True)
class JudgedPiece:
    """The extent to which a piece was judged. end: number of judged events; parting: None without a difference."""

    end: int
    expected: Timeline
    parting: Parting | None = None
    why_unjudged: str = ""


def judge(
    piece: Piece,
    config: EngineConfig,
    parts: Parts,
    longest: int,
    names: Mapping[int, str],
    *,
    is_torn: bool = False,
) -> JudgedPiece:
    """Give a piece's inputs to an edition until it differs, or cannot follow.

    names: the engine's names of the requests, which order requests of equal priority and arrival. is_torn: the piece
    ends in the middle of a call, which is not judged because rows are missing. Raises CannotJudgeError for settings
    that the edition does not have.
    """
    try:
        rerun = Rerun(config, parts, ends_of(piece), longest)
    except ConfigError as error:
        raise CannotJudgeError(f"no edition has its settings: {readable(str(error), 300)}") from None
    order_by_names(rerun.scheduler, names)
    judging = _Judging(rerun, piece)
    outcome = JudgedPiece(0, rerun.timeline)
    acts = list(acts_of(piece))
    for act in acts[:-1] if is_torn else acts:
        try:
            ours = judging.answer(act)
        except CannotJudgeError as error:
            outcome.why_unjudged = str(error)
            return outcome
        except (Exception, SystemExit) as error:  # a user's part, or one that follows impossible inputs
            what = readable(f"{type(error).__name__}: {error}", 300)
            outcome.why_unjudged = f"edition {parts.name} raises {what}"
            return outcome
        outcome.parting = judging.compare(act, ours)
        outcome.end = act.start + len(act.events) + (act.word in ("add", "mark"))
        if outcome.parting is not None:
            return outcome
    return outcome


class _Judging:
    def __init__(self, rerun: Rerun, piece: Piece) -> None:
        self._rerun = rerun
        self._salts, self._arrivals, self._unread = salts_of(piece), arrivals_of(piece), unread_of(piece)
        self._hashes, self._first_step = KnownHashes(), 0
        if (start := late_start_of(piece, has_drafts=bool(rerun.scheduler.config.num_drafts))) is not None:
            self._resume(piece, start)

    def _resume(self, piece: Piece, start: LateStart) -> None:
        """Begin in the state of the recording's first keyframe."""
        _, state, _ = piece.timeline.kept()
        rerun, self._first_step = self._rerun, state.step
        scheduler = rerun.scheduler
        self._hashes = known_at_start(piece, scheduler.manager, scheduler.config.hash_block_size, self._salts)
        restore_pool(scheduler.manager.pool, state, self._hashes)
        for number, known in start.requests.items():
            recorded = state.requests[number]
            prompt = tuple(recorded.token_ids[: recorded.num_prompt_tokens])
            added = ev.RequestAdded(number, prompt, known.max_tokens, priority=recorded.priority)
            restore_request(scheduler, self._request(added), state, start)
        restore_queues(scheduler, start)
        rerun.timeline.begin_at(state)

    def _request(self, event: ev.RequestAdded) -> Request:
        number = event.request_id
        salt, arrival = self._salts.get(number, ()), self._arrivals.get(number, number)
        return self._rerun.request(event, salt, arrival, is_unread=number in self._unread)

    def answer(self, act: Act) -> list[ev.Event]:
        """Make the act's call on the edition's scheduler; return its events. Raises CannotJudgeError."""
        rerun = self._rerun
        match act.word, act.values:
            case "add", (ev.RequestAdded() as event,):
                for one in rerun.add(self._request(event), event.max_tokens):
                    rerun.mark(one)
                return []
            case "mark", (event,):
                if isinstance(event, ev.EngineStarted):
                    event = replace(event, edition=self._rerun.name)
                rerun.mark(event)
                return []
            case "schedule", _:
                return rerun.schedule()
            case "earlier", (step, scheduled, *_):
                if step is None or step <= self._first_step:
                    rerun.begin_earlier(scheduled)
                return []
            case "update", _:
                sampled = defaultdict[int, list[int]](list)
                for event in act.events:
                    if isinstance(event, ev.TokenSampled):
                        sampled[event.request_id].append(event.token_id)
                judged = (event for event in act.events if isinstance(event, ev.DraftsJudged))
                return rerun.update(sampled, {event.request_id: event.num_accepted for event in judged})
            case "drafts", (guessed, *_):
                return rerun.draft(guessed)
            case "abort", (request_id,):
                _refuse_unknown_end(act)
                return rerun.abort(INT(request_id))
            case "reset", _:
                return rerun.reset()
            case "unusual", (why, *_):
                raise CannotJudgeError(readable(TEXT(why), 300))
            case _:
                return []

    def compare(self, act: Act, ours: Sequence[ev.Event]) -> Parting | None:
        """Record our events, and return the first difference from the recorded ones."""
        parting = None
        for place, (recorded, event) in enumerate(zip_longest(act.events, ours)):
            if event is not None:
                event = self._translated(recorded, event)
            if parting is None and recorded != event:
                ahead, counterpart = _counterpart(recorded, event, ours[place:])
                moments = (act.start + place, self._rerun.timeline.end + ahead)
                parting = Parting(moments, recorded, counterpart)
            if event is not None:
                self._rerun.mark(event)
        return parting

    def _translated(self, recorded: ev.Event | None, ours: ev.Event) -> ev.Event:
        """Return our event with the recorded engine's hash for the same content."""
        if not isinstance(ours, ev.BlockCached):
            return ours
        if isinstance(recorded, ev.BlockCached) and recorded.group == ours.group:
            self._hashes.learn(ours.group, ours.block_hash, recorded.block_hash)
        return replace(ours, block_hash=self._hashes.theirs(ours.group, ours.block_hash))


def _counterpart(
    recorded: ev.Event | None, event: ev.Event | None, following: Sequence[ev.Event]
) -> tuple[int, ev.Event | None]:
    """Return our event to show beside a recorded one, and its distance from `event`.

    A block that goes to the other end of the queue is freed at a different place among the blocks of its table.
    """
    if isinstance(recorded, ev.BlockFreed):
        for ahead, other in enumerate(following):
            if isinstance(other, ev.BlockFreed) and replace(other, queue_end=recorded.queue_end) == recorded != other:
                return ahead, other
    return 0, event


def _refuse_unknown_end(act: Act) -> None:
    for event in act.events:
        if isinstance(event, ev.RequestFinished) and event.reason not in REASONS:
            raise CannotJudgeError(f"request {event.request_id} ended with {readable(event.reason)!r}")
