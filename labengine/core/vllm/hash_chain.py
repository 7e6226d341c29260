"""vLLM's hash chain."""

from __future__ import annotations

from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys


class VllmHashChain(HashChain):
    """Hashes an adapter's name ("lora") and path ("lora_path"), but not its number, which is local to an engine."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but "lora_int_id"."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] != "lora_int_id"))
