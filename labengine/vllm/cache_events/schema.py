"""The contents of a batch of KV events by name, whatever its form on the wire."""

from __future__ import annotations

from typing import NamedTuple

BlockHash = bytes | int
"""Engines send digests, or 64-bit numbers, which may be negative."""


class BlockTier(NamedTuple):
    """The memory in which an engine keeps a block; None for fields that it did not send."""

    medium: str | None
    locality: str | None = None
    """LOCAL or REMOTE, as seen from the engine."""
    owner: str | None = None
    """The secondary tier that has the block."""


class BlocksStored(NamedTuple):
    """Blocks are cached from now on, or (vLLM can be asked to send this) were hit again."""

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    """The block before the first one; None at the beginning of a prompt, or if the engine does not say."""
    token_ids: tuple[int, ...]
    block_size: int
    tier: BlockTier
    group: int | None
    group_kind: str | None
    """A kind such as full_attention; only vLLM sends it."""
    adapter: str | None
    keys: tuple[str, ...]
    """Per block, a digest of its hash's inputs besides tokens (salt, images ...), "" without any; or empty."""


class BlocksRemoved(NamedTuple):
    """Blocks are no longer cached."""

    hashes: tuple[BlockHash, ...]
    tier: BlockTier
    group: int | None


class CacheCleared(NamedTuple):
    """The engine's memory is empty now; other tiers may not be."""


class UnknownEvent(NamedTuple):
    """An event of an unknown kind."""

    kind: str


KVEvent = BlocksStored | BlocksRemoved | CacheCleared | UnknownEvent


class Batch(NamedTuple):
    """The events of one engine step."""

    at: float
    """The engine's clock, in seconds since 1970."""
    events: tuple[KVEvent, ...]
    rank: int | None
    """The data-parallel rank; None if the engine does not say."""
