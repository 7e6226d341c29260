"""Proposers: guesses of a request's next tokens, which the model judges in one forward pass.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023); for `NGram` prompt look-up (Saxena 2023), as
vLLM's method "ngram" has it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from labengine.config import ConfigError, Drafter, checked_int, checked_token_ids


class Proposer(Protocol):
    """Guesses tokens. It is asked at a step's end, for each request that goes on to decode.

    Its answer has to depend on its arguments alone: a step that was rolled back, or a session that is repeated, asks
    again. A wrong guess costs time and changes no token.
    """

    @property
    def num_drafts(self) -> int:
        """Tokens that it guesses at once, at most (>= 1)."""
        ...

    @property
    def drafter(self) -> Drafter:
        """What edition vllm takes it for: whether it keeps KV in the pool, or reads the model's hidden states."""
        ...

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[int]:
        """Return up to num_tokens tokens that may follow token_ids, the likeliest continuation; empty for no idea."""
        ...


@dataclass(frozen=True)
class NGram:
    """Looks the text's last tokens up in the text itself: what followed them there is the guess. It has no model.

    min_ngram, max_ngram: tokens that have to be found again, at least, and those that are looked for at most. Of all
    places that match, the longest match counts, and of equally long ones the first in the text, as in vLLM.
    """

    num_drafts: int = 4
    min_ngram: int = 2
    max_ngram: int = 5
    drafter: ClassVar[Drafter] = "lookup"

    def __post_init__(self) -> None:
        for name in ("num_drafts", "min_ngram", "max_ngram"):
            object.__setattr__(self, name, checked_int(name, getattr(self, name), 1))
        if self.min_ngram > self.max_ngram:
            raise ConfigError(f"min_ngram must be at most max_ngram, got {self.min_ngram} and {self.max_ngram}")

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the tokens behind the first place at which the text's longest known end stands once more."""
        tokens = array("q", token_ids)
        text = memoryview(tokens).cast("B").tobytes()
        for length in range(min(self.max_ngram, len(tokens) - 1), self.min_ngram - 1, -1):
            place = _find(text, length * tokens.itemsize, tokens.itemsize)
            if place is not None:
                return tuple(tokens[place + length : place + length + num_tokens])
        return ()


def _find(text: bytes, length: int, size: int) -> int | None:
    """Return the first item at which the last `length` bytes stand before the text's end; None for none."""
    end, place = text[-length:], -1
    while (place := text.find(end, place + 1, len(text) - size)) >= 0:
        if not place % size:
            return place // size
    return None


@dataclass(frozen=True)
class FixedDrafts:
    """Guesses that position p of every request holds token_ids[p]: for tests, and to see accepting and rejecting."""

    token_ids: tuple[int, ...]
    num_drafts: int = 4
    drafter: Drafter = "lookup"
    """What edition vllm takes it for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", tuple(checked_token_ids(self.token_ids)))
        object.__setattr__(self, "num_drafts", checked_int("num_drafts", self.num_drafts, 1))

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the tokens of the list at the next positions."""
        return self.token_ids[len(token_ids) : len(token_ids) + num_tokens]
