"""Proposers: guesses of a request's next tokens, which the model judges in one forward pass.

Source: speculative decoding (Leviathan et al. 2023; Chen et al. 2023); for `NGram`, prompt look-up (Saxena 2023) as in
vLLM's method "ngram".
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from labengine.config import ConfigError, Drafter, checked_int, checked_token_ids


class Proposer(Protocol):
    """Guesses tokens. It is asked at a step's end, for each request that continues to decode.

    Its answer must depend only on its arguments, because a rolled-back step or a repeated session asks again. A wrong
    guess costs time but changes no token.
    """

    @property
    def num_drafts(self) -> int:
        """Most tokens that it guesses at once (>= 1)."""
        ...

    @property
    def drafter(self) -> Drafter:
        """Kind of drafter for edition vllm: whether it keeps KV in the pool, or reads the model's hidden states."""
        ...

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[int]:
        """Return up to num_tokens tokens that are the likeliest to follow token_ids; empty for no guess."""
        ...


@dataclass(frozen=True)
class NGram:
    """Looks up the text's last tokens in the text itself, and guesses the tokens that followed them. Needs no model.

    min_ngram, max_ngram: fewest and most tokens that have to match. The longest match counts, and of equally long ones
    the first in the text, as in vLLM.
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
        """Return the tokens after the first earlier occurrence of the text's longest repeated end."""
        tokens = array("q", token_ids)
        text = memoryview(tokens).cast("B").tobytes()
        for length in range(min(self.max_ngram, len(tokens) - 1), self.min_ngram - 1, -1):
            place = _find(text, length * tokens.itemsize, tokens.itemsize)
            if place is not None:
                return tuple(tokens[place + length : place + length + num_tokens])
        return ()


def _find(text: bytes, length: int, size: int) -> int | None:
    """Return the index of the first earlier item at which the text's last `length` bytes occur; None for none."""
    end, place = text[-length:], -1
    while (place := text.find(end, place + 1, len(text) - size)) >= 0:
        if not place % size:
            return place // size
    return None


@dataclass(frozen=True)
class FixedDrafts:
    """Guesses that position p of every request holds token_ids[p]: for tests, and to show acceptance and rejection."""

    token_ids: tuple[int, ...]
    num_drafts: int = 4
    drafter: Drafter = "lookup"
    """Kind of drafter for edition vllm."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", tuple(checked_token_ids(self.token_ids)))
        object.__setattr__(self, "num_drafts", checked_int("num_drafts", self.num_drafts, 1))

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the list's tokens at the next positions."""
        return self.token_ids[len(token_ids) : len(token_ids) + num_tokens]
