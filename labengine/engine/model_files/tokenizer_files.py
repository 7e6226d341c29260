"""The schema of tokenizer.json, checked early. Other errors of a tokenizer appear at its first use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from labengine.engine.model_files.json_file import FileModel, read_bytes, refusal, relation_error

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Vocabulary = Annotated[dict[str, TokenId], Field(min_length=1)] | Annotated[list[list[Any]], Field(min_length=1)]
"""Ids by text, or rows of text and score in the order of ids."""


class AddedToken(FileModel):
    """A token matched before the model splits text."""

    id: TokenId
    content: str


class TokenizerModel(FileModel):
    """The model that maps pieces of text to ids."""

    vocab: Vocabulary

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        if isinstance(self.vocab, dict) and len(set(self.vocab.values())) < len(self.vocab):
            raise relation_error("has two vocab entries with the same id; download the file again")
        return self


class TokenizerFile(FileModel):
    """tokenizer.json."""

    model: TokenizerModel
    added_tokens: list[AddedToken] | None = None


def check_tokenizer_file(model_dir: Path) -> None:
    """Raise ConfigError, naming the field, for a tokenizer.json that cannot make a tokenizer."""
    path = model_dir / "tokenizer.json"
    if path.exists():
        try:
            TokenizerFile.model_validate_json(read_bytes(path))  # it is large, so parse once, without Python objects
        except ValidationError as error:
            raise refusal(error, path) from None
