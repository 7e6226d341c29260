"""The text of a stream's tokens: by a model's tokenizer, or as numbers."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import TOKENIZER_FILES, HuggingFaceTokenizer, has_tokenizer

TokenText = Callable[[int], str]


def token_text_of(tokenizer: str | PathLike[str] | None) -> TokenText:
    """Return a function from a token's id to its text. Raises ConfigError for a directory without a tokenizer."""
    if tokenizer is None:
        return lambda token_id: f"<#{token_id}>"
    directory = Path(tokenizer) if Path(tokenizer).is_dir() else model_path(tokenizer)
    if not has_tokenizer(directory):
        raise ConfigError(f"{directory} has no tokenizer ({', '.join(TOKENIZER_FILES)})")
    return HuggingFaceTokenizer(directory).token_text
