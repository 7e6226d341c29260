"""Changes to groups of state-space layers."""

from __future__ import annotations

from mutants.table.mutant import Mutant

STATES = "core/state_group.py"
MANAGER = "core/kv_cache_manager.py"
SCHEDULER = "core/scheduler.py"

MUTANTS = (
    Mutant(
        "a state goes on in a fresh block without the one before",
        "reads",
        MANAGER,
        "                self._set_copies([*self.copies, copy])\n",
        "                pass\n",
    ),
    Mutant(
        "the running state is dropped",
        "state",
        STATES,
        "        return max(0, num_computed_tokens - 1)",
        "        return num_computed_tokens",
    ),
    Mutant(
        "chunks end anywhere",
        "reads",
        STATES,
        "        return max(start, min((stop for stop in stops if start < stop < end), default=end))",
        "        return end",
    ),
    Mutant(
        "the state goes to the entry before",
        "reads",
        STATES,
        "[(end - 1) // self.block_size], 0, 1)",
        "[(end - 1) // self.block_size - 1], 0, 1)",
    ),
    Mutant(
        "dropped states are not freed",
        "state",
        STATES,
        '            self.release(request, dropped, indices, "state")',
        "            pass",
    ),
    Mutant(
        "a state of fewer tokens is copied",
        "reads",
        STATES,
        "copy = BlockCopy(self.index, table[num_entries - 1], table[-1]",
        "copy = BlockCopy(self.index, table[max(0, num_entries - 2)], table[-1]",
    ),
    Mutant(
        "a state is told of in the entry before",
        "stream",
        STATES,
        "BlockAllocated(block_ids[0], request.request_id, self.index, index)",
        "BlockAllocated(block_ids[0], request.request_id, self.index, index - 1)",
    ),
    Mutant(
        "a state that a broken step overwrote is kept",
        "reads",
        SCHEDULER,
        "        return [part.request_id for part in plan.scheduled] if has_states else []",
        "        return []",
    ),
    Mutant(
        "the copied state is not counted at admission",
        "state",
        STATES,
        "        return 1 + sum(self._pool.blocks[block_id].ref_count == 0 for block_id in hit[-1:])",
        "        return sum(self._pool.blocks[block_id].ref_count == 0 for block_id in hit[-1:])",
    ),
)
