"""The rules and the oracle on a recorded stream: plans are rebuilt from the events, and judged as in a lab."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import merge
from types import SimpleNamespace

from labengine import events as ev
from labengine.check.invariants import check_invariants, judge_contents
from labengine.check.oracle import Oracle
from labengine.check.plan_rules import judge_plan
from labengine.check.slot_memory import PrefixIdentities
from labengine.check.state import FoldState
from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.vllm.conformance.breaches import breaches_of
from labengine.vllm.stream.pieces import Piece

MAX_VIOLATIONS = 20
"""Most violations kept, since many follow from the first."""

BLOCKS_PER_STEP = 512
"""Most blocks checked per step on average, so that a large pool is checked only now and then."""


def violations_of(piece: Piece) -> list[Violation]:
    """Return the violations found by the rules and the oracle in a piece, oldest first, each once."""
    found: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Violation] = {}
    for one in merge(breaches_of(piece), _violations(piece), key=lambda one: one.step or 0):
        found.setdefault((one.rule, one.request_ids, one.block_ids), one)
        if len(found) == MAX_VIOLATIONS:
            break
    return [*found.values()]


def _violations(piece: Piece) -> Iterator[Violation]:
    end = piece.fold
    identified = {
        i: SimpleNamespace(token_ids=one.token_ids, extra_keys=(), images=()) for i, one in end.requests.items()
    }
    oracle = Oracle(end.groups, end.null_block, PrefixIdentities(identified))
    every = 1 + len(end.ref_counts) // BLOCKS_PER_STEP
    _, first, _ = piece.timeline.kept()
    _fill_tables(oracle, piece, first)
    for number, (fold, plan) in enumerate(_plans(piece.timeline, end, oracle), 1):
        found = [*judge_plan(FoldState(fold), plan, registers_early=True)]
        oracle.before_forward(plan)
        found += [misread.violation() for misread in oracle.after_forward(plan)]
        if number % every == 0:
            found += _of_state(fold)
        yield from (replace(one, step=fold.step) for one in found)
    yield from (replace(one, step=end.step) for one in _of_state(end))


def _of_state(fold: Fold) -> list[Violation]:
    snapshot = fold.snapshot()
    return [*check_invariants(snapshot), *judge_contents(snapshot)]


def _fill_tables(oracle: Oracle, piece: Piece, first: Fold) -> None:
    """Tell the oracle about KV computed before the recording, or still being computed, as each request's own."""
    for request_id, request in first.requests.items():
        known = piece.start.requests.get(request_id) if piece.start is not None else None
        end = request.num_computed_tokens + (known.unbooked.num_tokens - known.unbooked.num_stale if known else 0)
        for group, table in enumerate(request.block_tables):
            for index, block_id in enumerate(table):
                if block_id != first.null_block:
                    _fill(oracle, piece.fold, (request_id, group, index, block_id), 0, end)


def _plans(timeline: Timeline, end: Fold, oracle: Oracle) -> Iterator[tuple[Fold, StepPlan]]:
    """Yield the state at each forward pass, and its plan, after telling the oracle about loads and copies before it.

    With asynchronous scheduling the last token of a decode is sampled while its step is under way, so the request's
    final tokens are used.
    """
    _, first, events = timeline.kept()
    fold, scheduled = first, dict[int, ev.RequestScheduled]()
    unknown = {
        block_id for block_id, tokens in enumerate(first.block_tokens) if first.block_keys[block_id] and not tokens
    }
    runs: dict[int, list[tuple[SlotRun, ...]]] = {}
    checkpoints: dict[int, int] = {}
    hits: dict[int, tuple[int, int]] = {}
    for event in events:
        fold.apply(event)
        match event:
            case ev.BlockAllocated(block_id):
                unknown.discard(block_id)
            case ev.BlockTouched(block_id, request_id, group, index) if block_id in unknown:
                unknown.remove(block_id)  # the first request to hit it tells its content
                _fill(oracle, end, (request_id, group, index, block_id), 0, len(end.requests[request_id].token_ids))
            case ev.StepStarted():
                scheduled, runs, checkpoints = {}, {}, {}
            case ev.RequestScheduled(request_id):
                scheduled[request_id] = event
            case ev.PrefixHit(request_id, num_tokens):
                hits[request_id] = num_tokens, num_tokens
            case ev.ExternalHit(request_id, num_tokens):
                local = hits[request_id][0]
                hits[request_id] = local, local + num_tokens
            case ev.BlocksLoaded(request_id, transfers):
                for group, index, block_id, _ in transfers:
                    _fill(oracle, end, (request_id, group, index, block_id), *hits[request_id])
            case ev.BlockCopied() | ev.StateCopied():
                oracle.copied(event.block_id, event.into_block_id, event.request_id, event.group)
            case ev.RequestFinished(request_id) | ev.RequestPreempted(request_id):
                oracle.release(request_id)
            case ev.SlotsWritten(request_id, _, _, written):
                runs.setdefault(request_id, []).append(written)
            case ev.StateAdvanced(request_id, _, block_id, start):
                of_request = runs.setdefault(request_id, [])
                if start > scheduled[request_id].start:  # behind a state inside the chunk
                    checkpoints[request_id] = start
                    of_request[-1] = (*of_request[-1], (block_id, 0, 1))
                else:
                    of_request.append(((block_id, 0, 1),))
            case ev.ForwardRan():
                parts = (_part(scheduled[i], runs[i], fold, end.requests[i].token_ids) for i in runs)
                known = (part for part in parts if part is not None)
                yield (
                    fold,
                    StepPlan(tuple(replace(part, checkpoint=checkpoints.get(part.request_id, 0)) for part in known)),
                )
                fold.take_changes()


def _fill(oracle: Oracle, end: Fold, entry: tuple[int, int, int, int], first: int, last: int) -> None:
    """Tell the oracle that a table entry (request, group, index, block) has KV of the request's tokens [first, last).

    A recording does not tell the content of a load or of earlier blocks, which is assumed to be the request's.
    """
    request_id, group, index, block_id = entry
    size = end.groups[group].block_size
    start, stop = max(first, index * size), min(last, (index + 1) * size)
    if start < stop:
        oracle.filled(request_id, group, block_id, start, stop)


def _part(
    event: ev.RequestScheduled, runs: list[tuple[SlotRun, ...]], fold: Fold, tokens: list[int]
) -> ScheduledRequest | None:
    """Return a request's share of a plan; None if its last token is unknown, because it ended while the step ran.

    None also if the stream does not tell what the step writes (see `written`): neither rules nor oracle judge it then.

    For drafts unknown to an asynchronous scheduler, the accepted ones are among the request's final tokens. The others
    are assumed to be right as well, since the next step overwrites them.
    """
    request = fold.requests[event.request_id]
    end = event.start + event.num_tokens - event.num_drafts
    if end > len(tokens) or len(runs) < len(fold.groups):
        return None
    drafts = request.drafts[: event.num_drafts] or (*tokens[end:], *[ev.UNKNOWN_TOKEN] * event.num_drafts)
    drafts = drafts[: event.num_drafts]
    return ScheduledRequest(
        request_id=event.request_id,
        token_ids=(*tokens[event.start : end], *drafts),
        start=event.start,
        block_tables=tuple(tuple(table) for table in request.block_tables),
        slot_runs=tuple(runs),
        is_prefill=event.is_prefill,
        samples=False,
        sampling=SamplingParams(),
        seed=0,
        num_drafts=event.num_drafts,
    )
