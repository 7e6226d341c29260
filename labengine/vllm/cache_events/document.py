"""The cache-only view in JSON types: what its page, its text and programs are made from."""

from __future__ import annotations

from typing import Any

from labengine.record.wording import readable
from labengine.vllm.cache_events import words
from labengine.vllm.cache_events.chains import Chain, Chains
from labengine.vllm.cache_events.contents import hash_text
from labengine.vllm.cache_events.holdings import Place, Presence, place_order
from labengine.vllm.cache_events.stream import EventStream

MAX_NOTE = 300


def document_of(
    title: str, notes: list[str], stream: EventStream, chains: Chains, text_of: words.TokensText, limit: int | None
) -> dict[str, Any]:
    """Return the document. All texts in it are readable lines; nothing is escaped for HTML."""
    rows = chains.rows()
    why = [f"hits are {words.UNKNOWN}: {reason}" for reason in chains.reuse.why_unknown]
    loops = [f"block {hash_text(one.hash)} stands after itself" for one in chains.tree.loops[:3]]
    return {
        "title": readable(title, MAX_NOTE),
        "newest": words.moment_text(stream.cache.newest),
        "num_batches": stream.num_batches,
        "notes": [readable(note, MAX_NOTE) for note in (*notes, *loops, *why)],
        "places": _places(stream, chains),
        "chains": [_chain(row, stream, text_of) for row in rows[:limit]],
        "num_chains": len(rows),
        "unknown": dict(words.CANNOT_KNOW),
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
    """Return the tokens of the blocks cached at each place; None if those of a block are unknown."""
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
        "rank": words.rank_text(place.rank, "" if is_alone else stream.sources[place.source]),
        "tier": words.tier_text(place.tier),
        "group": words.group_text(place, kind) if is_one_of_many else "",
    }


def _chain(chain: Chain, stream: EventStream, text_of: words.TokensText) -> dict[str, Any]:
    tokens = chain.token_ids
    return {
        "depth": chain.depth,
        "before": words.beginning_text(chain),
        "text": words.tokens_text(chain, text_of),
        "num_tokens": None if tokens is None else len(tokens),
        "num_blocks": len(chain.contents),
        "length": words.length_text(chain),
        "variant": words.variant_text(chain),
        "first_hash": hash_text(chain.contents[0].hash),
        "presence": chain.presence.value,
        "where": [{**_place(place, stream), "presence": presence.value} for place, presence in chain.where],
        "first_stored": chain.first_stored,
        "last_stored": chain.last_stored,
        "last_removed": chain.last_removed,
        "stored": words.stored_text(chain),
        "removed": words.removed_text(chain),
        "num_stored": chain.reuse.num_stored,
        "num_uses_at_least": chain.reuse.num_uses,
        "num_hits_at_least": chain.reuse.num_hits,
        "hits": words.hits_text(chain),
    }
