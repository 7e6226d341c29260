"""A proposer with checked guesses: they become indices into the model's embedding table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from labengine.config import ConfigError, Drafter, checked_call, checked_int, shown
from labengine.core.proposer import Proposer


def refuse_wrong_proposer(proposer: Any) -> None:
    """Raise ConfigError unless the object is a proposer."""
    name = "speculation"
    is_whole = all(hasattr(proposer, declared) for declared in ("num_drafts", "drafter", "propose"))
    if isinstance(proposer, type) or not is_whole:
        raise ConfigError(
            f"{name} must be a proposer, such as labengine.NGram(num_drafts=4), or an object with num_drafts, "
            f'propose(token_ids, num_tokens) and drafter ("lookup" if it has no model), got {shown(proposer)}'
        )
    checked_int(f"{name}.num_drafts", proposer.num_drafts, 1)
    checked_call(f"{name}.propose", proposer.propose, "token_ids", "num_tokens")


def drafts_of(proposer: Proposer | None) -> tuple[int, Drafter]:
    """Return the number of tokens that a proposer guesses at once, 0 without one, and its kind of drafter."""
    return (0, "lookup") if proposer is None else (proposer.num_drafts, proposer.drafter)


class CheckedProposer:
    """Passes on a proposer's guesses if the model knows these tokens."""

    def __init__(self, proposer: Proposer, checked_ids: Callable[[Sequence[int]], list[int]]) -> None:
        """checked_ids: returns the tokens, or raises ConfigError if the model does not know one."""
        self._proposer, self._checked_ids = proposer, checked_ids

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return up to num_tokens guesses. Raises ValueError, naming the proposer, for invalid tokens."""
        proposed = self._proposer.propose(token_ids, num_tokens)
        if hasattr(proposed, "__iter__") and not isinstance(proposed, (str, bytes)):  # it may be endless
            proposed = list(islice(proposed, num_tokens))
        try:
            return tuple(self._checked_ids(proposed))
        except (ConfigError, TypeError) as error:
            method = f"{type(self._proposer).__name__}.propose"
            raise ValueError(f"{method} must return token ids; it returned {shown(proposed)}: {error}") from error

    def close(self) -> None:
        """Close the proposer if it has a close method."""
        close = getattr(self._proposer, "close", None)
        if callable(close):
            close()
