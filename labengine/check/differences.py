"""Misreads, and the difference between the KV that a request needs and the KV that a slot holds."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.check.slot_memory import Identified, PrefixIdentities, changing_keys
from labengine.core.request import ExtraKeys, images_before
from labengine.record.violation import Violation

_WORDS = {"lora": "adapter", "lora_path": "adapter path", "lora_int_id": "adapter number", "cache_salt": "cache salt"}
"""Names of extra keys' domains in sentences; any other domain goes by its own name."""


@dataclass(frozen=True, slots=True)
class Misread:
    """A read in which a token attended to a position of its own request but found other content."""

    request_id: int
    group: int
    index: int
    """The entry of the request's table."""
    entry: int | None
    """The block in that entry, or the null block; None if the table ends before it."""
    is_null: bool
    position: int
    finding: str

    def violation(self) -> Violation:
        """Return this as a violation of the rule `read`."""
        where = f"position {self.position} in entry {self.index} of its table in group {self.group}"
        text = f"request {self.request_id} reads {where}: {self.finding}"
        block_ids = () if self.entry is None or self.is_null else (self.entry,)
        return Violation("read", text, (self.request_id,), block_ids)


def extra_keys_unlike(one: ExtraKeys, other: ExtraKeys) -> tuple[str, str]:
    """Return the extra keys in which two lists differ, as each has them: ("adapter 'a'", "no adapter")."""
    domains = dict.fromkeys(domain for domain, _ in (*one, *other))
    unlike = [domain for domain in domains if _values(one, domain) != _values(other, domain)]
    first, second = (", ".join(_shown(keys, domain) for domain in unlike) for keys in (one, other))
    return (first, second) if unlike else ("the same extra keys in a different order", "its own order")


def kv_unlike(identities: PrefixIdentities, request_id: int, position: int, writer: int | None, found: int) -> str:
    """Return whose KV a slot holds instead of the request's own of a position, as "other tokens" or "position 8".

    found: the identity in the slot. writer: the request that it was written for, if known.
    """
    try:
        other = identities.requests[writer] if writer is not None else None
    except LookupError:  # forgotten by now
        other = None
    if other is None or writer is None:
        return "other tokens"
    theirs = identities.up_to(writer, len(other.token_ids))
    if found not in theirs:  # written for an earlier request, or loaded
        return "other tokens"
    if theirs.index(found) != position:
        return f"position {theirs.index(found)}" if writer == request_id else "other tokens"
    return _at_the_same_position(identities.requests[request_id], other, position)


def _at_the_same_position(own: Identified, other: Identified, position: int) -> str:
    if own.token_ids[position] != other.token_ids[position]:
        return "other tokens"
    if own.token_ids[:position] != other.token_ids[:position]:
        return "the same token after a different prefix"
    if own.images != other.images and changing_keys(own) == changing_keys(other):
        return "the same tokens with different images"
    return f"the same tokens under {extra_keys_unlike(changing_keys(other), changing_keys(own))[0]}"


def images_unlike(one: Identified, other: Identified, end: int) -> bool:
    """Return True if the first `end` tokens of two requests stand for different images, or have them elsewhere."""
    return images_before(one.images, end) != images_before(other.images, end)


def contents_unlike(identities: PrefixIdentities, one: int, other: int, positions: range) -> str:
    """Return how the tokens of two requests at these positions differ, as "they differ in their tokens".

    Raises LookupError for a forgotten request.
    """
    first, second = identities.requests[one], identities.requests[other]
    if first.token_ids[positions.start : positions.stop] != second.token_ids[positions.start : positions.stop]:
        return "they differ in their tokens"
    if first.token_ids[: positions.start] != second.token_ids[: positions.start]:
        return "they differ in the earlier tokens"
    if images_unlike(first, second, positions.stop):
        return "they differ in the images that their tokens stand for"
    ours, theirs = extra_keys_unlike(changing_keys(first), changing_keys(second))
    return f"request {one} has {ours}, and request {other} {theirs}"


def _values(extra_keys: ExtraKeys, domain: str) -> list[str]:
    return [value for name, value in extra_keys if name == domain]


def _shown(extra_keys: ExtraKeys, domain: str) -> str:
    word, values = _WORDS.get(domain, domain), _values(extra_keys, domain)
    return f"{word} {' and '.join(map(repr, values))}" if values else f"no {word}"
