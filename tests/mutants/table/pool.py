"""Changes to the pool and its free queue."""

from __future__ import annotations

from mutants.table.mutant import Mutant

POOL = "core/block_pool.py"
QUEUE = "core/free_queue.py"

MUTANTS = (
    Mutant(
        "take leaves the content",
        "state",
        POOL,
        "        self._evict_all([block for block in blocks if block.keys])\n        return block_ids",
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
        "                    del prefix_map[key]",
        "                    pass",
    ),
    Mutant(
        "evict keeps the block's keys",
        "state",
        POOL,
        "            block.keys, block.token_ids, block.prefix = (), (), None\n            if BlockEvicted",
        "            block.token_ids, block.prefix = (), None\n            if BlockEvicted",
    ),
    Mutant(
        "evict says nothing",
        "stream",
        POOL,
        "            if BlockEvicted in self._hooks:\n                self._hooks.emit(BlockEvicted(block_id, reason))",
        "            del block_id",
    ),
    Mutant(
        "register leaves the map alone",
        "state",
        POOL,
        "        if mapped:\n            self.prefix_map[key] = mapped\n\n    def register_new",
        "\n    def register_new",
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
)
