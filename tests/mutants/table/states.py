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
        "                self._set_copies([*self.copies, *copies])\n",
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
        "        return tuple((table[entry], 0, 1) for entry in self.entries_of_states(request, end))",
        "        return tuple((table[entry - 1], 0, 1) for entry in self.entries_of_states(request, end))",
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
        "copy = BlockCopy(self.index, table[before], table[entries[0]]",
        "copy = BlockCopy(self.index, table[max(0, before - 1)], table[entries[0]]",
    ),
    Mutant(
        "a state is told of in the entry before",
        "stream",
        STATES,
        "enumerate(block_ids, len(table) - missing)",
        "enumerate(block_ids, len(table) - missing - 1)",
    ),
    Mutant(
        "a scratch block is moved and not told",
        "stream",
        STATES,
        "        if BlockMoved in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a rejected draft is in the running state",
        "reads",
        STATES,
        "self.entries[min(num_computed_tokens - self.start, len(self.entries)) - 1]",
        "self.entries[-1]",
    ),
    Mutant(
        "a state that a broken step overwrote is kept",
        "reads",
        SCHEDULER,
        "            if not group.keeps_states and block_id in self.requests[part.request_id].block_tables[group.index]",
        "            if block_id in self.requests[part.request_id].block_tables[group.index]",
    ),
    Mutant(
        "the copied state is not counted at admission",
        "state",
        STATES,
        "        return num_own + self.num_scratch + sum(",
        "        return self.num_scratch + sum(",
    ),
)
