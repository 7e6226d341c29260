"""Changes to block tables."""

from __future__ import annotations

from mutants.table.mutant import Mutant

GROUP = "core/kv_cache_group.py"

MUTANTS = (
    Mutant(
        "a hit's last block is missing in the table",
        "state",
        GROUP,
        "self._extend_table(request.block_tables[self.index], touched)",
        "self._extend_table(request.block_tables[self.index], touched[:-1])",
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
        "        indices = [*islice(self.freeing_order(len(held)), len(held))]",
        "        indices = [*islice(self.freeing_order(len(held)), len(held))][:-1]",
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
)
