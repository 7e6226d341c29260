"""A model without weights: tokens are a pure function of (seed or request, position), words are tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from math import log

from labengine.core.beams import Likeliest
from labengine.core.connector import BlockKV
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.tokenizer import require_messages

NextToken = Callable[[int, int], int]
"""next_token(request_id, position): the token that the request will hold at that position.

A request with a seed passes that instead of its id, so equal seeds give equal tokens."""


def default_next_token(request_id: int, position: int) -> int:
    """Return a token; two requests rarely get the same one by chance."""
    return (request_id * 7919 + position * 104729) % 50021


class SimulatedRunner:
    """Computes nothing, and samples next_token."""

    def __init__(self, next_token: NextToken = default_next_token) -> None:
        self._next_token = next_token

    def forward(self, plan: StepPlan) -> None:
        """Do nothing, as there is no KV to write."""

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """Return one token per row."""
        return [self._next_token(_number(request), request.end) for request in plan.rows]

    def likeliest(self, plan: StepPlan, logits: None, num_tokens: int) -> list[Likeliest]:
        """Return tokens and log-probabilities that depend only on a beam's newest token and position."""
        return [likely_after(part.token_ids[-1], part.end, num_tokens) for _, part in plan.beams]

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        """Do nothing: there is no KV."""

    def read_block(self, group: int, block_id: int) -> None:
        """Return None, as there is no KV."""

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """Do nothing: there is no KV."""


def likely_after(token_id: int, position: int, num_tokens: int) -> Likeliest:
    """Return made-up likely tokens after a token: after some tokens few are likely, after others many.

    The probabilities fall by a factor that differs from token to token, so that beams overtake each other.
    """
    factor = 0.3 + 0.6 * ((token_id * 2654435761 + position * 40503) % 1000) / 1000
    first = (token_id * 7919 + position * 104729) % 50021
    return tuple(((first + 17 * rank) % 50021, log(1 - factor) + rank * log(factor)) for rank in range(num_tokens))


def _number(request: ScheduledRequest) -> int:
    seed = request.sampling.seed
    return request.request_id if seed is None else seed


class WordTokenizer:
    """Words as tokens, numbered in order of appearance; they make a simulated lab readable.

    Sampled tokens show as numbers.
    """

    _FIRST_WORD = 100_000

    def __init__(self) -> None:
        self._new_ids = count(self._FIRST_WORD)
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Split text into words with their leading whitespace; return one token id per word."""
        return [self._word_id(word) for word in re.findall(r"\s*\S+|\s+$", text)]

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the ids of all messages joined."""
        require_messages(messages)
        return self.encode(" ".join(f"{message['role']}: {message['content']}" for message in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the words of the prompt's tokens and the numbers of sampled ones."""
        return "".join(self.token_text(token_id) for token_id in token_ids)

    def token_text(self, token_id: int) -> str:
        """Return a token's word, or its number."""
        return self._texts.get(token_id, f" {token_id}")

    def _word_id(self, word: str) -> int:
        if word not in self._words:  # several threads may add a word at once
            token_id = self._words.setdefault(word, next(self._new_ids))
            self._texts[token_id] = word
        return self._words[word]
