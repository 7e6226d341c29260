"""Changes to rollbacks."""

from __future__ import annotations

from mutants.table.mutant import Mutant

POOL = "core/block_pool.py"
GROUP = "core/kv_cache_group.py"
REQUESTS = "core/request_queues.py"
JOURNAL = "core/journal.py"

MUTANTS = (
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
        "        self._journal.record((self._restore_contents, contents, entries))\n",
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
        "        self._journal.record((setattr, owner, name, getattr(owner, name)))\n",
        "",
    ),
    Mutant(
        "untouch puts the block at the tail",
        "journal",
        POOL,
        "            self.free_queue.insert_after(before, block.block_id)",
        "            self.free_queue.append([block.block_id])",
    ),
)
