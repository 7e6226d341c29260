"""Inputs of a scheduler's calls besides the state in events, for a reader that begins at a keyframe."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.recorder import Recorder

Link = tuple[int, str]
"""A link of a request's hash chain in vLLM's prefix map: its place, and the hash in hex."""

FEATURES = {
    "mm_features": "multimodal inputs",
    "lora_request": "a LoRA adapter",
    "use_structured_output": "structured output",
    "pooling_params": "pooling",
    "prompt_embeds": "prompt embeddings",
    "resumable": "streaming input",
    "kv_transfer_params": "a KV transfer",
}
"""Attributes of a request that affect its scheduling besides tokens, salt and limits."""


def unusual_features(request: Any) -> list[str]:
    """Return, in words, a request's features that affect its scheduling besides tokens, salt and limits."""
    return [words for name, words in FEATURES.items() if _is_set(getattr(request, name, None))]


def _is_set(value: Any) -> bool:
    """Return False for None, False and empty lists; a tensor counts as set."""
    return value is not None and value is not False and (not hasattr(value, "__len__") or len(value) > 0)


def salt_of(request: Any) -> str:
    """Return a digest of a request's cache salt; empty without one."""
    salt = getattr(request, "cache_salt", None)
    return sha256(str(salt).encode()).hexdigest()[:16] if salt else ""


def is_unread(request: Any) -> bool:
    """Return True for a request that must not read the prefix cache."""
    return bool(getattr(request, "skip_reading_prefix_cache", False))


def new_links(engine: Engine, request: Any, asked: set[bytes]) -> list[Link]:
    """Return the links of a request's hash chain in the prefix map, except those already in `asked`.

    A reader that begins late does not know the content of cached blocks; these hashes tell their tokens. Each is looked
    up once, because events tell later entries of the map. A long prompt may wait for many steps.
    """
    served, num_groups = engine.pool.cached_block_hash_to_block._cache, len(engine.groups)
    new = [(place, found) for place, found in enumerate(request.block_hashes) if found not in asked]
    asked.update(found for _, found in new)
    return [*_served(new, served, num_groups)]


def _served(links: Iterable[tuple[int, bytes]], served: Container[bytes], num_groups: int) -> Iterator[Link]:
    suffixes = [group.to_bytes(4, "big") for group in range(num_groups)]
    for place, block_hash in links:
        if any(block_hash + suffix in served for suffix in suffixes):
            yield place, block_hash.hex()


class CopiedCalls:
    """A copy of the data that determine decisions about one request besides the state, made between two steps."""

    __slots__ = ("_cached", "_facts", "_hashes", "_in_flight")

    def __init__(self, engine: Engine, recorder: Recorder, name: str, request: Any) -> None:
        unusual = unusual_features(request)
        self._facts = (
            recorder.id_of(name),
            request.max_tokens,
            salt_of(request),
            request.arrival_time if engine.is_prioritized else 0.0,
            is_unread(request),
            getattr(request, "shared_prefix_boundary", 0),
            f"request {name} has {', '.join(unusual)}" if unusual else "",
        )
        self._cached = [group.num_cached_block.get(name, 0) for group in engine.groups]
        self._in_flight = (
            request.num_in_flight_tokens,
            request.num_output_placeholders,
            request.num_stale_output_tokens,
        )
        self._hashes = list(request.block_hashes)

    def row(self, served: Container[bytes]) -> tuple[Any, ...]:
        """Return (number, max_tokens, salt, arrival, is_unread, shared_prefix_boundary, unusual, cached blocks per
        group, tokens, outputs and stale tokens in flight, served links).
        """
        links = _served(enumerate(self._hashes), served, len(self._cached))
        return *self._facts, self._cached, self._in_flight, [*links]
