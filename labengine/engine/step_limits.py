"""What a step may hold at most, and how long a request may become."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import ConfigError, checked_int


@dataclass(frozen=True, slots=True)
class StepLimits:
    """A step's requests and tokens, and a request's positions, at most: graphs and "auto" follow them."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_drafts: int = 0
    """Tokens of a request that a step judges as guesses, each in a row of its own like a decode."""

    @property
    def max_decodes(self) -> int:
        """Rows of a step in which all requests decode."""
        return min(self.max_num_batched_tokens, self.max_num_seqs * (1 + self.num_drafts))


def checked_model_len(asked: int | None, model_len: int, name: str) -> int:
    """Return the positions of a request: those asked for, or the model's. ConfigError for more than the model's."""
    if asked is None:
        return model_len
    if checked_int("max_model_len", asked, 2) > model_len:
        raise ConfigError(f"max_model_len={asked} is more than the {model_len} positions of {name}: lower it")
    return asked
