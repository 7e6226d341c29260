"""What each field of each kind of event may hold in a file that nobody vouches for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from labengine.trace import columns as c
from labengine.trace.codec import KINDS

_FIELDS: dict[str, c.Check] = {
    **dict.fromkeys(("edition", "error", "message", "method", "reason", "rule"), c.texts),
    **dict.fromkeys(("request_id", "step", "start", "position", "max_tokens", "num_tokens", "num_requests"), c.numbers),
    **dict.fromkeys(("num_computed_tokens", "num_blocks", "index"), c.numbers),
    **dict.fromkeys(("is_prefill", "is_loading", "is_full"), c.flags),
    **dict.fromkeys(("block_id", "into_block_id"), c.blocks),
    "groups": c.group_rows,
    "null_block": c.ints(-1, c.MAX_NUMBER),
    "token_ids": c.token_ids,
    "token_id": c.ints(0, c.MAX_TOKEN_ID),
    "block_ids": c.lists(c.lists(c.blocks_or_null)),
    "status": c.one_of("waiting", "running"),
    "transfers": c.transfers,
    "group": c.groups,
    "ref_count": c.ints(-c.MAX_NUMBER, c.MAX_NUMBER),
    "block_hash": c.hashes,
    "mapped": c.lists(c.blocks),
    "queue_end": c.one_of("head", "tail", None),
    "runs": c.lists(c.records(c.blocks_or_null, c.numbers, c.numbers)),
    "request_ids": c.lists(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
    "first_event": c.optional(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
    "ViolationFound.block_ids": c.lists(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
}
"""By the field's name, or by kind and field where that is another thing."""

_CHECKS = [[_FIELDS.get(f"{kind}.{name}") or _FIELDS[name] for name in names] for kind, *names in KINDS]


def check_columns(rows: Sequence[Sequence[Any]], pool: c.Pool) -> None:
    """Look at rows in the codec's own numbering. ValueError or TypeError for what is no event, or out of bounds."""
    numbers = [row[0] for row in rows]
    c.ints(0, len(KINDS) - 1)(numbers, pool)
    by_kind: dict[int, list[Sequence[Any]]] = defaultdict(list)
    for number, row in zip(numbers, rows, strict=True):
        by_kind[number].append(row)
    for number, alike in by_kind.items():
        name, *fields = KINDS[number]
        try:
            _, *values = zip(*alike, strict=True)
            for check, column in zip(_CHECKS[number], values, strict=True):
                check(column, pool)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} with {', '.join(fields) or 'no fields'}: {error}") from None
