"""The limits of a step's size and of a request's length."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import ConfigError, checked_int


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Maximum requests and tokens of a step, and positions of a request; graphs and "auto" follow them."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_drafts: int = 0
    """Number of a request's guesses that a step judges, each in a separate row like a decode."""

    @property
    def max_decodes(self) -> int:
        """Number of rows of a step in which all requests decode."""
        return min(self.max_num_batched_tokens, self.max_num_seqs * (1 + self.num_drafts))


def checked_model_len(asked: int | None, model_len: int, name: str) -> int:
    """Return the requested maximum of positions, or the model's. Raises ConfigError if it exceeds the model's."""
    if asked is None:
        return model_len
    if checked_int("max_model_len", asked, 2) > model_len:
        raise ConfigError(f"max_model_len must be at most {model_len}, the limit of {name}, got {asked}")
    return asked
