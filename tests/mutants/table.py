"""Single wrong changes to the core, its journal, its events and the external tier: one line of the source each.

kind says what a change breaks: "state" (the core holds something wrong), "stream" (the events do), "journal" (a step is
not rolled back as it was), "reads" (KV of other tokens is read, or may be), "tier" (what is loaded or saved is not what
it is taken for), or "policy": all rules hold, the engine only decides otherwise, and only a comparison of editions detects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["state", "stream", "journal", "reads", "tier", "policy"]


@dataclass(frozen=True)
class Mutant:
    """One change: in this file of labengine, `old` becomes `new`. missed: why the live checks cannot see it."""

    name: str
    kind: Kind
    file: str
    old: str
    new: str
    missed: str = ""


POOL, GROUP, MANAGER = "core/block_pool.py", "core/kv_cache_group.py", "core/kv_cache_manager.py"
SCHEDULER, BUDGET, QUEUE = "core/scheduler.py", "core/token_budget.py", "core/free_queue.py"
REQUESTS = "core/request_queues.py"
CHAIN, MERGE = "core/hash_chain.py", "core/merge_policy.py"
WINDOW, FULL = "core/sliding_window.py", "core/full_attention.py"
LOADS, JOURNAL, LOOKUP, REQUEST = (
    "core/external_loads.py",
    "core/journal.py",
    "core/prefix_lookup.py",
    "core/request.py",
)
HOST, TRANSFERS, ENGINE = "engine/external/host.py", "engine/transfers.py", "engine/engine.py"
STORE, CONNECTOR = "engine/external/store.py", "core/connector.py"

MUTANTS = (
    # -- the pool and its queue ----------------------------------------------------------------------------------------
    Mutant(
        "take leaves the content",
        "state",
        POOL,
        "            if block.keys:\n                self.evict(block)\n        return block_ids",
        "        return block_ids",
    ),
    Mutant(
        "take counts two references",
        "state",
        POOL,
        "            block.ref_count = 1\n",
        "            block.ref_count = 2\n",
    ),
    Mutant(
        "touch leaves a free block queued",
        "state",
        POOL,
        "before = None if block.ref_count else free_queue.remove(block_id)",
        "before = None",
    ),
    Mutant(
        "touch does not count",
        "state",
        POOL,
        "            record((self._untouch, block, before))\n            block.ref_count += 1",
        "            record((self._untouch, block, before))",
    ),
    Mutant(
        "share does not count",
        "state",
        POOL,
        "        self._journal.record((self._untouch, block, None))\n        block.ref_count += 1",
        "        self._journal.record((self._untouch, block, None))",
    ),
    Mutant(
        "release keeps a reference",
        "state",
        POOL,
        "                block.ref_count = left = block.ref_count - 1\n",
        "                left = block.ref_count - 1\n                block.ref_count = max(left, 1)\n",
    ),
    Mutant(
        "release queues a block that others hold",
        "state",
        POOL,
        "                if left <= 0:\n                    if left:",
        "                if left <= 1:\n                    if left < 0:",
    ),
    Mutant(
        "release forgets the tail",
        "state",
        POOL,
        "        self.free_queue.prepend(head)\n        self.free_queue.append(tail)",
        "        self.free_queue.prepend(head)",
    ),
    Mutant(
        "release queues the tail twice",
        "state",
        POOL,
        "        self.free_queue.append(tail)",
        "        self.free_queue.append(tail + tail[:1])",
    ),
    Mutant(
        "evict leaves the map",
        "state",
        POOL,
        "                del prefix_map[key]",
        "                pass",
    ),
    Mutant(
        "evict keeps the block's keys",
        "state",
        POOL,
        "        block.keys, block.token_ids, block.prefix = (), (), None\n        if BlockEvicted",
        "        block.token_ids, block.prefix = (), None\n        if BlockEvicted",
    ),
    Mutant(
        "evict says nothing",
        "stream",
        POOL,
        "        if BlockEvicted in self._hooks:\n            self._hooks.emit(BlockEvicted(block_id, reason))",
        "        del block_id, reason",
    ),
    Mutant(
        "register leaves the map alone",
        "state",
        POOL,
        "        if mapped:\n            self.prefix_map[key] = mapped\n\n    def evict",
        "\n    def evict",
    ),
    Mutant(
        "the queue's remove leaves the next one's back link",
        "state",
        QUEUE,
        "self._next[before], self._prev[after] = after, before",
        "self._next[before] = after",
    ),
    Mutant(
        "the queue's remove forgets to count",
        "state",
        QUEUE,
        "        self._next[block_id] = self._prev[block_id] = _OUT\n        self._length -= 1",
        "        self._next[block_id] = self._prev[block_id] = _OUT",
    ),
    Mutant(
        "the queue takes from the head and counts one fewer",
        "state",
        QUEUE,
        "        self._length -= num_blocks",
        "        self._length -= num_blocks - 1",
    ),
    Mutant(
        "freed blocks without content go to the tail",
        "policy",
        POOL,
        "return [block_id for block_id in block_ids if not blocks[block_id].keys]",
        "return []",
    ),
    # -- tables --------------------------------------------------------------------------------------------------------
    Mutant(
        "a hit's last block is missing in the table",
        "state",
        GROUP,
        "self._extend_table(table, [*[self._pool.null_block] * num_skipped, *touched])",
        "self._extend_table(table, [*[self._pool.null_block] * num_skipped, *touched[:-1]])",
    ),
    Mutant(
        "a touch is told with one reference more",
        "stream",
        GROUP,
        "ref_count = self._pool.blocks[block_id].ref_count - remaining[block_id]",
        "ref_count = self._pool.blocks[block_id].ref_count - remaining[block_id] + 1",
    ),
    Mutant(
        "an allocation is not told",
        "stream",
        GROUP,
        "        if BlockAllocated in self._hooks:\n            for index, block_id in enumerate(block_ids, len(table) - missing):",
        "        if BlockAllocated in self._hooks:\n            for index, block_id in enumerate(block_ids[:-1], len(table) - missing):",
    ),
    Mutant(
        "an allocation is told at the wrong index",
        "stream",
        GROUP,
        "enumerate(block_ids, len(table) - missing)",
        "enumerate(block_ids, len(table) - missing + 1)",
    ),
    Mutant(
        "extend takes one block more",
        "state",
        GROUP,
        "        block_ids = self._take(request, missing)\n        self._extend_table",
        "        block_ids = self._take(request, missing + 1)[:-1]\n        self._extend_table",
    ),
    Mutant(
        "one block too few at a boundary (nano-vLLM 71)",
        "reads",
        GROUP,
        "return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])",
        "return num_tokens // self.block_size - len(request.block_tables[self.index])",
    ),
    Mutant(
        "the window's entries stay in the table",
        "state",
        GROUP,
        "            table[first:last] = [null_block] * (last - first)\n",
        "",
    ),
    Mutant(
        "a finished request keeps its table",
        "state",
        GROUP,
        "        self._journal.record((table.extend, held))\n        table.clear()",
        "        self._journal.record((table.extend, []))",
    ),
    Mutant(
        "free gives back all but the first block",
        "state",
        GROUP,
        "        indices = self.freeing_order(len(held))\n        if null_block",
        "        indices = self.freeing_order(len(held))[:-1]\n        if null_block",
    ),
    Mutant(
        "a freed block is told at the other end",
        "stream",
        GROUP,
        'ends: dict[int, QueueEnd] = dict.fromkeys(tail, "tail")',
        'ends: dict[int, QueueEnd] = dict.fromkeys(tail, "head")',
    ),
    Mutant(
        "a free is told of nobody",
        "stream",
        GROUP,
        '        for block_id in (*(i for i in block_ids if ends.get(i) != "head"), *reversed(head)):',
        '        for block_id in (*(i for i in block_ids[1:] if ends.get(i) != "head"), *reversed(head)):',
    ),
    Mutant("heads are told in the wrong order", "stream", GROUP, "*reversed(head)):", "*head):"),
    Mutant(
        "a chain's head is freed first",
        "policy",
        GROUP,
        "return range(num_entries - 1, -1, -1)",
        "return range(num_entries)",
    ),
    # -- merging and registering ---------------------------------------------------------------------------------------
    Mutant(
        "a merge leaves the table (mini-sglang 142)",
        "reads",
        GROUP,
        "        table[index] = into_block_id\n        if BlockMerged",
        "        if BlockMerged",
    ),
    Mutant(
        "a merge does not free the copy",
        "state",
        GROUP,
        '        self.release(request, [block_id], [index], "merged")',
        "        return",
    ),
    Mutant(
        "a merge does not share the target",
        "state",
        GROUP,
        "        self._pool.share(self._pool.blocks[into_block_id])\n",
        "",
    ),
    Mutant(
        "a merge is not told",
        "stream",
        GROUP,
        "        if BlockMerged in self._hooks:\n            ref_count",
        "        if not self._hooks:\n            ref_count",
    ),
    Mutant(
        "a merge into a block that is free", "reads", MERGE, "        return other.ref_count > 0", "        return True"
    ),
    Mutant(
        "nothing is merged",
        "policy",
        MERGE,
        "            if other is not block and self.is_alive(other) and self.is_equal(other, request, link):\n                return other",
        "            pass",
    ),
    Mutant(
        "a block is cached under its neighbour's hash",
        "reads",
        GROUP,
        "        key = (self.index, self.block_hashes(request, index, index + 1)[0])\n        block =",
        "        key = (self.index, self.block_hashes(request, max(0, index - 1), index + 1)[0])\n        block =",
    ),
    Mutant(
        "a cached block is told under another hash",
        "stream",
        GROUP,
        "BlockCached(block.block_id, request.request_id, self.index, index, key[1], mapped)",
        "BlockCached(block.block_id, request.request_id, self.index, index, key[1][::-1], mapped)",
    ),
    Mutant(
        "caching is not told",
        "stream",
        GROUP,
        "        if BlockCached in self._hooks:\n            self._hooks.emit(BlockCached(block.block_id",
        "        if not self._hooks:\n            self._hooks.emit(BlockCached(block.block_id",
    ),
    Mutant(
        "the last hasher wins (nano-vLLM 219)",
        "policy",
        MERGE,
        "        return mapped if block_id in mapped else (*mapped, block_id)",
        "        return (block_id,)",
    ),
    Mutant(
        "the hash chain forgets the parent",
        "reads",
        CHAIN,
        "return hashlib.sha256(parent_hash + array",
        "return hashlib.sha256(array",
    ),
    Mutant(
        "salts share one root",
        "reads",
        CHAIN,
        ' if extra_keys else b""',
        ' if not extra_keys and extra_keys else b""',
    ),
    Mutant(
        "prefixes are not compared, and hashes have six bits",
        "reads",
        CHAIN,
        'return hashlib.sha256(parent_hash + array("q", token_ids).tobytes()).digest()',
        'return bytes([hashlib.sha256(parent_hash + array("q", token_ids).tobytes()).digest()[0] % 64])',
    ),
    Mutant(
        "a prefix is equal if its last link is",
        "reads",
        REQUEST,
        "        return self._has_chain(prefix, link)",
        "        return prefix.token_ids == self.links[link]",
        missed="equal hashes of 256 bits mean equal prefixes: it takes a hash that collides to tell the two apart",
    ),
    Mutant(
        "blocks are registered before they are computed",
        "policy",
        MANAGER,
        '        return num_tokens if moment == "computed" else 0',
        "        return num_tokens",
    ),
    Mutant(
        "one token too many is registered",
        "reads",
        MANAGER,
        "        num_registrable = self.num_registrable_tokens(request, num_tokens, moment)\n        if not",
        "        num_registrable = self.num_registrable_tokens(request, num_tokens, moment) + 1\n        if not",
    ),
    # -- look-up and allocation ----------------------------------------------------------------------------------------
    Mutant(
        "a hit covers the last token too",
        "state",
        MANAGER,
        "return self.longest_hit(request, request.num_tokens - 1)",
        "return self.longest_hit(request, request.num_tokens)",
    ),
    Mutant(
        "hits are touched group by group (vLLM 44409)",
        "reads",
        MANAGER,
        "            group.add_hit(request, block_ids, num_computed)\n        if num_external:\n            for group in self.groups:\n                group.add_external(request, num_computed)",
        "            group.add_hit(request, block_ids, num_computed)\n            if num_external:\n                group.add_external(request, num_computed)",
        missed="it takes a pool of the prompt's size, whose only free blocks are the other group's hit",
    ),
    Mutant(
        "admission counts the hit one block too long",
        "state",
        MANAGER,
        "        self._set_computed(request, hit.num_tokens if request.is_loading else num_computed)",
        "        self._set_computed(request, hit.num_tokens + 1 if request.is_loading else num_computed + 1)",
    ),
    Mutant(
        "a prefix hit is not told",
        "stream",
        MANAGER,
        "        if PrefixHit in self._hooks:\n            self._hooks.emit(PrefixHit(",
        "        if not self._hooks:\n            self._hooks.emit(PrefixHit(",
    ),
    Mutant(
        "a hit is told longer than it is",
        "stream",
        MANAGER,
        "PrefixHit(request.request_id, hit.num_tokens, hit.block_ids)",
        "PrefixHit(request.request_id, hit.num_tokens + 1, hit.block_ids)",
    ),
    Mutant(
        "slots count from one",
        "reads",
        GROUP,
        "            offset = start % size\n",
        "            offset = (start + 1) % size\n",
    ),
    Mutant(
        "the cached run serves the map's last block",
        "policy",
        GROUP,
        "            run.append(mapped[0])\n        return run",
        "            run.append(mapped[-1])\n        return run",
    ),
    Mutant(
        "the window ends one block early",
        "reads",
        WINDOW,
        "return max(0, num_computed_tokens - self.window + 1)",
        "return max(0, num_computed_tokens - self.window + 1 + self.block_size)",
    ),
    Mutant(
        "the window is kept a block longer",
        "policy",
        WINDOW,
        "return max(0, num_computed_tokens - self.window + 1)",
        "return max(0, num_computed_tokens - self.window + 1 - self.block_size)",
    ),
    Mutant(
        "a window's hit is one block short",
        "reads",
        WINDOW,
        "return self._num_blocks(self.window - 1)",
        "return max(1, self._num_blocks(self.window - 1) - 1)",
    ),
    # -- scheduling ----------------------------------------------------------------------------------------------------
    Mutant(
        "computed tokens are not told",
        "stream",
        REQUESTS,
        "        if TokensComputed in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "computed tokens are counted one short",
        "state",
        REQUESTS,
        "        request.num_computed_tokens = num_tokens\n        if TokensComputed",
        "        request.num_computed_tokens = num_tokens - 1\n        if TokensComputed",
    ),
    Mutant(
        "a sampled token is not told",
        "stream",
        REQUESTS,
        "        if TokenSampled in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a sampled token is appended twice",
        "state",
        REQUESTS,
        "        request.token_ids.append(token_id)\n",
        "        request.token_ids.extend((token_id, token_id))\n",
    ),
    Mutant(
        "a preempted request keeps its computed tokens",
        "state",
        SCHEDULER,
        '        self.manager.free(victim, "preempted")\n        self._set(victim, "num_computed_tokens", 0)',
        '        self.manager.free(victim, "preempted")',
    ),
    Mutant(
        "a preemption is not told",
        "stream",
        SCHEDULER,
        "        if RequestPreempted in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a preempted request keeps its blocks",
        "state",
        SCHEDULER,
        '        self.manager.free(victim, "preempted")\n',
        "",
    ),
    Mutant(
        "a finished request keeps its blocks",
        "state",
        REQUESTS,
        '        self.manager.free(request, "aborted" if reason == "abort" else "finished")\n',
        "",
    ),
    Mutant(
        "an end is not told",
        "stream",
        REQUESTS,
        "        if RequestFinished in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a request ends one token late",
        "policy",
        REQUESTS,
        "num_generated == request.sampling.max_tokens",
        "num_generated == request.sampling.max_tokens + 1",
        missed="max_tokens is what was asked for, and no rule of the cache",
    ),
    Mutant(
        "what a broken forward wrote is trusted",
        "reads",
        SCHEDULER,
        '        self.manager.pool.evict_cached(sorted(written), "distrusted")\n',
        "",
    ),
    Mutant(
        "the oldest request is preempted",
        "policy",
        "core/waiting_queue.py",
        "        return running[-1]",
        "        return running[0]",
    ),
    Mutant(
        "a step ignores its budget by one",
        "policy",
        BUDGET,
        "            budget -= num_tokens + self.num_draft_inputs\n            place += 1",
        "            budget -= num_tokens - 1\n            place += 1",
    ),
    # -- the journal ---------------------------------------------------------------------------------------------------
    Mutant(
        "rollback forgets the oldest entry",
        "journal",
        JOURNAL,
        "        while len(self) > start:",
        "        while len(self) > start + 1:",
    ),
    Mutant(
        "take is not journalled", "journal", POOL, "        self._journal.record((self._put_back, block_ids))\n", ""
    ),
    Mutant("touch is not journalled", "journal", POOL, "            record((self._untouch, block, before))\n", ""),
    Mutant(
        "release is not journalled",
        "journal",
        POOL,
        "        self._journal.record((self._unrelease, block_ids))\n        rest",
        "        rest",
    ),
    Mutant(
        "register is not journalled",
        "journal",
        POOL,
        "        self._journal.record((self._unregister, block, key, self.prefix_map.get(key), block.token_ids))\n",
        "",
    ),
    Mutant(
        "evict is not journalled",
        "journal",
        POOL,
        "        record((_restore_content, block, block.keys, block.token_ids, block.prefix))\n",
        "",
    ),
    Mutant(
        "a table's growth is not journalled",
        "journal",
        GROUP,
        "        self._journal.record((table.__delitem__, slice(len(table), None)))\n",
        "",
    ),
    Mutant(
        "a sampled token is not journalled",
        "journal",
        REQUESTS,
        "        self._journal.record((list.pop, request.token_ids))\n",
        "",
    ),
    Mutant(
        "a request's fields are not journalled",
        "journal",
        REQUESTS,
        "        self._journal.record((setattr, request, name, getattr(request, name)))\n",
        "",
    ),
    Mutant(
        "untouch puts the block at the tail",
        "journal",
        POOL,
        "            self.free_queue.insert_after(before, block.block_id)",
        "            self.free_queue.append([block.block_id])",
    ),
    # -- the external tier ---------------------------------------------------------------------------------------------
    Mutant(
        "loads are told of and never done",
        "tier",
        TRANSFERS,
        "            self._connector.start_load_kv(plan.loads, self._runner)",
        "            pass",
    ),
    Mutant(
        "the tier is asked one block too far",
        "tier",
        CONNECTOR,
        "        end = (request.num_tokens - 1) // alignment * alignment",
        "        end = request.num_tokens // alignment * alignment",
    ),
    Mutant(
        "saves come from the neighbour's hash",
        "tier",
        MANAGER,
        "enumerate(group.tier_hashes(request, first, last), first)",
        "enumerate(group.tier_hashes(request, max(0, first - 1), last), first)",
    ),
    Mutant(
        "a load goes to the block before",
        "tier",
        LOADS,
        "        self.loads.extend(self.connector.update_state_after_alloc(request, transfers, hits))",
        "        self.loads.extend(self.connector.update_state_after_alloc(request, transfers[:-1], hits))",
    ),
    Mutant(
        "external tokens are counted and not loaded",
        "tier",
        BUDGET,
        "        if num_external:\n            self.external.load(request, hit.num_tokens, num_computed)",
        "        if num_external < 0:\n            self.external.load(request, hit.num_tokens, num_computed)",
    ),
)
