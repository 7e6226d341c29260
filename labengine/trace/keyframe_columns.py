"""What each part of a keyframe may hold in a file that nobody vouches for."""

from __future__ import annotations

from typing import Any

from labengine.trace import columns as c
from labengine.trace.sequence import SLACK

_STATUS = c.one_of("waiting", "running", "preempted", "finished")

_FIELDS: dict[str, c.Check] = {
    "step": c.numbers,
    "groups": c.group_rows,
    "null_block": c.blocks_or_null,
    "requests": c.lists(c.records(c.numbers, _STATUS, c.token_ids, c.numbers, c.numbers, c.tables)),
    "ref_counts": c.lists(c.ints(-c.MAX_NUMBER, c.MAX_NUMBER)),
    "block_keys": c.lists(c.records(c.blocks, c.hash_keys)),
    "block_tokens": c.lists(c.records(c.blocks, c.token_ids)),
    "free_queue": c.lists(c.blocks),
    "prefix_map": c.lists(c.records(c.groups, c.hashes, c.lists(c.blocks))),
}


def check_keyframe(document: Any) -> None:
    """TypeError, ValueError or LookupError for a document that is no state, or has ids out of bounds."""
    pool = c.Pool(len(document["ref_counts"]), len(document["groups"]))
    for name, check in _FIELDS.items():
        check([document[name]], pool)
    queue, requests = document["free_queue"], document["requests"]
    if len(set(queue)) < len(queue) or document["null_block"] in queue:
        raise ValueError("a block is in the free queue that cannot be there, or twice")
    if len({request[0] for request in requests}) < len(requests):
        raise ValueError("a request is there twice")
    for request_id, _, tokens, num_prompt, num_computed, tables in requests:
        is_within = max(num_computed, *map(len, tables), 0) <= len(tokens) + SLACK
        if len(tables) != pool.num_groups or num_prompt > len(tokens) or not is_within:
            raise ValueError(f"request {request_id} does not add up")
