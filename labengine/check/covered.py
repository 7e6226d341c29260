"""The rule `window` on a hit: it has a block for everything that the request's next token reads."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.check.invariants import blocks_read
from labengine.events import PrefixHit
from labengine.record.snapshot import GroupState
from labengine.record.violation import Violation
from labengine.record.wording import counted


def judge_cover(hit: PrefixHit, groups: Sequence[GroupState], null_block: int) -> Violation | None:
    """Return the violation of a hit that counts tokens as computed whose KV, or whose state, it has no block for."""
    for group, (spec, block_ids) in enumerate(zip(groups, hit.block_ids, strict=False)):
        first, end = blocks_read(spec, hit.num_tokens, hit.num_tokens)
        read = block_ids[first:end]
        if len(read) < end - first or null_block in read:
            index = first + next((i for i, block_id in enumerate(read) if block_id == null_block), len(read))
            return _uncovered(hit, group, spec, index, is_null=index < len(block_ids))
    return None


def _uncovered(hit: PrefixHit, group: int, spec: GroupState, index: int, *, is_null: bool) -> Violation:
    start, end = index * spec.block_size, min((index + 1) * spec.block_size, hit.num_tokens)
    what = f"the state after {counted(end, 'token')}" if spec.keeps_states else f"tokens {start} to {end - 1}"
    lack = "a null entry" if is_null else "no entry"
    tokens = counted(hit.num_tokens, "token")
    text = f"request {hit.request_id} hits {tokens}, and its hit in group {group} has {lack} for {what}"
    return Violation("window", text, (hit.request_id,))
