"""What a broken vLLM may do that no event expresses: the tap then stops in the middle of a call, and says why."""

from __future__ import annotations

import re

METHODS = {
    "blocks were pinned outside of a prefix hit": "BlockPool.touch",
    "blocks were unpinned": "BlockPool.unpin_blocks",
    "blocks were unpinned that nobody had pinned": "BlockPool.unpin_blocks",
    "blocks were freed that are in no table": "BlockPool.free_blocks",
    "blocks of a request are freed later than its table": "SingleTypeKVCacheManager.pop_blocks_for_free",
    "a hash moved to another block": "BlockPool._insert_block_hash",
    "a prefix hit has a hole": "SingleTypeKVCacheManager.add_local_computed_blocks",
    "a table grew by an entry without a block": "SingleTypeKVCacheManager.allocate_new_blocks",
}
"""Per reason, of this tap or of an earlier release's, vLLM's method.

Without the features that conform refuses, vLLM does none of this.
"""

_RAISED = re.compile(r"(?P<method>\w+\.\w+) raised \w+")


def method_behind(why: str) -> str | None:
    """Return vLLM's method that did what no event expresses; None for another reason why rows are missing."""
    raised = _RAISED.fullmatch(why)
    return raised["method"] if raised else METHODS.get(why)
