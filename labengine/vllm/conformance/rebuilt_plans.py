"""The plans of a recording's forward passes, rebuilt from their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from labengine import events as ev
from labengine.check.oracle import Oracle
from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.record.fold import Fold
from labengine.record.fold_state import RequestFold


class RebuiltPlans:
    """Follows one engine. It tells the oracle about the loads and copies before each forward pass.

    fold: the state, which already includes each event followed. requests: whose tokens are read; as of a recording's
    end if there is one, since an asynchronous scheduler's decode is computed before its last token is known.
    """

    def __init__(self, fold: Fold, requests: Mapping[int, RequestFold], oracle: Oracle) -> None:
        self._fold, self._requests, self._oracle = fold, requests, oracle
        self._unknown = {
            block_id for block_id, keys in enumerate(fold.block_keys) if keys and not fold.block_tokens[block_id]
        }
        """Cached blocks whose content no event has told."""
        self._hits: dict[int, tuple[int, int]] = {}
        """Per request: the tokens [first, last) that a load brings."""
        self._begin_step()

    def _begin_step(self) -> None:
        self._scheduled: dict[int, ev.RequestScheduled] = {}
        self._runs: dict[int, list[tuple[SlotRun, ...]]] = {}
        self._checkpoints: dict[int, int] = {}

    def fill_tables(self, unbooked: Mapping[int, int]) -> None:
        """Tell the oracle about KV computed before the recording, or still being computed, as each request's own.

        unbooked: per request, the tokens being computed.
        """
        for request_id, request in self._fold.requests.items():
            end = request.num_computed_tokens + unbooked.get(request_id, 0)
            for group, table in enumerate(request.block_tables):
                for index, block_id in enumerate(table):
                    if block_id != self._fold.null_block:
                        self._fill((request_id, group, index, block_id), 0, end)

    def follow(self, event: ev.Event) -> StepPlan | None:
        """Follow one event; return the plan of a forward pass."""
        match event:
            case ev.BlockAllocated(block_id):
                self._unknown.discard(block_id)
            case ev.BlockTouched(block_id, request_id, group, index) if block_id in self._unknown:
                self._unknown.remove(block_id)  # the first request to hit it tells its content
                self._fill((request_id, group, index, block_id), 0, len(self._requests[request_id].token_ids))
            case ev.StepStarted():
                self._begin_step()
            case ev.RequestScheduled(request_id):
                self._scheduled[request_id] = event
            case ev.PrefixHit(request_id, num_tokens):
                self._hits[request_id] = num_tokens, num_tokens
            case ev.ExternalHit(request_id, num_tokens):
                local = self._hits[request_id][0]
                self._hits[request_id] = local, local + num_tokens
            case ev.BlocksLoaded(request_id, transfers):
                for group, index, block_id, _ in transfers:
                    self._fill((request_id, group, index, block_id), *self._hits[request_id])
            case ev.BlockCopied() | ev.StateCopied():
                self._oracle.copied(event.block_id, event.into_block_id, event.request_id, event.group)
            case ev.HashesMoved(block_id, into_block_id):  # to a copy, in which a state stays for hits
                for group in {group for group, _ in self._fold.block_keys[into_block_id]}:
                    self._oracle.copied(block_id, into_block_id, None, group)
            case ev.RequestFinished(request_id) | ev.RequestPreempted(request_id):
                self._oracle.release(request_id)
            case ev.SlotsWritten(request_id, _, _, written):
                self._runs.setdefault(request_id, []).append(written)
            case ev.StateAdvanced():
                self._advance(event)
            case ev.ForwardRan():
                return self._plan()
        return None

    def _advance(self, event: ev.StateAdvanced) -> None:
        runs, written = self._runs.setdefault(event.request_id, []), (event.block_id, 0, 1)
        if event.start > self._scheduled[event.request_id].start:  # behind a state inside the chunk
            self._checkpoints[event.request_id] = event.start
            runs[-1] = (*runs[-1], written)
        else:
            runs.append((written,))

    def _plan(self) -> StepPlan:
        parts = (_part(self._scheduled[i], runs, self._fold, self._requests[i]) for i, runs in self._runs.items())
        known = (part for part in parts if part is not None)
        return StepPlan(tuple(replace(part, checkpoint=self._checkpoints.get(part.request_id, 0)) for part in known))

    def _fill(self, entry: tuple[int, int, int, int], first: int, last: int) -> None:
        """Tell the oracle that an entry (request, group, index, block) has KV of the request's tokens [first, last).

        A recording does not tell the content of a load or of earlier blocks, which is assumed to be the request's.
        """
        request_id, group, index, block_id = entry
        size = self._fold.groups[group].block_size
        start, stop = max(first, index * size), min(last, (index + 1) * size)
        if start < stop:
            self._oracle.filled(request_id, group, block_id, start, stop)


def _part(
    event: ev.RequestScheduled, runs: list[tuple[SlotRun, ...]], fold: Fold, known: RequestFold
) -> ScheduledRequest | None:
    """Return a request's share of a plan; None if its last token is unknown, because it ended while the step ran.

    None also if the stream does not tell what the step writes (see `written`): neither rules nor oracle judge it then.

    For drafts unknown to an asynchronous scheduler, the accepted ones are among the request's final tokens. The others
    are assumed to be right as well, since the next step overwrites them.
    """
    request, tokens = fold.requests[event.request_id], known.token_ids
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
