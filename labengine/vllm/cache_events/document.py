"""The cache-only view in JSON types, with its words: the source of its page, its text and its JSON output."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from labengine.record.wording import readable
from labengine.vllm.cache_events.chains import Chain, Chains
from labengine.vllm.cache_events.contents import hash_text
from labengine.vllm.cache_events.holdings import Place, Presence, place_order
from labengine.vllm.cache_events.schema import BlockTier
from labengine.vllm.cache_events.stream import EventStream

MAX_NOTE = 300


UNKNOWN = "unknown"
CANNOT_KNOW = (
    ("requests", "which requests exist, which are waiting, and which use each block"),
    ("blocks", "their numbers, ref counts and tables, the free queue, and which block is evicted next"),
    ("hits", "of a request, and the hit rate: only hits proved by stored blocks are counted"),
    ("why", "a block is gone: evicted, replaced, or reset"),
)
"""Subjects that KV events never tell, and their words."""

_PROMPT_CHARACTERS = 400
TokensText = Callable[[list[int]], str]


def _tokens_text(chain: Chain, text_of: TokensText) -> str:
    tokens = chain.token_ids
    if tokens is None:
        return f"content {UNKNOWN}"
    return readable(text_of(tokens[:_PROMPT_CHARACTERS]), _PROMPT_CHARACTERS)


def numbers_text(token_ids: list[int]) -> str:
    """Return tokens as numbers, for lack of a tokenizer."""
    return " ".join(map(str, token_ids))


def _length_text(chain: Chain) -> str:
    tokens, num_blocks = chain.token_ids, len(chain.contents)
    blocks = f"{num_blocks:,} block{'s' * (num_blocks != 1)}"
    return f"{blocks}, tokens {UNKNOWN}" if tokens is None else f"{len(tokens):,} tokens, {blocks}"


def _rank_text(rank: int | None, source: str) -> str:
    """Return the rank. source: the publisher, if several have this rank; else empty."""
    known = f"rank {UNKNOWN if rank is None else rank}"
    return f"{known} at {readable(source, 60)}" if source else known


def _tier_text(tier: BlockTier) -> str:
    parts = [tier.medium or f"tier {UNKNOWN}", tier.owner or "", f"({tier.locality})" if tier.locality else ""]
    return readable(" ".join(part for part in parts if part), 60)


def _group_text(place: Place, kind: str | None) -> str:
    """Return the KV-cache group: its kind, or its number if the engine does not say the kind; empty without groups."""
    number = "" if place.group is None else f"group {place.group}"
    return " ".join(part for part in (number, readable((kind or "").replace("_", " "), 40)) if part)


def _time_text(at: float | None) -> str:
    if at is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def _moment_text(at: float | None) -> str:
    try:
        return UNKNOWN if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def _stored_text(chain: Chain) -> str:
    """Return the times at which a chain was stored, and how often."""
    if chain.first_stored is None:
        return UNKNOWN
    first, last = _time_text(chain.first_stored), _time_text(chain.last_stored)
    times = chain.reuse.num_stored
    return (first if first == last else f"{first} to {last}") + (f", {times} times" if times > 1 else "")


def _removed_text(chain: Chain) -> str:
    return "" if chain.last_removed is None else _time_text(chain.last_removed)


def _hits_text(chain: Chain) -> str:
    """Return the lower bound of hits and, if there are any, of the hit rate."""
    _, num_uses, num_hits = chain.reuse
    if num_hits is None:
        return UNKNOWN
    return f"≥ {num_hits}" + (f" of ≥ {num_uses} uses: ≥ {num_hits / num_uses:.0%}" if num_hits else "")


def _beginning_text(chain: Chain) -> str:
    """Return the text before a chain: "" at the beginning of a prompt, a sign if it continues another row."""
    if chain.is_after_unknown:
        return f"beginning {UNKNOWN} …"
    return "" if chain.is_beginning else "…"


def _variant_text(chain: Chain) -> str:
    """Return the inputs of a chain's hashes besides tokens: the adapter, and a digest of salt or images."""
    first = chain.contents[0]
    adapter = f"adapter {readable(first.adapter, 40)}" if first.adapter else ""
    return ", ".join(part for part in (adapter, f"other key {first.extra}" if first.extra else "") if part)


def document_of(
    title: str, notes: list[str], stream: EventStream, chains: Chains, text_of: TokensText, limit: int | None
) -> dict[str, Any]:
    """Return the document. All texts in it are readable lines; nothing is escaped for HTML."""
    rows = chains.rows()
    why = [f"hits are {UNKNOWN}: {reason}" for reason in chains.reuse.why_unknown]
    loops = [f"block {hash_text(one.hash)} follows itself" for one in chains.tree.loops[:3]]
    return {
        "title": readable(title, MAX_NOTE),
        "newest": _moment_text(stream.cache.newest),
        "num_batches": stream.num_batches,
        "notes": [readable(note, MAX_NOTE) for note in (*notes, *loops, *why)],
        "places": _places(stream, chains),
        "chains": [_chain(row, stream, text_of) for row in rows[:limit]],
        "num_chains": len(rows),
        "unknown": dict(CANNOT_KNOW),
    }


def _places(stream: EventStream, chains: Chains) -> list[dict[str, Any]]:
    tokens = _num_tokens(chains)
    return [
        {
            **_place(place, stream),
            "cached": counted[Presence.CACHED],
            "unknown": counted[Presence.UNKNOWN],
            "gone": counted[Presence.GONE],
            "tokens": tokens.get(place, 0),
        }
        for place, counted in sorted(stream.cache.presences().items(), key=lambda item: place_order(item[0]))
    ]


def _num_tokens(chains: Chains) -> dict[Place, int | None]:
    """Return the number of tokens cached at each place; None if a block's tokens are unknown."""
    total: dict[Place, int | None] = {}
    for content in chains.tree.order:
        for place, holding in chains.tree.held(content).items():
            known = total.get(place, 0)
            if holding.presence is Presence.CACHED and known is not None:
                total[place] = None if content.token_ids is None else known + len(content.token_ids)
    return total


def _place(place: Place, stream: EventStream) -> dict[str, Any]:
    kind = stream.cache.group_kinds.get(place)
    is_one_of_many = any(other.group != place.group for other in stream.cache.places)
    is_alone = not any(other.rank == place.rank and other.source != place.source for other in stream.cache.places)
    return {
        "rank": _rank_text(place.rank, "" if is_alone else stream.sources[place.source]),
        "tier": _tier_text(place.tier),
        "group": _group_text(place, kind) if is_one_of_many else "",
    }


def _chain(chain: Chain, stream: EventStream, text_of: TokensText) -> dict[str, Any]:
    tokens = chain.token_ids
    return {
        "depth": chain.depth,
        "before": _beginning_text(chain),
        "text": _tokens_text(chain, text_of),
        "num_tokens": None if tokens is None else len(tokens),
        "num_blocks": len(chain.contents),
        "length": _length_text(chain),
        "variant": _variant_text(chain),
        "first_hash": hash_text(chain.contents[0].hash),
        "presence": chain.presence.value,
        "where": [{**_place(place, stream), "presence": presence.value} for place, presence in chain.where],
        "first_stored": chain.first_stored,
        "last_stored": chain.last_stored,
        "last_removed": chain.last_removed,
        "stored": _stored_text(chain),
        "removed": _removed_text(chain),
        "num_stored": chain.reuse.num_stored,
        "num_uses_at_least": chain.reuse.num_uses,
        "num_hits_at_least": chain.reuse.num_hits,
        "hits": _hits_text(chain),
    }
