"""Events of an engine without a tap: what must have happened between two of its states."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from labengine import events as ev
from labengine.config import EngineConfig
from labengine.core.hash_chain import HashChain
from labengine.driven import inferred_tree
from labengine.driven.queue_change import QueueChange
from labengine.engine.simulated import default_next_token
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED
from labengine.vllm.stream.written import slot_runs

State = Mapping[str, Any]
"""A state in the words of driver.py."""
Plan = Mapping[str, Sequence[int]]
"""Per request, the first position that a step computes, and the number of tokens."""


class UntoldError(Exception):
    """Raised for a state to which no events lead from the one before."""


@dataclass(slots=True)
class Asked:
    """A request as it was added. seed: its tokens are those of this number."""

    token_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    is_aborted: bool = False
    hashes: list[bytes] = field(default_factory=list)
    """Hashes of its full blocks so far: the states hold none, so they are made from the tokens."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A reference of a request to a block, given up."""

    request_id: int
    index: int
    block_id: int
    reason: ev.FreeReason


class Inferring:
    """Follows one engine, which has a single KV-cache group and samples `default_next_token`.

    fold: the state that the events so far add up to.
    """

    def __init__(self, config: EngineConfig, edition: str) -> None:
        self.fold = Fold()
        self.asked: list[Asked] = []
        """Requests by their numbers; those to come included."""
        self._edition, self._config = edition, config
        self.size = config.groups[0].block_size
        self._chain = HashChain()
        self._events: list[ev.Event] = []
        self.unheld: set[tuple[int, int]] = set()
        """(request, table index) of entries whose blocks were freed although the table still names them."""
        self.queue_end: ev.QueueEnd = "tail"
        """Where blocks were last seen to enter the free queue."""

    def told(self, call: str, state: State, plan: Plan) -> list[ev.Event]:
        """Return the events of a call that led to a state. Raises UntoldError, LookupError, ValueError or TypeError.

        call: start, add, schedule, update, abort or reset. The events of a call that raised are in `taken`.
        """
        self._events = []
        if call == "start":
            groups = tuple((one.kind, one.block_size, one.window) for one in self._config.groups)
            self.tell(ev.EngineStarted(self._config.num_blocks, groups, self._edition))
        elif call == "add":
            self._add()
        elif call == "schedule":
            self.tell(ev.StepStarted(self.fold.step + 1))
        elif call == "update":
            self._compute(plan, state)
        _Change(self, call, state, plan if call == "schedule" else {}).tell_all()
        if call == "reset":
            self.tell(ev.PrefixCacheReset())
        return self._events

    @property
    def taken(self) -> list[ev.Event]:
        """The events of the newest call so far."""
        return self._events

    def forget(self, request_id: int) -> ev.Event:
        """Return the event that a finished request is no longer kept."""
        self._events = []
        self.tell(ev.RequestForgotten(request_id))
        return self._events[0]

    def go_on_from(self, fold: Fold) -> None:
        """Take another state for the one after the newest call."""
        self.fold = fold
        self.unheld.clear()

    def tell(self, event: ev.Event) -> None:
        """Note an event. Raises UntoldError if it cannot follow the ones before."""
        before = self.fold.num_impossible
        self.fold.apply(event)
        self._events.append(event)
        if self.fold.num_impossible > before:
            raise UntoldError(f"{type(event).__name__} cannot have happened")

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _add(self) -> None:
        number = max(self.fold.requests, default=-1) + 1
        asked = self.asked[number]
        self.tell(ev.RequestAdded(number, asked.token_ids, asked.max_tokens))

    def _compute(self, plan: Plan, state: State) -> None:
        """Tell the forward pass over a plan, and the tokens that it gives."""
        shares = {int(name): (int(start), int(start) + int(number)) for name, (start, number) in plan.items()}
        for request_id, (start, end) in shares.items():
            table = self.fold.requests[request_id].block_tables[0]
            self.tell(ev.SlotsWritten(request_id, 0, start, tuple(slot_runs(table, start, end, self.size))))
        self.tell(ev.ForwardRan(len(shares), sum(end - start for start, end in shares.values())))
        for request_id, (start, end) in shares.items():
            if "cached" in state:
                self._cache_computed(request_id, range(start // self.size, end // self.size), state)
            self.tell(ev.TokensComputed(request_id, end))
            if end == len(self.fold.requests[request_id].token_ids):
                self.tell(ev.TokenSampled(request_id, default_next_token(self.asked[request_id].seed, end), end))

    def _cache_computed(self, request_id: int, indices: Iterable[int], state: State) -> None:
        """Tell which of a request's newly full blocks are cached now, or were until another one took their place."""
        table, cached = self.fold.requests[request_id].block_tables[0], set(state["cached"])
        known = {block_id for blocks in self.fold.prefix_map.values() for block_id in blocks}
        replaced = {self.hash_of(*entry) for entry in self.entries_of(cached - known)}
        for index in indices:
            if table[index] in cached or self.hash_of(request_id, index) in replaced:
                self.cache(table[index], request_id, index, cached)

    def cache(self, block_id: int, request_id: int, index: int, cached: set[int]) -> None:
        """Tell that a block was registered. cached: all blocks of the map after the call."""
        block_hash = self.hash_of(request_id, index)
        mapped = self.fold.prefix_map.get((0, block_hash), ())
        if block_id in mapped:
            return
        if self.fold.block_keys[block_id]:
            self.tell(ev.BlockEvicted(block_id, "replaced"))
        mapped = (*(one for one in mapped if one in cached), block_id)
        self.tell(ev.BlockCached(block_id, request_id, 0, index, block_hash, mapped))

    # -- content -------------------------------------------------------------------------------------------------------

    def entries_of(self, block_ids: set[int]) -> Iterator[tuple[int, int]]:
        """Yield (request, index) of the table entries that name these blocks, if their tokens are known."""
        for request_id, request in self.fold.requests.items():
            for index, block_id in enumerate(request.block_tables[0]):
                if block_id in block_ids and (index + 1) * self.size <= len(request.token_ids):
                    yield request_id, index

    def hash_of(self, request_id: int, index: int) -> bytes:
        """Return the hash of a request's full block: of its tokens, and of all before them."""
        hashes, size = self.asked[request_id].hashes, self.size
        tokens = self.fold.requests[request_id].token_ids
        if (index + 1) * size > len(tokens):
            raise UntoldError(f"block {index} of request {request_id} is cached before it is full")
        for start in range(len(hashes) * size, (index + 1) * size, size):
            hashes.append(self._chain.link(hashes[-1] if hashes else b"", tokens[start : start + size]))
        return hashes[index]


Turn = tuple[float, int | None, Callable[[], None]]
"""When a block was given back, by whom, and what tells it: below 0 at the queue's head, above at its tail."""


def _by_request(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yield turns so that a request gives its blocks back in one go where the queue's two ends allow it."""
    ends = [deque(turn for turn in turns if (turn[0] > 0) is is_tail) for is_tail in (False, True)]
    owner: int | None = None
    while any(ends):
        same = (one for one in ends if owner is not None and one and one[0][1] == owner)
        end = next(same, ends[0] or ends[1])
        yield (turn := end.popleft())
        owner = turn[1]


class _Change:
    """The changes of tables, free queue, cache and tree in one call.

    They are told in an order in which they can have happened: what the tree finds and gets, what is given back, and
    then what is taken, request by request as planned.
    """

    def __init__(self, of: Inferring, call: str, state: State, plan: Plan) -> None:
        self._of, self._fold, self._tell = of, of.fold, of.tell
        self._call, self._plan = call, {int(name): share for name, share in plan.items()}
        self._tables = {int(name): list(tables[0]) for name, (_, tables) in state["requests"].items()}
        self._statuses = {int(name): status for name, (status, _) in state["requests"].items()}
        self._queue = list(state["free_queue"])
        self._cached = set(state["cached"]) if "cached" in state else None
        self._nodes = [
            inferred_tree.Node(number, parent, locks, tuple(blocks))
            for number, parent, locks, blocks in state.get("tree", ())
        ]
        self._holds = {int(name): node for name, node in state.get("holds", {}).items()}

    def tell_all(self) -> None:
        """Tell all of them."""
        self._keep_tree()
        if self._cached is not None:
            for request_id, index in [*self._of.entries_of(self._cached - self._known())]:
                block_id = self._fold.requests[request_id].block_tables[0][index]
                self._of.cache(block_id, request_id, index, self._cached)
        self._give_back()
        for request_id in [*self._plan, *(one for one in self._tables if one not in self._plan)]:
            self._take(request_id)
            if request_id in self._plan:
                self._schedule(request_id, *self._plan[request_id])
        self._settle()

    def _known(self) -> set[int]:
        return {block_id for blocks in self._fold.prefix_map.values() for block_id in blocks}

    # -- the tree ------------------------------------------------------------------------------------------------------

    def _keep_tree(self) -> None:
        """Tell what look-ups and insertions have done to the tree."""
        tree, nodes = self._fold.tree, self._nodes
        for split in inferred_tree.splits(tree, nodes):
            self._tell(split)
        if touched := inferred_tree.touched(tree, [one for one in nodes if one.node_id in tree.nodes]):
            self._tell(touched)
        moved = {one: held for one, held in tree.holds.items() if self._holds.get(one) != held}
        for request_id, held in moved.items():
            self._tell(ev.NodeUnlocked(held, request_id))
        for node in inferred_tree.inserted(tree, nodes):
            self._insert(node)
        for request_id, held in self._holds.items():
            if request_id not in tree.holds and self._fold.requests[request_id].block_tables[0]:
                self._tell(ev.NodeLocked(held, request_id))

    def _insert(self, node: inferred_tree.Node) -> None:
        above = self._fold.tree.nodes.get(node.parent_id)
        first = 0 if above is None else above.first_index + len(above.block_ids)
        end = first + len(node.block_ids)
        tables = {number: one.block_tables[0] for number, one in self._fold.requests.items()}
        owner = next((one for one, table in tables.items() if tuple(table[first:end]) == node.block_ids), None)
        if owner is None:
            raise UntoldError(f"node {node.node_id} has blocks that no request had at their places")
        self._tell(ev.NodeInserted(node.node_id, node.parent_id, owner, 0, first, node.block_ids))
        for index, block_id in enumerate(node.block_ids, first):
            self._of.cache(block_id, owner, index, set())

    # -- given back ----------------------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Tell which blocks were freed, in an order that leads to the queue as it is now."""
        ends, evicted = self._ends(), inferred_tree.evicted(self._fold.tree, self._nodes)
        drops = [*self._merged(ends), *self._given_up(ends)]
        of_tree = {block_id for _, blocks in evicted for block_id in blocks}
        leaving = of_tree | {one.block_id for one in drops}
        drops += self._freed_in_use(ends, leaving)
        leaving |= {one.block_id for one in drops}
        known = inferred_tree.below_first(self._fold.tree, dict(evicted))
        queue = QueueChange(self._fold.free_queue, self._queue, leaving, self._of.queue_end, known)
        self._of.queue_end = queue.usual_end
        turns: list[Turn] = [*self._turns(drops, of_tree, queue)]
        turns += [
            (queue.turn_of(blocks), None, partial(self._evict, node_id, blocks, queue)) for node_id, blocks in evicted
        ]
        left = Counter[int | None](one.request_id for one in drops)
        for request_id in [one for one in ends if not left[one]]:
            self._end(request_id, ends[request_id])
        for _, owner, tell in _by_request(sorted(turns, key=lambda turn: turn[0])):
            tell()
            left[owner] -= 1
            if owner in ends and not left[owner]:
                self._end(owner, ends[owner])

    def _turns(self, drops: Sequence[Drop], of_tree: Collection[int], queue: QueueChange) -> Iterator[Turn]:
        """Yield the turns of references. One to a block that stays in use follows the request's reference before it."""
        num_dropped = Counter(one.block_id for one in drops)
        newest: dict[int, float] = {}
        for one in drops:
            stays = self._fold.ref_counts[one.block_id] > num_dropped[one.block_id]
            if one.block_id in of_tree:
                turn = -inf
            else:
                turn = newest.get(one.request_id, -inf) if stays else queue.turn_of([one.block_id])
            newest[one.request_id] = turn
            yield turn, one.request_id, partial(self._drop, one, queue)

    def _ends(self) -> dict[int, ev.FreeReason]:
        """Return the requests that gave up their tables, and why."""
        ends, preempted = dict[int, ev.FreeReason](), dict[int, ev.FreeReason]()
        for request_id, request in self._fold.requests.items():
            before, after = request.block_tables[0], self._tables.get(request_id)
            if request.status == FINISHED:
                continue
            if after is None:
                ends[request_id] = "aborted" if self._of.asked[request_id].is_aborted else "finished"
            elif before and (not after or self._has_fresh(before, after)):
                preempted[request_id] = "preempted"
        return ends | dict(reversed(preempted.items()))  # where the queue does not tell the order, the newest is first

    def _has_fresh(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Return True if a block that was free has replaced one of a table: the table was given up and begun again."""
        return any(new != old and new in self._fold.free_queue for old, new in zip(before, after, strict=False))

    def _merged(self, ends: Collection[int]) -> Iterator[Drop]:
        """Tell the entries that now name another block; yield the references that they gave up."""
        for request_id, after in self._tables.items():
            before = [] if request_id in ends else self._fold.requests[request_id].block_tables[0]
            if len(after) < len(before):
                raise UntoldError(f"request {request_id} has lost entries of its table")
            for index, (old, new) in enumerate(zip([*before], after, strict=False)):
                if old != new:
                    ref_count = self._fold.ref_counts[new] + 1
                    self._tell(ev.BlockMerged(old, new, request_id, 0, index, ref_count))
                    yield from self._held(Drop(request_id, index, old, "merged"))

    def _given_up(self, ends: Mapping[int, ev.FreeReason]) -> Iterator[Drop]:
        for request_id, reason in ends.items():
            table = self._fold.requests[request_id].block_tables[0]
            for index in reversed(range(len(table))):
                yield from self._held(Drop(request_id, index, table[index], reason))

    def _held(self, drop: Drop) -> Iterator[Drop]:
        """Yield a reference unless it was given up before, while the table went on naming the block."""
        entry = drop.request_id, drop.index
        if entry in self._of.unheld:
            self._of.unheld.discard(entry)
        else:
            yield drop

    def _freed_in_use(self, ends: Collection[int], leaving: Collection[int]) -> list[Drop]:
        """Return the references to blocks that are free now although a table goes on naming them."""
        freed = {one for one in self._queue if one not in self._fold.free_queue and one not in leaving}
        return [
            Drop(request_id, index, block_id, "merged")
            for request_id, after in self._tables.items()
            if request_id not in ends
            for index, block_id in enumerate(after[: len(self._fold.requests[request_id].block_tables[0])])
            if block_id in freed and (request_id, index) not in self._of.unheld
        ]

    def _drop(self, one: Drop, queue: QueueChange) -> None:
        left = self._fold.ref_counts[one.block_id] - 1
        end = None if left > 0 else queue.end_of(one.block_id)
        self._tell(ev.BlockFreed(one.block_id, one.request_id, 0, one.index, left, end, one.reason))
        if one.reason == "merged" and self._fold.requests[one.request_id].block_tables[0][one.index] == one.block_id:
            self._of.unheld.add((one.request_id, one.index))

    def _evict(self, node_id: int, block_ids: tuple[int, ...], queue: QueueChange) -> None:
        self._of.unheld.update(self._of.entries_of(set(block_ids)))
        self._tell(ev.NodeEvicted(node_id, block_ids, queue.end_of(block_ids[0]), self._lost))
        for block_id in block_ids:
            self._tell(ev.BlockEvicted(block_id, self._lost))

    @property
    def _lost(self) -> ev.EvictReason:
        return "reset" if self._call == "reset" else "reused"

    def _end(self, request_id: int, reason: ev.FreeReason) -> None:
        request, asked = self._fold.requests[request_id], self._of.asked[request_id]
        if reason == "preempted":
            self._tell(ev.RequestPreempted(request_id))
            return
        is_full = len(request.token_ids) - request.num_prompt_tokens >= asked.max_tokens
        self._tell(ev.RequestFinished(request_id, "abort" if reason == "aborted" else "length" if is_full else "stop"))

    # -- taken ---------------------------------------------------------------------------------------------------------

    def _take(self, request_id: int) -> None:
        """Tell the blocks that a request got: those that were found in the cache, and fresh ones."""
        before, after = self._fold.requests[request_id].block_tables[0], self._tables[request_id]
        first = len(before)
        if not before and after:
            first = self._find(request_id, after)
        for index in range(first, len(after)):
            block_id = after[index]
            if block_id not in self._fold.free_queue:
                raise UntoldError(f"block {block_id}, which is in use, was given to request {request_id}")
            if self._fold.block_keys[block_id]:
                self._tell(ev.BlockEvicted(block_id))
            self._tell(ev.BlockAllocated(block_id, request_id, 0, index))

    def _find(self, request_id: int, table: Sequence[int]) -> int:
        """Tell a request's look-up; return the number of blocks found."""
        start, _ = self._plan.get(request_id, (0, 0))
        found = tuple(table[: start // self._of.size])
        self._tell(ev.PrefixHit(request_id, start, (found,)))
        self._lock(request_id)
        for index, block_id in enumerate(found):
            self._tell(ev.BlockTouched(block_id, request_id, 0, index, self._fold.ref_counts[block_id] + 1))
        return len(found)

    def _lock(self, request_id: int) -> None:
        if request_id in self._holds and request_id not in self._fold.tree.holds:
            self._tell(ev.NodeLocked(self._holds[request_id], request_id))

    def _schedule(self, request_id: int, start: int, num_tokens: int) -> None:
        request, end = self._fold.requests[request_id], start + num_tokens
        is_last = end == len(request.token_ids)
        is_decode = num_tokens == 1 and is_last and end > request.num_prompt_tokens
        if request.num_computed_tokens != start:
            self._tell(ev.TokensComputed(request_id, start))
        status = self._statuses[request_id]
        self._tell(ev.RequestScheduled(request_id, start, num_tokens, not is_decode, status))

    def _settle(self) -> None:
        """Tell what is left: locks, the order of nodes, and content that was forgotten."""
        for request_id in self._holds:
            self._lock(request_id)
        if touched := inferred_tree.touched(self._fold.tree, self._nodes):
            self._tell(touched)
        for block_id in sorted(self._known() - self._cached) if self._cached is not None else ():
            self._tell(ev.BlockEvicted(block_id, self._lost))
