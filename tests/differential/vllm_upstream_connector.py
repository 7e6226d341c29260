"""A connector for tapped workloads, in vLLM's interpreter: late loads, failing ones, delayed sends, pins.

spec: UpstreamTier's, and {send: updates that sending a finished request's blocks takes, 0 for none; failing: a seed,
loads then fail now and then; pinning: a seed, blocks are then pinned and unpinned; defer: frees wait for the steps
under way, as with a consumer's connector}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from differential.vllm_upstream_tier import UpstreamTier

FAIL_CHANCE = 0.3
PIN_CHANCE = 0.2
MAX_PINNED_UPDATES = 4


class TappedTier(UpstreamTier, SupportsHMA):
    """UpstreamTier that also fails, sends and pins. manager: the scheduler's KV-cache manager."""

    def __init__(self, spec: Mapping[str, Any], manager: Any) -> None:
        super().__init__(spec)
        self._manager, self._pool = manager, manager.block_pool
        self._send = spec.get("send", 0)
        self._failing = Random(spec["failing"]) if "failing" in spec else None
        self._pinning = Random(spec["pinning"]) if "pinning" in spec else None
        self._sending: dict[str, int] = {}
        self._local: dict[str, int] = {}
        self._loaded_at_once: list[tuple[str, int, int]] = []
        self.num_local: dict[str, int] = {}
        """Requests that wait for a load, and their computed tokens before it."""
        self.has_loaded: set[str] = set()
        """Requests that have waited for a load since they were preempted."""
        self.pinned: list[tuple[Any, int, bool]] = []
        """(block, updates left, released by unpin_blocks)."""

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Tokens behind the local hit; a load that is there at once leaves the last token to be computed."""
        self._local[request.request_id] = num_computed_tokens
        num_tokens, is_late = super().get_num_new_matched_tokens(request, num_computed_tokens)
        if num_tokens and not is_late:
            num_tokens = max(0, min(num_tokens, request.num_tokens - 1 - num_computed_tokens))
        return num_tokens, is_late

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Begin a load."""
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        name = request.request_id
        self.has_loaded.discard(name)
        if num_external_tokens and self._delay:
            self.num_local[name] = self._local[name]
            self.has_loaded.add(name)
        elif num_external_tokens:
            self._loaded_at_once.append((name, self._local[name], self._local[name] + num_external_tokens))

    def request_finished_all_groups(self, request: Request, block_ids: Any) -> tuple[bool, None]:
        """Send the blocks of a request that came to its end."""
        is_sent = self._send > 0 and request.status is RequestStatus.FINISHED_LENGTH_CAPPED
        if is_sent:
            self._sending[request.request_id] = self._send
        return is_sent, None

    request_finished = request_finished_all_groups

    def landed(self) -> KVConnectorOutput:
        """What a worker reports after a step."""
        output = super().landed()
        self._sending = {name: steps - 1 for name, steps in self._sending.items()}
        output.finished_sending = {name for name, steps in self._sending.items() if steps <= 0}
        for name in output.finished_sending:
            del self._sending[name]
        self._fail_some(output)
        self._release_pins()
        for kind in ("finished_recving", "finished_sending", "failed_recving"):  # a set's order is another one each run
            setattr(output, kind, sorted(getattr(output, kind)))
        return output

    def take_up(self, requests: Mapping[str, Request]) -> None:
        """Forget the loads that vLLM has taken up."""
        waits = RequestStatus.WAITING_FOR_REMOTE_KVS
        self.num_local = {
            name: num_local
            for name, num_local in self.num_local.items()
            if name in requests and requests[name].status is waits
        }

    def _fail_some(self, output: KVConnectorOutput) -> None:
        at_once, self._loaded_at_once = self._loaded_at_once, []
        if self._failing is None:
            return
        groups = self._manager.coordinator.single_type_managers
        arrived = [(name, self.num_local.get(name, 0), 1 << 30) for name in sorted(output.finished_recving)]
        for name, start, end in (*arrived, *at_once):
            if self._failing.random() >= FAIL_CHANCE:
                continue
            if len(groups) > 1:
                output.failed_recving.add(name)
                continue
            size, table = groups[0].block_size, groups[0].req_to_blocks.get(name, ())
            loaded = [block.block_id for block in table[start // size : -(-end // size)] if not block.is_null]
            if loaded:
                output.invalid_block_ids.add(self._failing.choice(loaded))

    def pin_some(self) -> None:
        """Pin used and cached blocks now and then."""
        dice = self._pinning
        if dice is None or dice.random() >= PIN_CHANCE:
            return
        some = [block for block in self._pool.blocks if not block.is_null and (block.ref_cnt or block.block_hash)]
        chosen = dice.sample(some, min(len(some), dice.randint(1, 3)))
        self._pool.touch(chosen)
        is_unpinned = dice.random() < 0.5
        self.pinned += [(block, dice.randint(1, MAX_PINNED_UPDATES), is_unpinned) for block in chosen]

    def _release_pins(self) -> None:
        self.pinned = [(block, left - 1, is_unpinned) for block, left, is_unpinned in self.pinned]
        over = [(block, is_unpinned) for block, left, is_unpinned in self.pinned if left <= 0]
        self.pinned = [pin for pin in self.pinned if pin[1] > 0]
        if freed := [block for block, is_unpinned in over if not is_unpinned]:
            self._pool.free_blocks(freed)
        if unpinned := [block for block, is_unpinned in over if is_unpinned]:
            self._pool.unpin_blocks(unpinned, lambda block: None)

    def pins(self, deferred: Any) -> dict[str, int]:
        """Return per block its references of no table: the tier's, and those of frees that wait."""
        ids = [block.block_id for block, _, _ in self.pinned]
        ids += [block.block_id for _, blocks in deferred for block in blocks if not block.is_null]
        return {str(block_id): count for block_id, count in sorted(Counter(ids).items())}
