"""What a batch of KV events says, by name, whichever form it had on the wire."""

from __future__ import annotations

from typing import NamedTuple

BlockHash = bytes | int
"""Engines send digests, or 64-bit numbers, which may be negative."""


class BlockTier(NamedTuple):
    """Where an engine keeps a block; None for what it did not say."""

    medium: str | None
    locality: str | None = None
    """LOCAL or REMOTE, as seen from the engine."""
    owner: str | None = None
    """The secondary tier that has it."""


class BlocksStored(NamedTuple):
    """Blocks are cached from now on, or (vLLM can be asked to send this) were hit again."""

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    """The block before the first one; None if there is none, or the engine does not say."""
    token_ids: tuple[int, ...]
    block_size: int
    tier: BlockTier
    group: int | None
    group_kind: str | None
    """Such as full_attention; only vLLM says it."""
    adapter: str | None
    keys: tuple[str, ...]
    """Per block a digest of what its hash has beside the tokens (salt, images ...), "" for nothing; or empty."""


class BlocksRemoved(NamedTuple):
    """Blocks are not cached any more."""

    hashes: tuple[BlockHash, ...]
    tier: BlockTier
    group: int | None


class CacheCleared(NamedTuple):
    """The engine's own memory holds nothing any more; of other tiers it says nothing."""


class UnknownEvent(NamedTuple):
    """An event of a kind that is not known here."""

    kind: str


KVEvent = BlocksStored | BlocksRemoved | CacheCleared | UnknownEvent


class Batch(NamedTuple):
    """The events of one engine step."""

    at: float
    """The engine's clock, in seconds since 1970."""
    events: tuple[KVEvent, ...]
    rank: int | None
    """The data-parallel rank; None if the engine does not say."""
