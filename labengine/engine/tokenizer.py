"""Text to token ids and back, by the tokenizer that lies beside the weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.engine.messages import require_messages
from labengine.engine.token_bytes import readable_fragment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def has_tokenizer(model_dir: Path) -> bool:
    """Return True if a tokenizer's file is in the directory, whole or damaged."""
    return any((model_dir / name).exists() for name in TOKENIZER_FILES)


class IdTokenizer:
    """What stands in for a tokenizer in a directory without one: text is the ids, and no text becomes ids."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir

    def encode(self, text: str) -> list[int]:
        """ConfigError, always."""
        raise self._no_tokenizer()

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """ConfigError, always."""
        raise self._no_tokenizer()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids, each with a space before it: longer output begins with the shorter."""
        return "".join(map(self.token_text, token_ids))

    def token_text(self, token_id: int) -> str:
        """Return the id, with a space before it."""
        return f" {token_id}"

    def _no_tokenizer(self) -> ConfigError:
        files = ", ".join(TOKENIZER_FILES)
        return ConfigError(f"{self.model_dir} has no tokenizer ({files}): give token ids, as add(token_ids=[...])")


class Tokenizer:
    """The tokenizer of a model directory, loaded when first used."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        self._texts: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds by default."""
        return list(self._loaded.encode(text))

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of a conversation of {role, content}, up to where the assistant is to speak. Raises ConfigError."""
        require_messages(messages)
        return list(self._loaded.encode(self._render(messages), add_special_tokens=False))

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        return str(self._loaded.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> str:
        r"""One token for display: its text, spaces and all; the bytes of a broken-up character as \xe2.

        Never an error: an id without a token reads as <#id>.
        """
        if token_id not in self._texts:
            self._texts[token_id] = self._readable(token_id)
        return self._texts[token_id]

    @cached_property
    def _loaded(self) -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        try:
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                self.model_dir, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:
            files = " or ".join(name for name in TOKENIZER_FILES if (self.model_dir / name).exists())
            said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"the tokenizer in {self.model_dir} does not load ({files}): {said}") from error
        return tokenizer

    def _render(self, messages: Sequence[dict[str, str]]) -> str:
        """Return the conversation as the model's chat template writes it."""
        from jinja2 import TemplateError

        if not self._loaded.chat_template:
            raise ConfigError(f"the tokenizer in {self.model_dir} has no chat template; give a plain prompt instead")
        try:
            text: Any = self._loaded.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        except TemplateError as error:
            raise ConfigError(f"the model's chat template refuses these messages: {error}") from error
        except Exception as error:  # a template is a program, and may fail in any way
            raise ConfigError(f"the chat template in {self.model_dir} fails: {error!r}") from error
        return str(text)

    def _readable(self, token_id: int) -> str:
        if not 0 <= token_id < len(self._loaded):
            return f"<#{token_id}>"
        token = str(self._loaded.convert_ids_to_tokens(token_id))
        if token_id in self._loaded.added_tokens_decoder:
            return token
        if "▁" in token:  # SentencePiece's space, which decoding a single token would drop
            return token.replace("▁", " ")
        text = self.decode([token_id], skip_special_tokens=False)
        return text if text and "\ufffd" not in text else readable_fragment(token)
