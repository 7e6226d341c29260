"""TokenSpeed pull request 976: why an adapter's key must be in every page's hash, not only in page 0's.

A prompt shorter than a page has no hash at its admission. Its chain begins later, when the first page is full; in
TokenSpeed at 760ae6e it begins with an empty predecessor and without keys. A key added only at admission is not in it.
"""

from __future__ import annotations

from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario


class KeyedAtAdmission(NanoKVCacheManager):
    """Hash chains whose keys are added at admission; a chain that begins later has none."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Begin a chain without keys if the prompt has no full block."""
        size = self._config.hash_block_size
        if not request.block_hashes and request.num_prompt_tokens < size <= num_tokens:
            token_ids = tuple(request.token_ids[:size])
            request.block_hashes.append(self._hash_chain.link(b"", token_ids))
            request.links.append(token_ids)
        super().extend_hashes(request, num_tokens)


class LateChain(Scenario):
    """A short prompt with an adapter fills its first block while it decodes; the base model asks for that block."""

    columns = (Column("nano-vllm", KeyedAtAdmission), Column("nano-vllm"))
    figures = {
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B, which begins with the content of A's first block."""
        first = lab.add(token_ids=[1, 2, 3], extra_keys={"lora": "a"}, max_tokens=4)
        lab.run()
        block = lab.snapshot().requests[first].token_ids[:4]
        lab.add(token_ids=[*block, 9, 9], max_tokens=1)
        lab.run()
