"""Changes to look-ups and to allocation."""

from __future__ import annotations

from mutants.table.mutant import Mutant

GROUP = "core/kv_cache_group.py"
MANAGER = "core/kv_cache_manager.py"
WINDOW = "core/sliding_window.py"

MUTANTS = (
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
        "        if PrefixHit in self._hooks:\n            is_skipped",
        "        if not self._hooks:\n            is_skipped",
    ),
    Mutant(
        "a hit is told longer than it is",
        "stream",
        MANAGER,
        "PrefixHit(request.request_id, hit.num_tokens, hit.block_ids, is_skipped)",
        "PrefixHit(request.request_id, hit.num_tokens + 1, hit.block_ids, is_skipped)",
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
)
