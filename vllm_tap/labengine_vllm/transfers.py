"""Observers of a connector's work: loads from the external tier, loads that fail, and blocks held after the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.kinds import BLOCKS_LOADED, EXTERNAL_HIT, LOAD_FAILED, TOKENS_COMPUTED
from labengine_vllm.recorder import Recorder
from labengine_vllm.wrapping import Wrapping

LOADING = "WAITING_FOR_REMOTE_KVS"
"""vLLM's status of a request that waits for a load."""

Transfer = tuple[int, int, int, str]
"""(group, table index, block id, block hash in hex): the hash is empty for a partly filled block."""


class TransferObserver:
    """Observes the loads of one scheduler's connector."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._scheduler, self._recorder = engine.scheduler, recorder
        self._groups, self._pool = engine.groups, engine.pool

    def watch(self, wrapping: Wrapping) -> None:
        """Wrap the scheduler's methods."""
        scheduler = self._scheduler
        wrapping.watch(scheduler, "_update_from_kv_xfer_finished", self._before_finished)
        wrapping.watch(scheduler, "_update_waiting_for_remote_kv", self._before_taking_up, self._after_taking_up)
        for name in ("_handle_failed_recving", "_handle_invalid_blocks"):
            wrapping.watch(scheduler, name, self._before_failing, self._after_failing)

    def forget(self) -> None:
        """Read the transfers under way from the scheduler alone, because earlier rows are unknown."""
        recorder = self._recorder
        recorder.loads, recorder.loading, recorder.has_loaded = {}, {}, set()
        requests = self._scheduler.requests
        recorder.holding = {name for name, one in requests.items() if one.status.name.startswith("FINISHED")}
        for name, request in requests.items():
            if request.status.name == LOADING:
                local = min(self._num_local(name), request.num_computed_tokens)
                self._note_load(name, local, request.num_computed_tokens, is_loading=True)

    def report_hit(self, request: Any, local: int, num_tokens: int, *, is_loading: bool) -> tuple[Any, ...]:
        """Return the row for tokens in the external tier after `local` computed ones."""
        self._note_load(request.request_id, local, local + num_tokens, is_loading=is_loading)
        return EXTERNAL_HIT, self._recorder.id_of(request.request_id), num_tokens, is_loading

    def report_loaded(self, output: Any) -> None:
        """Report the loads that precede a step's forward pass."""
        recorder = self._recorder
        for name in [name for name in recorder.loads if name in output.num_scheduled_tokens]:
            start, end = recorder.loads.pop(name)
            self._report(name, start, end)

    def _note_load(self, name: str, local: int, end: int, *, is_loading: bool) -> None:
        recorder = self._recorder
        recorder.loads[name] = local, end
        if is_loading:
            recorder.loading[name] = local
            recorder.has_loaded.add(name)

    def _num_local(self, name: str) -> int:
        """Return the number of a loading request's tokens that were cached before; a load's blocks have no hash yet."""
        counts: list[int] = []
        for group in self._groups:
            table = group.req_to_blocks.get(name, ())
            known = (i for i, block in enumerate(table) if not block.is_null and block._block_hash is None)
            counts.append(int(next(known, len(table)) * group.block_size))
        return min(counts)

    # -- late loads ----------------------------------------------------------------------------------------------------

    def _before_finished(self, kv_connector_output: Any) -> None:
        for name in sorted(kv_connector_output.finished_recving or ()):
            request = self._scheduler.requests.get(name)
            start, end = self._recorder.loads.pop(name, (0, 0))
            if request is not None and request.status.name == LOADING:
                self._report(name, start, min(end, request.num_computed_tokens))

    def _before_taking_up(self, *_: Any) -> None:
        self._recorder.free_reason = "load_failed"

    def _after_taking_up(self, found: None, result: None, request: Any) -> None:
        recorder, name = self._recorder, request.request_id
        recorder.free_reason = "finished"
        recorder.loading.pop(name, None)
        recorder.rows.append((TOKENS_COMPUTED, recorder.id_of(name), request.num_computed_tokens))

    def _report(self, name: str, start: int, end: int) -> None:
        if transfers := [*self._transfers(name, start, end)]:
            self._recorder.rows.append((BLOCKS_LOADED, self._recorder.id_of(name), transfers))

    def _transfers(self, name: str, start: int, end: int) -> Iterator[Transfer]:
        """Yield the blocks that hold a request's tokens [start, end)."""
        hashes, hash_block_size = self._scheduler.requests[name].block_hashes, self._pool.hash_block_size
        for number, group in enumerate(self._groups):
            table, size = group.req_to_blocks.get(name, ()), group.block_size
            for index in range(start // size, min(-(-end // size), len(table))):
                if table[index].is_null:
                    continue
                last = (index + 1) * size // hash_block_size - 1
                is_complete = (index + 1) * size <= end and last < len(hashes)
                yield number, index, table[index].block_id, hashes[last].hex() if is_complete else ""

    # -- loads that fail -----------------------------------------------------------------------------------------------

    def _before_failing(self, *_: Any) -> set[str]:
        return set(self._scheduler.failed_recving_kv_req_ids)

    def _after_failing(self, known: set[str], failed: set[str], *_: Any) -> None:
        recorder = self._recorder
        for name in sorted((self._scheduler.failed_recving_kv_req_ids - known) | set(failed)):
            recorder.rows.append((LOAD_FAILED, recorder.id_of(name), "the connector reported a load that failed"))
