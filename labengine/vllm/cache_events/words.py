"""The words of the cache-only view: places, times, counts, and what cannot be known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from labengine.record.wording import readable
from labengine.vllm.cache_events.chains import Chain
from labengine.vllm.cache_events.holdings import Place
from labengine.vllm.cache_events.schema import BlockTier

UNKNOWN = "unknown"
CANNOT_KNOW = (
    ("requests", "which there are, which wait, and which of them use a block"),
    ("blocks", "their numbers, their ref counts and tables, the free queue, and who is evicted next"),
    ("hits", "of a request, and the hit rate: only the hits that stored blocks prove are counted"),
    ("why", "a block is gone: evicted, replaced, or reset"),
)
"""What KV events never tell."""

_PROMPT_CHARACTERS = 400
TokensText = Callable[[list[int]], str]


def tokens_text(chain: Chain, text_of: TokensText) -> str:
    """Return the chain's text on one line."""
    tokens = chain.token_ids
    if tokens is None:
        return f"content {UNKNOWN}"
    return readable(text_of(tokens[:_PROMPT_CHARACTERS]), _PROMPT_CHARACTERS)


def numbers_text(token_ids: list[int]) -> str:
    """Return tokens as numbers, where there is no tokenizer."""
    return " ".join(map(str, token_ids))


def length_text(chain: Chain) -> str:
    """Return how many tokens and blocks a chain has."""
    tokens, num_blocks = chain.token_ids, len(chain.contents)
    blocks = f"{num_blocks:,} block{'s' * (num_blocks != 1)}"
    return f"{blocks}, tokens {UNKNOWN}" if tokens is None else f"{len(tokens):,} tokens, {blocks}"


def rank_text(rank: int | None, source: str) -> str:
    """Return the rank. source: the publisher, where several have this rank; else empty."""
    known = f"rank {UNKNOWN if rank is None else rank}"
    return f"{known} at {readable(source, 60)}" if source else known


def tier_text(tier: BlockTier) -> str:
    """Return the tier as the engine calls it."""
    parts = [tier.medium or f"tier {UNKNOWN}", tier.owner or "", f"({tier.locality})" if tier.locality else ""]
    return readable(" ".join(part for part in parts if part), 60)


def group_text(place: Place, kind: str | None) -> str:
    """Return the KV-cache group: its kind, or its number if the engine does not say the kind; empty without groups."""
    number = "" if place.group is None else f"group {place.group}"
    return " ".join(part for part in (number, readable((kind or "").replace("_", " "), 40)) if part)


def time_text(at: float | None) -> str:
    """Return a time of day in UTC; unknown for None."""
    if at is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def moment_text(at: float | None) -> str:
    """Return date and time in UTC; unknown for None."""
    try:
        return UNKNOWN if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def stored_text(chain: Chain) -> str:
    """Return when a chain was stored, and how often."""
    if chain.first_stored is None:
        return UNKNOWN
    first, last = time_text(chain.first_stored), time_text(chain.last_stored)
    times = chain.reuse.num_stored
    return (first if first == last else f"{first} to {last}") + (f", {times} times" if times > 1 else "")


def removed_text(chain: Chain) -> str:
    """Return when blocks of a chain were removed last; empty if none was."""
    return "" if chain.last_removed is None else time_text(chain.last_removed)


def hits_text(chain: Chain) -> str:
    """Return the lower bound of hits and, where there are any, of the hit rate."""
    _, num_uses, num_hits = chain.reuse
    if num_hits is None:
        return UNKNOWN
    return f"≥ {num_hits}" + (f" of ≥ {num_uses} uses: ≥ {num_hits / num_uses:.0%}" if num_hits else "")


def beginning_text(chain: Chain) -> str:
    """Return what stands before a chain: "" at the beginning of a prompt, a sign if it continues another row."""
    if chain.is_after_unknown:
        return f"beginning {UNKNOWN} …"
    return "" if chain.is_beginning else "…"


def variant_text(chain: Chain) -> str:
    """Return what else than tokens a chain's hashes hold: the adapter, and a digest of salt or images."""
    first = chain.contents[0]
    adapter = f"adapter {readable(first.adapter, 40)}" if first.adapter else ""
    return ", ".join(part for part in (adapter, f"other key {first.extra}" if first.extra else "") if part)
