"""Changes to registering and merging."""

from __future__ import annotations

from mutants.table.mutant import Mutant

GROUP = "core/kv_cache_group.py"
MANAGER = "core/kv_cache_manager.py"
CHAIN = "core/hash_chain.py"
MERGE = "core/merge_policy.py"
REQUEST = "core/request.py"

MUTANTS = (
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
        "return sha256(parent_hash + _packing",
        "return sha256(_packing",
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
        "return sha256(parent_hash + _packing(len(token_ids))(*token_ids)).digest()",
        "return bytes([sha256(parent_hash + _packing(len(token_ids))(*token_ids)).digest()[0] % 64])",
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
)
