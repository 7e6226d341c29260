"""Traces whose prompts are hashes of blocks: Mooncake's, and those of the same fields.

A line has `timestamp`, `input_length`, `output_length` and `hash_ids`. Mooncake has milliseconds and 512 tokens a hash;
the traces of Qwen-Bailian, with a `chat_id`, have seconds and 16. Others differ in the size of the block only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.prefix_doctor.traffic.line import MAX_ANSWER, Line, label, seconds_of
from labengine.prefix_doctor.traffic.prompt import Prompt

SIZES = (512, 16, 32, 64, 128, 256, 1024, 2048)
"""Tokens of a block that a trace may have, the likeliest first."""
MAX_TOKENS = 1 << 24
NOTE = (
    "The trace has hashes of blocks, not tokens: prompts diverge only where a block begins, and answers have no tokens "
    "that a later prompt could repeat."
)


def is_hashed(found: dict[str, Any]) -> bool:
    """Return True for a line of such a trace."""
    return "hash_ids" in found and "input_length" in found


class HashedTrace:
    """Reads the lines of one trace. examples: its first objects, most of which tell the size of its blocks."""

    def __init__(self, examples: Sequence[dict[str, Any]]) -> None:
        self._size = max(SIZES, key=lambda size: sum(_fits(one, size) for one in examples))

    def line(self, number: int, found: dict[str, Any]) -> Line:
        """Return the line of an object. Raises ConfigError for lengths that do not fit its hashes."""
        length = checked_int("input_length", found.get("input_length"), 1, MAX_TOKENS)
        hashes, size = found.get("hash_ids"), self._size
        if not isinstance(hashes, list) or set(map(type, hashes)) != {int}:
            raise ConfigError("hash_ids must be a list of whole numbers")
        if not _fits(found, size):
            raise ConfigError(f"{len(hashes):,} hash_ids do not fit {length:,} tokens in blocks of {size}")
        answer = checked_int("output_length", found.get("output_length", 1), 0, MAX_ANSWER)
        prompt = Prompt(f"line {number}", self._tokens(hashes, length), num_answer=max(1, answer))
        prompt.session = label(found.get("session_id"))
        line = Line(number, prompt)
        if (time := found.get("timestamp")) is not None:
            line.time = seconds_of(time) if "chat_id" in found else seconds_of(time) / 1000
        return line

    def _tokens(self, hashes: list[int], length: int) -> list[int]:
        """Return tokens that are equal where hashes are; the last block may be incomplete."""
        size, tokens = self._size, list[int]()
        for one in hashes:
            start = one % ((1 << 63) // size) * size
            tokens += range(start, start + size)
        del tokens[length:]
        return tokens


def _fits(found: dict[str, Any], size: int) -> bool:
    hashes, length = found.get("hash_ids"), found.get("input_length")
    if not isinstance(hashes, list) or not isinstance(length, int):
        return True
    return len(hashes) == -(-length // size)
