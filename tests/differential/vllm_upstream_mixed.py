"""Complete workloads on vLLM's schedulers, with all that may be mixed, without a model. Runs where vLLM is installed.

A workload has the keys of vllm_upstream_scheduler, and `async`, `aborts` [[clock, request, "update"?]] (before a step,
or between a step and its booking); a request with a `leader` is another answer to its prompt. A row, see
`MixedRun.state`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from differential.chance_drafts import judged
from differential.vllm_upstream_scheduler import MAX_STEPS, Run, note_preemptions

Row = dict[str, Any]


def run_mixed(workload: Mapping[str, Any]) -> list[Row]:
    """Return one row per step taken; asynchronous, one per plan and one per booking. RuntimeError if nothing moves."""
    run = MixedRun(workload)
    clock = num_idle = 0
    while run.has_work or run.arrivals:
        if not run.has_work:
            clock = max(clock, run.arrivals[0][0])
        run.join(clock)
        run.abort(clock)
        num_rows = len(run.rows)
        run.step(clock)
        clock += 1
        moved = any(row["scheduled"] or row["preempted"] for row in run.rows[num_rows:])
        num_idle = 0 if moved or run.arrivals else num_idle + 1
        if len(run.rows) > MAX_STEPS or num_idle > 10:
            raise RuntimeError(f"vLLM does not get on at step {clock}")
    return run.rows


class MixedRun(Run):
    """One workload under way, in one process or with a step in flight."""

    def __init__(self, workload: Mapping[str, Any]) -> None:
        self.is_async = bool(workload.get("async"))
        super().__init__(workload, AsyncScheduler if self.is_async else Scheduler)
        self.rows: list[Row] = []
        self._hits: list[list[int]] = []
        self._in_flight: deque[tuple[Any, list[bool], set[str]]] = deque()
        note_preemptions(self.scheduler, self.preempted)
        look_up = self.scheduler._get_local_prefix_cache_hit

        def noting(request: Any) -> Any:
            found = look_up(request)
            self._hits.append([int(request.request_id), found[1]])
            return found

        self.scheduler._get_local_prefix_cache_hit = noting

    @property
    def has_work(self) -> bool:
        """True while a request is open or a step is not booked."""
        return self.scheduler.has_unfinished_requests() or bool(self._in_flight)

    def abort(self, clock: int, moment: str = "step") -> None:
        """End the requests whose time has come."""
        for at, number, *when in self.workload.get("aborts", ()):
            if at == clock and (when or ["step"]) == [moment] and str(number) in self.requests:
                self.scheduler.finish_requests(str(number), RequestStatus.FINISHED_ABORTED)

    def step(self, clock: int) -> None:
        """Do what EngineCore does in a step: plan while there is room for a step in flight, else book the oldest."""
        depth = 2 if self.is_async else 1
        if self.scheduler.has_requests():
            self._schedule(clock)
            if len(self._in_flight) < depth and self._in_flight[-1][1]:
                return
        self.abort(clock, "update")
        if self._in_flight:
            self._book(clock)

    def _schedule(self, clock: int) -> None:
        self.preempted.clear()
        self._hits.clear()
        before = {request.request_id for request in self.scheduler.running}
        plan = self.scheduler.schedule()
        ids = plan.num_scheduled_tokens
        samples = [not self.requests[name].is_prefill_chunk for name in ids]
        self._in_flight.append((plan, samples, set(ids) - before))
        hits = [hit for hit in {hit[0]: hit for hit in self._hits}.values() if str(hit[0]) in ids]
        drafts = plan.scheduled_spec_decode_tokens
        scheduled = [[int(name), num_tokens, len(drafts.get(name, ()))] for name, num_tokens in ids.items()]
        decided = {"scheduled": scheduled, "preempted": list(self.preempted), "hits": hits}
        self.rows.append({"clock": clock, **decided, "finished": []})
        if self.is_async:
            self.rows[-1] |= self.state()

    def _book(self, clock: int) -> None:
        plan, samples, admitted = self._in_flight.popleft()
        ids = list(plan.num_scheduled_tokens)
        ended = [name for name in ids if self.requests[name].is_finished()]
        tokens = [
            self._outputs(name, plan.scheduled_spec_decode_tokens.get(name, ()), name in admitted) if has_output else []
            for name, has_output in zip(ids, samples, strict=True)
        ]
        self.scheduler.update_from_output(
            plan,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={name: index for index, name in enumerate(ids)},
                sampled_token_ids=tokens,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
                kv_connector_output=self._tier.landed() if self._tier else None,
            ),
        )
        if self._drafts is not None and not self.is_async:
            self._draft([name for name, found in zip(ids, tokens, strict=True) if found])
        for name in ids:
            self._labels.learn(self.requests[name])
        if self.is_async:
            self.rows.append({"clock": clock, "scheduled": [], "preempted": [], "hits": []})
        newly = [int(name) for name in ids if self.requests[name].is_finished() and name not in ended]
        self.rows[-1] |= {"finished": newly} | self.state()

    def _outputs(self, name: str, drafts: Any, is_admitted: bool) -> list[int]:
        """Return the tokens that the model gives: those of accepted drafts, and one behind them."""
        request = self.requests[name]
        text = list(request.all_token_ids)
        if self.is_async and self._drafts is not None:  # the worker fills in its own; none for one admitted in the step
            drafts = [] if is_admitted else self._drafts.propose(text, self._drafts.num_drafts)[: len(drafts)]
        return judged(drafts, lambda position: self.token_at(name, position), len(text))

    def state(self) -> Row:
        """requests: {id: [status, tokens, computed, tables, drafts, [tokens in flight, placeholders, stale ones]]}."""
        requests: Row = {}
        for name, request in self.requests.items():
            row = self._request_row(name, request)
            is_open = row[0] != "finished"
            drafts = list(request.spec_token_ids) if is_open else []
            ahead = [request.num_in_flight_tokens, request.num_output_placeholders, request.num_stale_output_tokens]
            requests[name] = [*row, drafts, ahead if is_open else [0, 0, 0]]
        held = self.row(0, {})
        return {
            "requests": requests,
            "running": [int(request.request_id) for request in self.scheduler.running],
            "waiting": [int(request.request_id) for request in self.scheduler.waiting],
            **{key: held[key] for key in ("ref_counts", "free_queue", "cached")},
        }
