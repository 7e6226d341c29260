"""A small scheduler with the method names of vLLM's, to put the tap on: first come, first served, full attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from hashlib import sha256
from types import SimpleNamespace
from typing import Any


class Status(Enum):
    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    WAITING_FOR_REMOTE_KVS = auto()
    FINISHED_LENGTH_CAPPED = auto()
    FINISHED_ABORTED = auto()


class FakeBlock:
    def __init__(self, block_id: int) -> None:
        self.block_id, self.ref_cnt, self.is_null = block_id, 0, block_id == 0
        self._block_hash: bytes | None = None
        self._block_hash_num_tokens: int | None = None
        self.prev_free_block: FakeBlock | None = None
        self.next_free_block: FakeBlock | None = None

    @property
    def block_hash(self) -> bytes | None:
        return self._block_hash


class FakeQueue:
    """The free queue, linked from head to tail as vLLM's is."""

    def __init__(self, blocks: Sequence[FakeBlock]) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = FakeBlock(-1), FakeBlock(-2)
        self._link(self.fake_free_list_head, self.fake_free_list_tail)
        self.append_n(blocks)

    def __iter__(self) -> Iterator[FakeBlock]:
        block = self.fake_free_list_head.next_free_block
        while block is not None and block is not self.fake_free_list_tail:
            yield block
            block = block.next_free_block

    def popleft(self) -> FakeBlock:
        block = next(iter(self))
        self.remove(block)
        return block

    def remove(self, block: FakeBlock) -> None:
        self._link(block.prev_free_block, block.next_free_block)

    def prepend_n(self, blocks: Sequence[FakeBlock]) -> None:
        for block in reversed(blocks):
            first = self.fake_free_list_head.next_free_block
            self._link(self.fake_free_list_head, block)
            self._link(block, first)

    def append_n(self, blocks: Sequence[FakeBlock]) -> None:
        for block in blocks:
            last = self.fake_free_list_tail.prev_free_block
            self._link(last, block)
            self._link(block, self.fake_free_list_tail)

    def _link(self, one: FakeBlock | None, other: FakeBlock | None) -> None:
        assert one is not None and other is not None
        one.next_free_block, other.prev_free_block = other, one


class FakeMap:
    def __init__(self) -> None:
        self._cache: dict[bytes, FakeBlock | dict[int, FakeBlock]] = {}

    def contain(self, key: bytes, block_id: int) -> bool:
        return block_id in self.of(key)

    def of(self, key: bytes) -> dict[int, FakeBlock]:
        entry = self._cache.get(key, {})
        return entry if isinstance(entry, dict) else {entry.block_id: entry}

    def insert(self, key: bytes, block: FakeBlock) -> None:
        self._cache[key] = {**self.of(key), block.block_id: block} if key in self._cache else block

    def pop(self, key: bytes, block_id: int) -> None:
        left = {i: block for i, block in self.of(key).items() if i != block_id}
        self._cache[key] = left
        if not left:
            del self._cache[key]


