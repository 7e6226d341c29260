"""Changes to forks, copies before a write, and beams."""

from __future__ import annotations

from mutants.table.mutant import Mutant

GROUP = "core/kv_cache_group.py"
MANAGER = "core/kv_cache_manager.py"
BEAMS = "core/beam_searches.py"

MUTANTS = (
    Mutant(
        "a shared tail is written without a copy",
        "reads",
        GROUP,
        "return self._pool.blocks[request.block_tables[self.index][index]].ref_count > 1",
        "return False",
    ),
    Mutant(
        "a copy keeps the reference to its source",
        "state",
        GROUP,
        '        self.release(request, [block_id], [index], "copied")\n',
        "",
    ),
    Mutant(
        "a copy leaves the table",
        "state",
        GROUP,
        "        table[index] = into_block_id\n        copied =",
        "        copied =",
    ),
    Mutant(
        "a copy is told the wrong way round",
        "stream",
        GROUP,
        "BlockCopied(block_id, into_block_id, request.request_id, self.index, index, is_pinned=False)",
        "BlockCopied(into_block_id, block_id, request.request_id, self.index, index, is_pinned=False)",
    ),
    Mutant(
        "copies are forgotten",
        "reads",
        MANAGER,
        "        copies = tuple(self.copies)\n",
        "        copies = tuple(self.copies[1:])\n",
    ),
    Mutant(
        "blocks for copies are not counted",
        "state",
        MANAGER,
        "            missing += len(to_copy := self._entries_to_copy(request, num_tokens))\n        if missing:",
        "            missing += min(0, len(to_copy := self._entries_to_copy(request, num_tokens)))\n        if missing:",
    ),
    Mutant(
        "copies of a request that lost its blocks are made",
        "reads",
        MANAGER,
        "[copy for copy in self.copies if copy.is_pinned or copy.request_id != request_id]",
        "[*self.copies]",
        "needs a victim that was to be copied for in this very step: no short session has one",
    ),
    Mutant(
        "a fork counts the sampled token as computed",
        "state",
        MANAGER,
        "        num_tokens = min(group.num_shared_tokens(parent.num_computed_tokens) for group in self.groups)\n",
        "        num_tokens = 1 + min(group.num_shared_tokens(parent.num_computed_tokens) for group in self.groups)\n",
    ),
    Mutant(
        "a fork is told with one token fewer",
        "stream",
        MANAGER,
        "RequestForked(request.request_id, parent.request_id, num_tokens, block_ids)",
        "RequestForked(request.request_id, parent.request_id, num_tokens - 1, block_ids)",
    ),
    Mutant(
        "a beam that is replaced keeps its blocks",
        "state",
        BEAMS,
        '            self.manager.free(beam, "pruned")\n',
        "",
    ),
    Mutant(
        "a beam that is replaced keeps its tokens",
        "reads",
        BEAMS,
        '        self._set(beam, "token_ids", list(token_ids))\n',
        "",
    ),
    Mutant(
        "a beam is told with the prompt as generated",
        "stream",
        BEAMS,
        "tuple(token_ids[beam.num_prompt_tokens :])",
        "tuple(token_ids)",
    ),
    Mutant(
        "a preempted beam that waits for its search is lost",
        "state",
        BEAMS,
        '        self._set(self, "_parked", self._parked | {request.request_id})\n        return True\n',
        "        return True\n",
    ),
)
