"""The rules and the oracle on a recorded stream: plans are rebuilt from the events, and judged as in a lab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from labengine import events as ev
from labengine.check.first_event import BrokenState, Suspicion, WrongRead, WrongWrite
from labengine.check.invariants import check_invariants, judge_contents
from labengine.check.oracle import Oracle
from labengine.check.plan_rules import judge_plan
from labengine.check.slot_memory import PrefixIdentities
from labengine.check.state import FoldState
from labengine.core.request import ExtraKeys, Image
from labengine.core.step_plan import StepPlan
from labengine.record.fold import Fold
from labengine.record.fold_state import RequestFold
from labengine.record.violation import Violation
from labengine.vllm.conformance.breaches import Breaches
from labengine.vllm.conformance.edition_run import salts_of
from labengine.vllm.conformance.rebuilt_plans import RebuiltPlans
from labengine.vllm.stream.pieces import Piece

MAX_VIOLATIONS = 20
"""Most violations kept, since many follow from the first."""

BLOCKS_PER_STEP = 512
"""Most blocks checked per step on average, so that a large pool is checked only now and then."""


def violations_of(piece: Piece) -> list[Violation]:
    """Return the violations found by the rules and the oracle in a piece, oldest first, each once."""
    found: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Violation] = {}
    for one in _violations(piece):
        found.setdefault((one.rule, one.request_ids, one.block_ids), one)
        if len(found) == MAX_VIOLATIONS:
            break
    return [*found.values()]


def _violations(piece: Piece) -> Iterator[Violation]:
    _, first, events = piece.timeline.kept()
    open_ = {} if piece.start is None else piece.start.requests
    unbooked = {number: one.unbooked.num_tokens - one.unbooked.num_stale for number, one in open_.items()}
    extra_keys = salts_of(piece) if piece.start is not None or not piece.is_late else None
    judge = StreamJudge(first, extra_keys, piece.fold.requests, unbooked)
    for event in events:
        yield from (replace(one.violation, step=judge.fold.step) for one in judge.follow(event))
    yield from (replace(one.violation, step=judge.fold.step) for one in judge.of_state())


class StreamJudge:
    """Judges one engine by its events, given one after the other.

    fold: the state before the first event, updated here. extra_keys: as in Breaches. requests, unbooked: as in
    RebuiltPlans; by default those of the fold, and none.
    """

    def __init__(
        self,
        fold: Fold,
        extra_keys: Mapping[int, ExtraKeys] | None,
        requests: Mapping[int, RequestFold] | None = None,
        unbooked: Mapping[int, int] | None = None,
    ) -> None:
        self.fold = fold
        self._extra_keys, self._requests = extra_keys, requests
        self._begin()
        self._plans.fill_tables(unbooked or {})

    def _begin(self) -> None:
        """Begin with the fold's pool; its requests are replaced when an engine starts."""
        fold = self.fold
        requests = fold.requests if self._requests is None else self._requests
        self._oracle = Oracle(fold.groups, fold.null_block, PrefixIdentities(_Identified(requests)))
        self._breaches = Breaches(fold, self._extra_keys)
        self._plans = RebuiltPlans(fold, requests, self._oracle)
        self._every, self._num_due = 1 + len(fold.ref_counts) // BLOCKS_PER_STEP, 0

    def follow(self, event: ev.Event) -> list[Suspicion]:
        """Follow one event; return the violations that it shows. A rolled-back step cannot be followed."""
        breach = self._breaches.follow(event)
        self.fold.apply(event)
        if isinstance(event, ev.EngineStarted):
            self._begin()
        found: list[Suspicion] = [] if breach is None else [breach]
        if (plan := self._plans.follow(event)) is not None:
            found += self._of_plan(plan)
        is_boundary = isinstance(event, ev.StepStarted | ev.StepEnded) and self.fold.changes.blocks
        if plan is not None or is_boundary:
            found += self._of_state_if_due()
        return found

    def _of_plan(self, plan: StepPlan) -> Iterator[Suspicion]:
        yield from map(WrongWrite, judge_plan(FoldState(self.fold), plan, registers_early=True))
        self._oracle.before_forward(plan)
        yield from map(WrongRead, self._oracle.after_forward(plan))

    def _of_state_if_due(self) -> list[Suspicion]:
        self.fold.take_changes()
        self._num_due += 1
        return [] if self._num_due % self._every else self.of_state()

    def of_state(self) -> list[Suspicion]:
        """Return the violations of the present state."""
        snapshot = self.fold.snapshot()
        return [BrokenState(found) for found in (*check_invariants(snapshot), *judge_contents(snapshot))]


class _Identified:
    """Requests by id, by their tokens alone: a stream tells neither what else their KV depends on nor images."""

    def __init__(self, requests: Mapping[int, RequestFold]) -> None:
        self._requests = requests

    def __getitem__(self, request_id: int) -> _Tokens:
        return _Tokens(self._requests[request_id].token_ids)


class _Tokens:
    """A request whose KV depends on its tokens alone."""

    extra_keys: ExtraKeys = ()
    images: tuple[Image, ...] = ()

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
