"""A model without weights: tokens are a pure function of (request, position), words are tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count

from labengine.core.connector import BlockKV
from labengine.core.step_plan import StepPlan
from labengine.engine.messages import require_messages

NextToken = Callable[[int, int], int]
"""next_token(request_id, position): the token that the request will hold at that position."""


def default_next_token(request_id: int, position: int) -> int:
    """Spread tokens so that no two requests go on alike by accident."""
    return (request_id * 7919 + position * 104729) % 50021


class SimulatedRunner:
    """Computes nothing, and samples next_token."""

    def __init__(self, next_token: NextToken = default_next_token) -> None:
        self._next_token = next_token

    def forward(self, plan: StepPlan) -> None:
        """There is no KV to write."""

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """One token per sampling request."""
        return [self._next_token(request.request_id, request.end) for request in plan.sampling]

    def read_block(self, group: int, block_id: int) -> None:
        """There is no KV."""

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        """There is no KV."""


class WordTokenizer:
    """Words as tokens, numbered as they come: enough to read a simulated lab. Sampled tokens show as their number."""

    _FIRST_WORD = 100_000

    def __init__(self) -> None:
        self._new_ids = count(self._FIRST_WORD)
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """One id per word, with the white space before it."""
        return [self._word_id(word) for word in re.findall(r"\s*\S+|\s+$", text)]

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the messages one after the other."""
        require_messages(messages)
        return self.encode(" ".join(f"{message['role']}: {message['content']}" for message in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the words, and the numbers of sampled tokens."""
        return "".join(self.token_text(token_id) for token_id in token_ids)

    def token_text(self, token_id: int) -> str:
        """Return a word, or a number."""
        return self._texts.get(token_id, f" {token_id}")

    def _word_id(self, word: str) -> int:
        if word not in self._words:  # several threads may be here, each with a word of its own
            token_id = self._words.setdefault(word, next(self._new_ids))
            self._texts[token_id] = word
        return self._words[word]
