"""The comparison, act by act: the recorded scheduler's events against those of an edition with the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from labengine import events as ev
from labengine.config import EngineConfig
from labengine.conformance.acts import Act, acts_of
from labengine.conformance.rerun import Rerun
from labengine.conformance.settings import CannotJudgeError
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.stream.pieces import Piece
from labengine.timeline import Timeline
from labengine.trace.parsing import INT, TEXT
from labengine.wording import readable

REASONS = ("stop", "length", "repetition", "abort")
"""Reasons for a request's end that an edition can be given."""


@dataclass(frozen=True, slots=True)
class Parting:
    """The place at which the two sides part: the numbers of the events, and the events; None on a side without one."""

    moments: tuple[int, int]
    recorded: ev.Event | None
    expected: ev.Event | None


@dataclass(slots=True)
class JudgedPiece:
    """How far a piece was judged. end: events of the piece that were judged; parting: None while both did the same."""

    end: int
    expected: Timeline
    parting: Parting | None = None
    why_unjudged: str = ""


def judge(piece: Piece, config: EngineConfig, parts: Parts, longest: int) -> JudgedPiece:
    """Give a piece's inputs to an edition until it does otherwise, or until it cannot follow."""
    rerun = Rerun(config, parts, _ends(piece), longest)
    judging = _Judging(rerun, _salts(piece))
    outcome = JudgedPiece(0, rerun.timeline)
    for act in acts_of(piece):
        try:
            ours = judging.answer(act)
        except CannotJudgeError as error:
            outcome.why_unjudged = str(error)
            return outcome
        except Exception as error:  # a part of the user's, or one that follows what cannot be
            what = readable(f"{type(error).__name__}: {error}", 300)
            outcome.why_unjudged = f"edition {parts.name} raises {what}"
            return outcome
        outcome.parting = judging.compare(act, ours)
        outcome.end = act.start + len(act.events) + (act.word in ("add", "mark"))
        if outcome.parting is not None:
            return outcome
    return outcome


class _Judging:
    def __init__(self, rerun: Rerun, salts: dict[int, ExtraKeys]) -> None:
        self._rerun, self._salts = rerun, salts
        self._hashes: dict[tuple[int, bytes], bytes] = {}
        """The recorded hash of each of ours, per group: two engines hash with different functions."""
        self._known: set[tuple[int, bytes]] = set()

    def answer(self, act: Act) -> list[ev.Event]:
        """Make the act's call on the edition's scheduler; return its events. Raises CannotJudgeError."""
        rerun = self._rerun
        match act.word, act.values:
            case "add", (ev.RequestAdded() as event,):
                added = rerun.add(event, self._salts.get(event.request_id, ()))
                for one in added:
                    rerun.mark(one)
                return []
            case "mark", (event,):
                if isinstance(event, ev.EngineStarted):
                    event = replace(event, edition=self._rerun.name)
                rerun.mark(event)
                return []
            case "schedule", _:
                return rerun.schedule()
            case "update", _:
                return rerun.update({e.request_id: e.token_id for e in act.events if isinstance(e, ev.TokenSampled)})
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
        """Record our events, and return the first place at which they are not the recorded ones."""
        parting = None
        for number, (recorded, event) in enumerate(zip_longest(act.events, ours), act.start):
            if event is not None:
                event = self._translated(recorded, event)
            if parting is None and recorded != event:
                parting = Parting((number, self._rerun.timeline.end), recorded, event)
            if event is not None:
                self._rerun.mark(event)
        return parting

    def _translated(self, recorded: ev.Event | None, ours: ev.Event) -> ev.Event:
        """Return our event with the recorded engine's hash for the same content."""
        if not isinstance(ours, ev.BlockCached):
            return ours
        key = ours.group, ours.block_hash
        if key not in self._hashes and isinstance(recorded, ev.BlockCached) and recorded.group == ours.group:
            theirs = recorded.group, recorded.block_hash
            if theirs not in self._known:
                self._known.add(theirs)
                self._hashes[key] = recorded.block_hash
        return replace(ours, block_hash=self._hashes.get(key, ours.block_hash))


def _refuse_unknown_end(act: Act) -> None:
    for event in act.events:
        if isinstance(event, ev.RequestFinished) and event.reason not in REASONS:
            raise CannotJudgeError(f"request {event.request_id} ended with {readable(event.reason)!r}")


def _ends(piece: Piece) -> dict[int, tuple[int, str]]:
    """Return each finished request's number of tokens and its reason."""
    requests = piece.fold.requests
    finished = (event for event in piece.timeline.events() if isinstance(event, ev.RequestFinished))
    return {one.request_id: (len(requests[one.request_id].token_ids), one.reason) for one in finished}


def _salts(piece: Piece) -> dict[int, ExtraKeys]:
    salts = (one.values for one in piece.inputs if one.word == "salt")
    return {INT(request_id): (("cache_salt", TEXT(digest)),) for request_id, digest, *_ in salts}