class FakePool:
    def __init__(self, num_blocks: int) -> None:
        self.blocks = [FakeBlock(i) for i in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.free_block_queue = FakeQueue(self.blocks[1:])
        self.cached_block_hash_to_block = FakeMap()
        self.cached_block_hashes_by_block: dict[int, set[bytes]] = {}
        self.hash_block_size = 4

    def get_new_blocks(self, num_blocks: int) -> list[FakeBlock]:
        found = [self.free_block_queue.popleft() for _ in range(num_blocks)]
        for block in found:
            self._remove_cached_block_hashes(block)
            block.ref_cnt = 1
        return found

    def free_blocks(self, ordered_blocks: Iterable[FakeBlock]) -> None:
        to_head, to_tail = [], []
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                (to_head if block.block_hash is None else to_tail).append(block)
        self.free_block_queue.prepend_n(to_head)
        self.free_block_queue.append_n(to_tail)

    def touch(self, blocks: Sequence[FakeBlock]) -> None:
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def unpin_blocks(self, blocks: Sequence[FakeBlock], on_reuse: Any) -> None:
        for block in blocks:
            block.ref_cnt -= 1
        self.free_block_queue.append_n([block for block in blocks if block.ref_cnt == 0])

    def move_block_hashes(self, src_block: FakeBlock, dst_block: FakeBlock) -> None:
        key, num_tokens = src_block.block_hash, src_block._block_hash_num_tokens
        self._remove_cached_block_hashes(src_block)
        if key is not None:
            self._insert_block_hash(key, dst_block, num_tokens)

    def cache_full_blocks(self, request: FakeRequest, blocks: list[FakeBlock], num_full: int, block_size: int) -> None:
        for index in range(num_full):
            if blocks[index].block_hash is None:
                key = request.key(index, block_size)
                self._insert_block_hash(key, blocks[index], num_tokens=(index + 1) * block_size)

    def cache_partial_block(self, request: FakeRequest, block: FakeBlock, key: bytes, num_tokens: int) -> None:
        self._insert_block_hash(key, block, num_tokens)

    def _insert_block_hash(self, block_hash_with_group_id: bytes, block: FakeBlock, num_tokens: int | None) -> None:
        block._block_hash, block._block_hash_num_tokens = block_hash_with_group_id, num_tokens
        self.cached_block_hash_to_block.insert(block_hash_with_group_id, block)

    def _remove_cached_block_hashes(self, block: FakeBlock) -> None:
        if block.block_hash is not None:
            self.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
            block._block_hash = None

    def evict_blocks(self, block_ids: set[int]) -> None:
        for block_id in block_ids:
            self._remove_cached_block_hashes(self.blocks[block_id])

    def reset_prefix_cache(self) -> bool:
        self.cached_block_hash_to_block = FakeMap()
        for block in self.blocks:
            block._block_hash = None
        return True


class FullAttentionManager:
    """The only kind of group here; the tap knows it by its name."""

    def __init__(self, pool: FakePool, block_size: int) -> None:
        self.block_pool, self.block_size = pool, block_size
        self.kv_cache_spec = SimpleNamespace()
        self.req_to_blocks: dict[str, list[FakeBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def add_local_computed_blocks(self, request_id: str, new_computed_blocks: Sequence[FakeBlock]) -> None:
        self.block_pool.touch(new_computed_blocks)
        self.req_to_blocks[request_id] = list(new_computed_blocks)

    def allocate_external_computed_blocks(self, request_id: str, num_tokens: int) -> None:
        self.allocate_new_blocks(request_id, num_tokens)

    def allocate_new_blocks(self, request_id: str, num_tokens: int) -> None:
        table = self.req_to_blocks[request_id]
        table += self.block_pool.get_new_blocks(-(-num_tokens // self.block_size) - len(table))

    def free(self, request_id: str) -> None:
        self.block_pool.free_blocks(reversed(self.pop_blocks_for_free(request_id)))

    def pop_blocks_for_free(self, request_id: str) -> list[FakeBlock]:
        return self.req_to_blocks.pop(request_id, [])

    def _remove_blocks_in_range(self, request_id: str, first_block: int, last_block: int) -> None:
        """Leave every block: full attention has no window."""

    def _apply_cow(self, request_id: str, block_idx: int, source_block: FakeBlock, cow_block: FakeBlock) -> None:
        self.req_to_blocks[request_id][block_idx] = cow_block
        cow_block.ref_cnt += 1


class FakeManager:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_pool = FakePool(num_blocks)
        self.group = FullAttentionManager(self.block_pool, block_size)
        self.coordinator = SimpleNamespace(single_type_managers=(self.group,))

    def hit(self, request: FakeRequest) -> list[FakeBlock]:
        found: list[FakeBlock] = []
        while (len(found) + 1) * self.group.block_size < request.num_tokens:
            served = self.block_pool.cached_block_hash_to_block.of(request.key(len(found), self.group.block_size))
            if not served:
                break
            found.append(next(iter(served.values())))
        return found

    def allocate_slots(
        self,
        request: FakeRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
    ) -> bool | None:
        hit = new_computed_blocks.blocks[0] if new_computed_blocks else []
        num_computed = request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens
        num_tokens = num_computed + num_new_tokens
        num_held = len(self.group.req_to_blocks.get(request.request_id, ()))
        free = [block for block in self.block_pool.free_block_queue if block not in hit]
        if -(-num_tokens // self.group.block_size) - num_held - len(hit) > len(free):
            return None
        if request.request_id not in self.group.req_to_blocks:
            self.group.add_local_computed_blocks(request.request_id, hit)
        self.group.allocate_new_blocks(request.request_id, num_tokens)
        if not delay_cache_blocks:
            self.cache_blocks(request, min(num_tokens, request.num_tokens))
        return True

    def cache_blocks(self, request: FakeRequest, num_tokens: int) -> None:
        size, table = self.group.block_size, self.group.req_to_blocks[request.request_id]
        self.block_pool.cache_full_blocks(request, table, num_tokens // size, size)


class FakeRequest:
    """A request that samples its own position, modulo 100, until it has max_tokens."""

    num_stale_output_tokens = num_output_placeholders = 0
    spec_token_ids: Sequence[int] = ()

    def __init__(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> None:
        self.request_id, self.max_tokens, self.num_prompt_tokens = request_id, max_tokens, len(prompt)
        self._all_token_ids = list(prompt)
        self._hashes = [self.key(index, 4)[:-4] for index in range(len(prompt) // 4)]
        self.status = Status.WAITING
        self.num_computed_tokens = self.num_in_flight_tokens = 0

    @property
    def num_tokens(self) -> int:
        return len(self._all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def block_hashes(self) -> list[bytes]:
        self._hashes += [self.key(index, 4)[:-4] for index in range(len(self._hashes), self.num_tokens // 4)]
        return self._hashes

    def key(self, index: int, block_size: int) -> bytes:
        """Return the key of a block: the hash of all tokens up to its end, and the group in four bytes."""
        return sha256(str(self._all_token_ids[: (index + 1) * block_size]).encode()).digest() + bytes(4)


class FakeConnector:
    """tokens: those that it holds of each request's prompt. sends: requests whose blocks it sends at their end."""

    def __init__(self, tokens: dict[str, int], sends: set[str]) -> None:
        self.tokens, self.sends = tokens, sends
        self.landed: set[str] = set()


def transferred(received: str = "", sent: str = "", failed: str = "") -> Any:
    """Return what a worker reports: names of requests, separated by spaces."""
    return SimpleNamespace(
        finished_recving=set(received.split()), finished_sending=set(sent.split()), failed_recving=set(failed.split())
    )


class FakeScheduler:
    def __init__(self, num_blocks: int = 12, block_size: int = 4) -> None:
        self.kv_cache_manager = FakeManager(num_blocks, block_size)
        self.requests: dict[str, FakeRequest] = {}
        self.waiting: list[FakeRequest] = []
        self.running: list[FakeRequest] = []
        self.deferred_frees: list[list[FakeBlock]] = []
        self.failed_recving_kv_req_ids: set[str] = set()
        self.connector: FakeConnector | None = None

    def add_request(self, request: FakeRequest) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> Any:
        scheduled: dict[str, int] = {}
        for request in list(self.running):
            while request in self.running and not self._allocate(request, scheduled, (), 0):
                self._preempt_request(self.running.pop(), 0.0)
        preempted = {request.request_id for request in self.waiting}
        for request in list(self.waiting):
            if request.status is Status.WAITING_FOR_REMOTE_KVS:
                if self.connector is None or request.request_id not in self.connector.landed:
                    continue
                self._update_waiting_for_remote_kv(request)
                request.status = Status.WAITING
            hit = self.kv_cache_manager.hit(request) if not request.num_computed_tokens else []
            if self.connector is not None and self._load(request, hit):
                continue
            if not self._allocate(request, scheduled, hit, len(hit) * self.kv_cache_manager.group.block_size):
                break
            self.waiting.remove(request)
            self.running.append(request)
            request.status = Status.RUNNING
        for name in preempted - {request.request_id for request in self.running}:
            scheduled.pop(name, None)
        return SimpleNamespace(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_spec_decode_tokens={},
        )

    def _load(self, request: FakeRequest, hit: Sequence[FakeBlock]) -> bool:
        """Begin a load of the tokens that the connector holds behind a hit; return whether there are any."""
        assert self.connector is not None
        num_local = len(hit) * self.kv_cache_manager.group.block_size
        num_tokens = self.connector.tokens.pop(request.request_id, 0) - num_local
        if num_tokens <= 0:
            return False
        self.kv_cache_manager.allocate_slots(
            request,
            0,
            num_local,
            SimpleNamespace(blocks=(list(hit),)),
            num_external_computed_tokens=num_tokens,
            delay_cache_blocks=True,
        )
        request.status, request.num_computed_tokens = Status.WAITING_FOR_REMOTE_KVS, num_local + num_tokens
        return True

    def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        assert self.connector is not None
        self.connector.landed |= kv_connector_output.finished_recving
        for name in kv_connector_output.finished_sending:
            self._free_blocks(self.requests[name])

    def _update_waiting_for_remote_kv(self, request: FakeRequest) -> None:
        if request.request_id not in self.failed_recving_kv_req_ids:
            return self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens)
        self.failed_recving_kv_req_ids.remove(request.request_id)
        self.kv_cache_manager.group.free(request.request_id)

    def _handle_failed_recving(self, failed_req_ids: set[str]) -> set[str]:
        for name in failed_req_ids:
            self.requests[name].num_computed_tokens = 0
        self.failed_recving_kv_req_ids |= failed_req_ids
        return set()

    def _handle_invalid_blocks(self, invalid_block_ids: set[int], num_scheduled_tokens: dict[str, int]) -> set[str]:
        return set()

    def _allocate(
        self, request: FakeRequest, scheduled: dict[str, int], hit: Sequence[FakeBlock], num_hit: int
    ) -> bool:
        num_new = request.num_tokens - request.num_computed_tokens - num_hit
        blocks = SimpleNamespace(blocks=(list(hit),))
        if self.kv_cache_manager.allocate_slots(request, num_new, num_hit, blocks) is None:
            return False
        scheduled[request.request_id] = num_new
        request.num_computed_tokens += num_hit + num_new
        request.num_in_flight_tokens = num_new
        return True

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> None:
        if (output := model_runner_output) is not None:
            self._handle_failed_recving(output.failed_recving)
            self._update_from_kv_xfer_finished(output)
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None or request.status is not Status.RUNNING:
                continue
            request.num_in_flight_tokens = 0
            self._update_request_with_output(request, [request.num_tokens % 100])
            if request.num_output_tokens == request.max_tokens:
                self.finish(request, Status.FINISHED_LENGTH_CAPPED)

    def _update_request_with_output(self, request: FakeRequest, new_token_ids: list[int]) -> None:
        request._all_token_ids += new_token_ids

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Keep no drafts."""

    def finish_requests(self, request_ids: str, finished_status: Status) -> None:
        self.finish(self.requests[request_ids], finished_status)

    def reset_prefix_cache(self) -> bool:
        return self.kv_cache_manager.block_pool.reset_prefix_cache()

    def finish(self, request: FakeRequest, status: Status) -> None:
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        request.status = status
        self._free_request(request)

    def _free_request(self, request: FakeRequest) -> None:
        if self.connector is None or request.request_id not in self.connector.sends:
            self._free_blocks(request)

    def _free_blocks(self, request: FakeRequest) -> None:
        self.kv_cache_manager.group.free(request.request_id)
        del self.requests[request.request_id]

    def _preempt_request(self, request: FakeRequest, timestamp: float) -> None:
        self.kv_cache_manager.group.free(request.request_id)
        request.status, request.num_computed_tokens, request.num_in_flight_tokens = Status.PREEMPTED, 0, 0
        self.waiting.insert(0, request)

    def shutdown(self) -> None:
        """Release nothing."""


def run_fake(scheduler: FakeScheduler, num_requests: int = 4, max_tokens: int = 6) -> list[tuple[str, list[int]]]:
    """Run requests that share prefixes, with an abort and a reset; return each one's tokens."""
    requests = [FakeRequest(f"cmpl-{n}", list(range(6 + n % 3)), max_tokens) for n in range(num_requests)]
    for request in requests:
        scheduler.add_request(request)
    num_steps = 0
    while scheduler.requests:
        scheduler.update_from_output(scheduler.schedule(), None)
        num_steps += 1
        if num_steps == 3:
            scheduler.finish_requests(requests[-1].request_id, Status.FINISHED_ABORTED)
    scheduler.kv_cache_manager.block_pool.evict_blocks({1})
    scheduler.reset_prefix_cache()
    return [(request.request_id, request._all_token_ids) for request in requests]
