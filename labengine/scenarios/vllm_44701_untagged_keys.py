"""vLLM issue 44701: an adapter's name and a cache salt that are the same string make the same hash.

In vLLM 0.11.1 to 0.30.0 both are strings in one tuple of extra keys that does not tell them apart. The name is in every
block's tuple, the salt only in the first block's.
"""

from __future__ import annotations

import hashlib

from labengine.core.request import Request
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario


class UntaggedKeys(VllmKVCacheManager):
    """Block hashes as in vLLM 0.30."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Hash the keys' values with each block's tokens, without their domains; a salt only in the first block."""
        hashes, size = request.block_hashes, self._config.hash_block_size
        for start in range(len(hashes) * size, num_tokens - size + 1, size):
            token_ids = tuple(request.token_ids[start : start + size])
            values = [value for domain, value in request.extra_keys if domain != "cache_salt" or start == 0]
            linked = self._hash_chain.link(hashes[-1] if hashes else b"", token_ids)
            hashes.append(hashlib.sha256(linked + "\0".join(values).encode()).digest())
            request.links.append(token_ids)


class UntaggedExtraKeys(Scenario):
    """One prompt three times: with adapter "tenant-7", with cache salt "tenant-7", and with that salt again."""

    columns = (Column("vllm", UntaggedKeys), Column("vllm"))
    figures = {
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "tokens that C finds": lambda lab: num_hit_tokens(lab, 2),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run the three requests one after the other."""
        lab.add(token_ids=range(1, 10), extra_keys={"lora": "tenant-7"}, max_tokens=1)
        lab.step()
        for _ in range(2):
            lab.add(token_ids=range(1, 10), cache_salt="tenant-7", max_tokens=1)
            lab.step()
