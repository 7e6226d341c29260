"""The text of a stream's tokens: by a model's tokenizer, or as numbers."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import TOKENIZER_FILES, HuggingFaceTokenizer, has_tokenizer
from labengine.events import UNKNOWN_TOKEN

TokenText = Callable[[int], str]

LEFT_OUT = "·"
"""Text of a token left out by the tap."""


def token_text_of(tokenizer: str | PathLike[str] | None) -> TokenText:
    """Return a function from token id to text. Raises ConfigError for a directory without a tokenizer."""
    text_of = _number if tokenizer is None else _tokenizer(tokenizer).token_text
    return lambda token_id: LEFT_OUT if token_id == UNKNOWN_TOKEN else text_of(token_id)


def _number(token_id: int) -> str:
    return f"<#{token_id}>"


def _tokenizer(tokenizer: str | PathLike[str]) -> HuggingFaceTokenizer:
    directory = Path(tokenizer) if Path(tokenizer).is_dir() else model_path(tokenizer)
    if not has_tokenizer(directory):
        raise ConfigError(f"{directory} has no tokenizer ({', '.join(TOKENIZER_FILES)})")
    return HuggingFaceTokenizer(directory)
