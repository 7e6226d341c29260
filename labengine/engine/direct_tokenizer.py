"""A tokenizer read from tokenizer.json without transformers, whose import takes most of a second."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.system.regular_file import read_regular

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names that tokenizer_config.json may have for the class that reads everything from tokenizer.json."""

INERT_KEYS = {
    "tokenizer_class",
    "clean_up_tokenization_spaces",
    "added_tokens_decoder",
    "chat_template",
    "model_max_length",
    "model_input_names",
    "padding_side",
    "truncation_side",
    "backend",
    "is_local",
}
"""Keys of tokenizer_config.json that do not change ids or texts of a generic class, or are handled below."""

ADDED_TOKEN_FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")


class DirectTokenizer:
    """A tokenizer with those methods of transformers' tokenizers that the lab calls."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.backend_tokenizer = tokenizer

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text."""
        return list(self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of token ids."""
        return self.backend_tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it."""
        return self.backend_tokenizer.id_to_token(token_id)

    @cached_property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Tokens outside the vocabulary, by id."""
        return self.backend_tokenizer.get_added_tokens_decoder()


def direct_tokenizer(model_dir: Path) -> DirectTokenizer | None:
    """Return the directory's tokenizer; None if transformers would read its files differently."""
    if not names_generic_class(model_dir):
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    except Exception:  # of any type: transformers will report what is wrong with the file
        return None
    return DirectTokenizer(tokenizer) if _says_nothing_more(_config(model_dir), tokenizer) else None


def names_generic_class(model_dir: Path) -> bool:
    """Return True if tokenizer_config.json names the class that reads everything from tokenizer.json."""
    config = _config(model_dir)
    return "auto_map" not in config and config.get("tokenizer_class") in GENERIC_CLASSES


def _config(model_dir: Path) -> dict[str, Any]:
    try:
        contents = json.loads(read_regular(model_dir / "tokenizer_config.json"))
    except (OSError, ValueError):
        return {}
    return contents if isinstance(contents, dict) else {}


def _says_nothing_more(config: dict[str, Any], tokenizer: Tokenizer) -> bool:
    """Return True if tokenizer_config.json adds nothing to tokenizer.json but the roles of special tokens."""
    from tokenizers.models import BPE

    if config.get("clean_up_tokenization_spaces") and not isinstance(tokenizer.model, BPE):
        return False
    added = tokenizer.get_added_tokens_decoder()
    return _has_inert_keys(config, added) and _has_inert_tokens(config, added)


def _has_inert_keys(config: dict[str, Any], added: dict[int, AddedToken]) -> bool:
    """Return True if each key is inert, or gives a role (bos_token ...) to a special token of tokenizer.json."""
    special = {token.content for token in added.values() if token.special}
    roles = [value for key, value in config.items() if key not in INERT_KEYS and value is not None]
    return all(isinstance(value, str) and value in special for value in roles)


def _has_inert_tokens(config: dict[str, Any], added: dict[int, AddedToken]) -> bool:
    """Return True if tokenizer.json has each token of added_tokens_decoder too, with the same flags."""
    listed = config.get("added_tokens_decoder", {})
    if not isinstance(listed, dict):
        return False
    own = {str(token_id): token for token_id, token in added.items()}
    return all(
        isinstance(token, dict)
        and all(token.get(flag) == getattr(own.get(key), flag, ...) for flag in ADDED_TOKEN_FLAGS)
        for key, token in listed.items()
    )
