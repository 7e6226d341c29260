"""Workloads on vLLM's schedulers with the tap attached: its messages, and vLLM's own state after each update.

A workload is one of vllm_upstream_scheduler's, with `async` (two steps in flight, tokens one step late), `aborts`
(a seed: running requests are aborted now and then), `resets` (the prefix cache is reset where vLLM is idle),
`drafts` (a seed: speculative tokens are scheduled, and some of them rejected; not with `async`), `tier` (a connector,
see vllm_upstream_connector), `late` (steps before somebody listens; from then on a keyframe precedes each step) and
`broken` (the name of one of vllm_upstream_broken's copies). With `speculation` and `async`, vLLM's drafts are
placeholders: dice say how many are accepted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "vllm_tap"))

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from differential import vllm_upstream_pool as pool_rows
from differential import vllm_upstream_scheduler as upstream
from differential.vllm_upstream_broken import broken
from differential.vllm_upstream_connector import TappedTier
from labengine_vllm.encoding import plain
from labengine_vllm.engine import Engine
from labengine_vllm.header import header
from labengine_vllm.outbox import Sender
from labengine_vllm.tap import Tap

ABORT_CHANCE = 0.03
MAX_DRAFTS = 4
"""Speculative tokens of a request in one step."""
MAX_STALLS = 50
"""Updates without a scheduled request, after which a workload ends: it may hold a request that never fits."""
MAX_CLOCK = 5_000
"""Rounds after which a workload is refused: requests may be preempted for ever. The longest ones take some hundreds."""


class Collector(Sender):
    """An outbox that keeps what is put into it, in order with the states between."""

    has_audience = True

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any], num_events: int) -> bool:
        self.items.append({"message": plain(message)})
        return True


def run_tapped(workload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"header": ...}, then {"message": ...} and, after each update, {"state": ...}."""
    with broken(workload.get("broken")):
        run = _TappedRun(workload)
        try:
            run.complete()
        except Exception:  # a broken copy may die: what the tap saw until then is its stream
            if "broken" not in workload:
                raise
            run.tap.close()
    return run.collector.items


