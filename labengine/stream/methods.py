"""vLLM's methods that decide each kind of event, in the form in which views and answers read them."""

from __future__ import annotations

from typing import Any

from labengine.wording import readable

REASONS = {
    "RequestAdded": "A request joins the waiting queue.",
    "PrefixHit": "The longest prefix whose blocks are cached in every group is reused.",
    "RequestScheduled": "Running requests come first, then waiting ones, while the token budget and the blocks last.",
    "RequestPreempted": "The request that runs last gives its blocks back when blocks run out.",
    "RequestFinished": "A request that has ended gives its blocks back, last block first.",
    "RequestReleased": "When the connector is done, a request that has ended gives its blocks back.",
    "ExternalHit": "Blocks are taken for the tokens that the connector holds behind the prefix hit.",
    "BlocksLoaded": "The connector's worker reports that the load is complete.",
    "LoadFailed": "The connector's worker reports blocks that it could not load.",
    "PrefixCacheReset": "All cached content is forgotten; that needs a pool without used blocks.",
    "BlockEvicted": "A block that is given away forgets its content.",
    "BlockAllocated": "The head of the free queue is taken.",
    "BlocksSkipped": "Blocks that lie outside the window are not needed.",
    "BlockTouched": "A cached block is shared; a free one leaves the free queue.",
    "BlockCached": "A block that is full is registered under its hash; a block with the same hash stays as well.",
    "BlockFreed": "A block without a reference joins the free queue: at the tail with a hash, at the head without.",
    "BlockFreed:window": "Blocks that have left the window are freed.",
    "BlockFreed:preempted": "A preempted request gives all its blocks back.",
    "BlockFreed:load_failed": "A request whose load failed from its first block on gives its blocks back.",
    "FreeDeferred": "A step under way may still write the blocks: they are freed after it.",
    "BlockPinned": "A connector that copies a block keeps it from being given away.",
    "BlockUnpinned": "Whoever held the block without a table needs it no longer.",
    "BlockCopied": "A hit that ends inside a block goes on in a private copy of it.",
    "HashesMoved": "Another block with the same content is served in place of this one.",
    "TokensComputed": "The tokens of a step count as computed when its output arrives.",
    "TokenSampled": "The step's output is appended to the request.",
}
"""What each method decides, in labengine's words."""


def code_of(methods: dict[str, Any], engine: str) -> dict[str, Any]:
    """Return facts["code"] of a stream: the seam of each kind of event. What is not well formed is left out."""
    known = {kind: place for kind, place in methods.items() if kind in REASONS and _is_place(place)}
    return {kind: _seam(kind, place, engine) for kind, place in known.items()}


def _is_place(place: Any) -> bool:
    types = {"class": str, "method": str, "module": str, "line": int}
    return isinstance(place, dict) and all(type(place.get(name)) is kind for name, kind in types.items())


def _seam(kind: str, place: dict[str, Any], engine: str) -> dict[str, Any]:
    owner, method = readable(place["class"]), readable(place["method"])
    where = f"{readable(place['module']).replace('.', '/')}.py, line {place['line']}, {readable(engine)}"
    return {
        "seam": f"{owner}.{method}",
        "class": owner,
        "module": readable(place["module"]),
        "line": place["line"],
        "reason": REASONS[kind],
        "place": where,
        "source": f"# {where}",
        "base": None,
        "is_custom": False,
        "methods": [],
    }
