"""Guesses by chance that depend on a text's tokens alone: two engines that hold equal texts get equal drafts.

It knows neither labengine nor vLLM, for both are asked with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class ChanceDrafts:
    """Guesses tokens of an alphabet: always num_drafts of them, or, as a look-up does, often fewer."""

    num_drafts: int
    alphabet: int
    drafter: str = "lookup"

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the guesses."""
        rng = Random(str(tuple(token_ids)))
        length = rng.randint(0, num_tokens) if self.drafter == "lookup" else num_tokens
        return tuple(rng.randrange(min(self.alphabet, 3)) for _ in range(length))


def judged(drafts: Sequence[int], token_at: Callable[[int], int], position: int) -> list[int]:
    """Return the model's tokens from a position on: up to the first that its draft does not have, or one behind all."""
    tokens = [token_at(position)]
    for draft in drafts:
        if draft != tokens[-1]:
            break
        tokens.append(token_at(position + len(tokens)))
    return tokens