class _TappedRun(upstream.Run):
    def __init__(self, workload: Mapping[str, Any]) -> None:
        self._is_async = bool(workload.get("async"))
        super().__init__(workload, AsyncScheduler if self._is_async else Scheduler)
        if self._tier is not None:
            self._tier = self.scheduler.connector = TappedTier(workload["tier"], self.scheduler.kv_cache_manager)
            self.scheduler.defer_block_free = bool(workload["tier"].get("defer"))
        self.collector = Collector()
        engine = Engine.of(self.scheduler)
        self.collector.items.append({"header": {**header(engine, "recorded"), "pid": 1, "model": "no-weights"}})
        self._late = workload.get("late")
        self.collector.has_audience = not self._late
        self.tap = Tap(engine, self.collector)
        self._rng = Random(workload["aborts"]) if "aborts" in workload else None
        self._resets = bool(workload.get("resets"))
        self._drafting = Random(workload["drafts"]) if "drafts" in workload else None
        self._accepting = Random(str(workload.get("speculation")))

    def complete(self) -> None:
        """As EngineCore does: schedule ahead while there is room, then book the oldest step."""
        queue: deque[Any] = deque()
        depth = 2 if self._is_async else 1
        clock = num_stalls = 0
        while num_stalls < MAX_STALLS:
            self.join(clock)
            if not self.scheduler.has_requests() and not queue:
                if not self.arrivals:
                    break
                if self._resets:
                    self.scheduler.reset_prefix_cache()
                clock = max(clock + 1, self.arrivals[0][0])
                continue
            clock += 1
            if self.scheduler.has_requests():
                self._listen(clock)
                plan = self.scheduler.schedule()
                if self._tier is not None:
                    self._tier.pin_some()
                queue.append((plan, self._sampling(plan)))
                if len(queue) < depth and plan.total_num_scheduled_tokens:
                    continue
            plan, sampling = queue.popleft()
            self._maybe_abort()
            self._book(plan, sampling)
            if self._drafts is not None and not self._is_async:
                self._draft([name for name in plan.num_scheduled_tokens if name in self.scheduler.requests])
            self._draft_by_chance()
            num_stalls = 0 if plan.num_scheduled_tokens else num_stalls + 1
            if clock > MAX_CLOCK:
                raise RuntimeError("vLLM does not get on: it preempts a request again and again")
        self.tap.close()

    def _listen(self, clock: int) -> None:
        if self._late is not None and clock > self._late:
            self.collector.has_audience = self.collector.wants_keyframe = True
            self.tap._next_keyframe = 0.0

    def _maybe_abort(self) -> None:
        loading = [self.scheduler.requests[name] for name in self._tier.num_local] if self._tier is not None else []
        running = [*self.scheduler.running, *(one for one in loading if not one.is_finished())]
        if self._rng is not None and running and self._rng.random() < ABORT_CHANCE:
            victim = self._rng.choice(running).request_id
            self.scheduler.finish_requests(victim, RequestStatus.FINISHED_ABORTED)

    def _draft_by_chance(self) -> None:
        """Propose tokens for each running request: as many right ones as the dice say, then wrong ones."""
        if self._drafting is None:
            return
        names, drafts = [], []
        for request in self.scheduler.running:
            num_drafts = self._drafting.randint(0, MAX_DRAFTS)
            num_right = self._drafting.randint(0, num_drafts)
            tokens = [self.token_at(request.request_id, request.num_tokens + j) for j in range(num_drafts)]
            names.append(request.request_id)
            drafts.append([*tokens[:num_right], *(token + 1 for token in tokens[num_right:])])
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))

    def _sampled(self, name: str, drafts: list[int]) -> list[int]:
        """Return the accepted drafts of a request and the token behind them."""
        start = self.requests[name].num_tokens
        tokens = [self.token_at(name, start + j) for j in range(len(drafts) + 1)]
        num_accepted = next((j for j, draft in enumerate(drafts) if draft != tokens[j]), len(drafts))
        if self._is_async:
            num_accepted = self._accepting.randint(0, len(drafts))
        return tokens[: num_accepted + 1]

    def _sampling(self, plan: Any) -> set[str]:
        """Return the requests whose last known token this step computes: the model samples one for each."""
        return {name for name in plan.num_scheduled_tokens if not self.requests[name].is_prefill_chunk}

    def _book(self, plan: Any, sampling: set[str]) -> None:
        ids = list(plan.num_scheduled_tokens)
        drafts = plan.scheduled_spec_decode_tokens
        sampled = [self._sampled(name, drafts.get(name, [])) if name in sampling else [] for name in ids]
        index = {name: number for number, name in enumerate(ids)}
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index=index,
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self._tier.landed() if self._tier is not None else None,
        )
        self.scheduler.update_from_output(plan, output)
        if self._tier is not None:
            self._tier.take_up(self.scheduler.requests)
        if "broken" not in self.workload and self._late is None:  # a broken queue may be a circle
            self.collector.items.append({"state": self._state()})

    def _state(self) -> dict[str, Any]:
        """Return vLLM's own state, read without the tap's code."""
        scheduler, pool = self.scheduler, self.scheduler.kv_cache_manager.block_pool
        served: dict[str, list[int]] = {}
        for key, entry in pool.cached_block_hash_to_block._cache.items():
            ids = list(entry) if isinstance(entry, dict) else [entry.block_id]
            served[f"{get_group_id(key)}:{get_block_hash(key).hex()}"] = ids
        return {
            "requests": {name: self._request(request) for name, request in scheduler.requests.items()},
            "ref_counts": pool_rows.ref_counts(pool),
            "free_queue": pool_rows.free_queue(pool),
            "prefix_map": served,
            "contents": self._contents(),
            "drafts": {name: list(one.spec_token_ids) for name, one in scheduler.requests.items() if self._tells(one)},
            **({"pins": self._tier.pins(scheduler.deferred_frees)} if self._tier is not None else {}),
        }

    def _tells(self, request: Request) -> bool:
        """Return True for a request whose drafts the scheduler knows."""
        return bool(request.spec_token_ids) and not self._is_async and not request.is_finished()

    def _contents(self) -> dict[str, list[int]]:
        """Return the tokens of the full cached blocks in tables, by block id."""
        contents = {}
        for manager in self.scheduler.kv_cache_manager.coordinator.single_type_managers:
            size = manager.block_size
            for name, blocks in manager.req_to_blocks.items():
                tokens = list(self.scheduler.requests[name].all_token_ids)
                for block in blocks:
                    num_tokens = block.block_hash_num_tokens
                    if block.block_hash is not None and num_tokens % size == 0:
                        contents[str(block.block_id)] = tokens[num_tokens - size : num_tokens]
        return contents

    def _request(self, request: Any) -> list[Any]:
        num_booked = request.num_computed_tokens - request.num_in_flight_tokens + request.num_stale_output_tokens
        tables = pool_rows.tables(self.scheduler.kv_cache_manager, request.request_id)
        status, tokens = request.status.name.lower(), list(request.all_token_ids)
        if request.is_finished():
            return ["finished", tokens, 0, tables]
        if self._tier is not None and request.request_id in self._tier.has_loaded:
            status = {"preempted": "waiting", "waiting_for_remote_kvs": "waiting"}.get(status, status)
            num_booked = self._tier.num_local.get(request.request_id, num_booked)
        return [status, tokens, max(0, num_booked), tables]
