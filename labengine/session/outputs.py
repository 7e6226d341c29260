"""What a request has said: its output so far, and its text as it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_UNFINISHED = "�"
"""A decoder prints this for bytes that a later token completes."""


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One request's completion: token_ids without the prompt, eos included; text without special tokens.

    finish_reason: stop (eos), length (max_tokens) or abort; None while the request is under way.
    """

    request_id: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None


class TextStream:
    """Cuts a growing completion into pieces of text; a character whose bytes are incomplete is held back."""

    def __init__(self, decode: Callable[[Sequence[int]], str], num_prompt_tokens: int) -> None:
        self._decode = decode
        self._num_prompt_tokens = num_prompt_tokens
        self._told = ""

    def grown_by(self, token_ids: Sequence[int]) -> Iterator[str]:
        """The piece that the newest tokens added, if any."""
        text = self._decode(token_ids[self._num_prompt_tokens :])
        if len(text) > len(self._told) and not text.endswith(_UNFINISHED):
            yield text[len(self._told) :]
            self._told = text

    def rest(self, token_ids: Sequence[int]) -> Iterator[str]:
        """What is still held back when the request has finished."""
        text = self._decode(token_ids[self._num_prompt_tokens :])
        if len(text) > len(self._told):
            yield text[len(self._told) :]
            self._told = text
