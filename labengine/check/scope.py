"""The rule `scope`: a request hits only blocks that were registered under its own extra keys and images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labengine.check.differences import extra_keys_unlike
from labengine.check.registrations import Registration, Registrations
from labengine.check.slot_memory import Identified
from labengine.config import shown
from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys, Image, images_before
from labengine.core.vllm.hash_chain import VllmHashChain
from labengine.events import PrefixHit
from labengine.record.violation import Violation
from labengine.record.wording import listed

LEFT_OUT_OF_KEYS: dict[type[HashChain], frozenset[str]] = {
    # vLLM 0.31.0, vllm/v1/core/kv_cache_utils.py, line 584: an adapter's name and path are hashed.
    VllmHashChain: frozenset({"lora_int_id"}),
}
"""Extra keys that an edition's hash leaves out, as its engine does: requests that differ only in them share blocks."""


class Scope:
    """Judges hits of one engine."""

    def __init__(self, registrations: Registrations, hash_chain: type[HashChain], block_sizes: Sequence[int]) -> None:
        """block_sizes: per group, in tokens."""
        self._registrations, self._block_sizes = registrations, block_sizes
        left_out = [names for chain, names in LEFT_OUT_OF_KEYS.items() if issubclass(hash_chain, chain)]
        self._left_out = frozenset().union(*left_out)

    def keys_of(self, extra_keys: ExtraKeys) -> ExtraKeys:
        """Return the extra keys that the edition's hash has to tell apart."""
        if not self._left_out or not extra_keys:
            return extra_keys
        return tuple(pair for pair in extra_keys if pair[0] not in self._left_out)

    def judge(self, hit: PrefixHit, request: Identified) -> Violation | None:
        """Return the violation of a hit on a block registered under other extra keys or images than the request's.

        Only the first such block is reported. Images after the hit's end do not count, even if the block is registered
        up to there.
        """
        own = self.keys_of(request.extra_keys)
        for group, block_ids in enumerate(hit.block_ids):
            for index, block_id in enumerate(block_ids):
                found = self._registrations.of(block_id)
                alike = [one for one in found if one.extra_keys is own or one.extra_keys == own]
                if found and not alike:
                    return _violation(hit, block_id, found[-1], own)
                if alike and (request.images or alike[-1].images):
                    end = min(hit.num_tokens, (index + 1) * self._block_sizes[group])
                    images = images_before(request.images, end)
                    if all(images_before(one.images, end) != images for one in alike):
                        return _other_image(hit, block_id, alike[-1], images, end)
        return None


def _violation(hit: PrefixHit, block_id: int, found: Registration, own: ExtraKeys) -> Violation:
    theirs, ours = extra_keys_unlike(found.extra_keys, own)
    text = (
        f"request {hit.request_id} hits block {block_id}, which request {found.request_id} registered under {theirs}, "
        f"but request {hit.request_id} has {ours}"
    )
    return Violation("scope", text, _distinct((found.request_id, hit.request_id)), (block_id,))


def _other_image(hit: PrefixHit, block_id: int, found: Registration, images: tuple[Image, ...], end: int) -> Violation:
    theirs, ours = _names(images_before(found.images, end)), _names(images)
    text = (
        f"request {hit.request_id} hits block {block_id}, which request {found.request_id} registered with {theirs}, "
        f"but request {hit.request_id} has {ours}"
    )
    return Violation("scope", text, _distinct((found.request_id, hit.request_id)), (block_id,))


def _names(images: tuple[Image, ...]) -> str:
    if not images:
        return "no image"
    return listed(f"image {shown(image.identifier)} at position {image.start}" for image in images)


def _distinct(request_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(request_ids))
