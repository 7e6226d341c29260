"""Schemas of the tokenizer's files, which are checked early; transformers loads them on first use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from labengine.engine.model_files.json_file import (
    FileModel,
    read_bytes,
    read_object,
    refusal,
    relation_error,
    validated,
)

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Vocabulary = Annotated[dict[str, TokenId], Field(min_length=1)] | Annotated[list[list[Any]], Field(min_length=1)]
"""Ids by text, or rows of text and score in the order of ids."""
TokenText = str | dict[str, Any] | None
"""A token, or an AddedToken with its flags."""


class AddedToken(FileModel):
    """A token that is matched before the model splits text."""

    id: TokenId
    content: str


class TokenizerModel(FileModel):
    """The model that maps pieces of text to ids."""

    vocab: Vocabulary

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        if isinstance(self.vocab, dict) and len(set(self.vocab.values())) < len(self.vocab):
            raise relation_error("vocab gives two texts the same id; fetch the file again")
        return self


class TokenizerFile(FileModel):
    """tokenizer.json."""

    model: TokenizerModel
    added_tokens: list[AddedToken] | None = None


class TokenizerConfig(FileModel):
    """tokenizer_config.json."""

    tokenizer_class: str | None = None
    chat_template: str | list[dict[str, str]] | dict[str, str] | None = None
    model_max_length: int | float | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    clean_up_tokenization_spaces: bool | None = None
    bos_token: TokenText = None
    eos_token: TokenText = None
    unk_token: TokenText = None
    pad_token: TokenText = None
    added_tokens_decoder: dict[str, dict[str, Any]] | None = None


SCHEMAS: dict[str, type[FileModel]] = {
    "tokenizer_config.json": TokenizerConfig,
    "special_tokens_map.json": FileModel,
    "added_tokens.json": FileModel,
    "vocab.json": FileModel,
}


def check_tokenizer_files(model_dir: Path) -> None:
    """Raise ConfigError, with file and field, for files that no tokenizer can be made from. No files are no error."""
    tokenizer_json = model_dir / "tokenizer.json"
    if tokenizer_json.exists():
        try:
            TokenizerFile.model_validate_json(read_bytes(tokenizer_json))  # large: parsed once, without Python objects
        except ValidationError as error:
            raise refusal(error, tokenizer_json) from None
    for name, schema in SCHEMAS.items():
        if (model_dir / name).exists():
            validated(schema, read_object(model_dir / name), model_dir / name)
