"""The rule `scope`: a request hits only blocks that were registered under its own extra keys."""

from __future__ import annotations

from collections.abc import Iterable

from labengine.check.differences import extra_keys_unlike
from labengine.check.registrations import Registration, Registrations
from labengine.core.editions import VllmHashChain
from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys
from labengine.events import PrefixHit
from labengine.record.violation import Violation

LEFT_OUT_OF_KEYS: dict[type[HashChain], frozenset[str]] = {
    # vLLM 0.31.0, vllm/v1/core/kv_cache_utils.py, line 584: an adapter's name and path are hashed.
    VllmHashChain: frozenset({"lora_int_id"}),
}
"""Extra keys that an edition's hash leaves out as its engine does: requests that differ in them alone share blocks."""


class Scope:
    """Judges hits of one engine."""

    def __init__(self, registrations: Registrations, hash_chain: type[HashChain]) -> None:
        self._registrations = registrations
        left_out = [names for chain, names in LEFT_OUT_OF_KEYS.items() if issubclass(hash_chain, chain)]
        self._left_out = frozenset().union(*left_out)

    def keys_of(self, extra_keys: ExtraKeys) -> ExtraKeys:
        """Return those extra keys that the edition's hash has to separate."""
        if not self._left_out or not extra_keys:
            return extra_keys
        return tuple(pair for pair in extra_keys if pair[0] not in self._left_out)

    def judge(self, hit: PrefixHit, extra_keys: ExtraKeys) -> Violation | None:
        """Return the violation of a hit on blocks of other extra keys than the request's: on the first such block."""
        own = self.keys_of(extra_keys)
        for block_ids in hit.block_ids:
            for block_id in block_ids:
                found = self._registrations.of(block_id)
                if found and not any(one.extra_keys is own or one.extra_keys == own for one in found):
                    return _violation(hit, block_id, found[-1], own)
        return None


def _violation(hit: PrefixHit, block_id: int, found: Registration, own: ExtraKeys) -> Violation:
    theirs, ours = extra_keys_unlike(found.extra_keys, own)
    text = (
        f"request {hit.request_id} hits block {block_id}, which request {found.request_id} registered under {theirs}, "
        f"and request {hit.request_id} has {ours}"
    )
    return Violation("scope", text, _distinct((found.request_id, hit.request_id)), (block_id,))


def _distinct(request_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(request_ids))
