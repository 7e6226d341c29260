"""GGUF's kinds of tokens, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTROL, USER_DEFINED, BYTE = 3, 4, 6
"""Special tokens; texts that are always a token of their own; single bytes of a vocabulary of texts."""


def tokens_of_type(fields: Mapping[str, Any], wanted: int) -> list[str]:
    """Return the tokens of one type, in the order of their ids."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    return [token for token, its_type in zip(tokens, types, strict=True) if its_type == wanted]


def add_special_tokens(tokenizer: Tokenizer, fields: Mapping[str, Any]) -> None:
    """Have the tokenizer know its special tokens: never cut, and left out when decoding."""
    from tokenizers import AddedToken

    special = tokens_of_type(fields, CONTROL)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
