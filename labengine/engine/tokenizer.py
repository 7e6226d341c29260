"""Text to token ids and back, with the tokenizer in the model's directory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError, checked_text
from labengine.engine.direct_tokenizer import DirectTokenizer, direct_tokenizer, names_generic_class

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


def give_back_freed() -> None:
    """Return freed memory to the system. Has no effect without glibc."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def require_messages(messages: Sequence[dict[str, str]]) -> None:
    """Raise ConfigError for anything but a list of {role, content}, both texts, with at least one of them."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise ConfigError(f"a conversation must be a non-empty list of messages, got {messages!r}")
    for message in messages:
        if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise ConfigError(
                f"a chat message must be a dict with string values for 'role' and 'content', got {message!r}"
            )
        checked_text("a chat message", message["content"])


def _filled(tokens: Iterable[int | None]) -> tuple[int, ...]:
    """Replace None by the number before it."""
    return tuple(accumulate(tokens, lambda last, token: last if token is None else token, initial=0))[1:]


_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def readable_fragment(token: str) -> str:
    r"""Return the text of a token in the vocabulary's spelling; bytes of incomplete characters as \xe2."""
    if fallback := _BYTE_FALLBACK.fullmatch(token):
        return f"\\x{fallback[1].lower()}"
    alphabet = byte_of_character()
    if not all(character in alphabet for character in token):
        return token
    return bytes(alphabet[character] for character in token).decode("utf-8", "backslashreplace")


@cache
def byte_of_character() -> dict[str, int]:
    """Return byte-level BPE's alphabet: a printable byte stands for itself, the n-th other byte is chr(256 + n)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def has_tokenizer(model_dir: Path) -> bool:
    """Return True if the directory has a tokenizer's file, intact or damaged."""
    return any((model_dir / name).exists() for name in TOKENIZER_FILES)


class IdTokenizer:
    """Replaces the tokenizer of a directory without one: decodes ids to numbers, and encodes nothing."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir

    def encode(self, text: str) -> list[int]:
        """Raise ConfigError."""
        raise self._no_tokenizer()

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Raise ConfigError."""
        raise self._no_tokenizer()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids, each after a space, so that a longer output begins with the shorter one."""
        return "".join(map(self.token_text, token_ids))

    def token_text(self, token_id: int) -> str:
        """Return the id after a space."""
        return f" {token_id}"

    def _no_tokenizer(self) -> ConfigError:
        files = ", ".join(TOKENIZER_FILES)
        return ConfigError(f"{self.model_dir} has no tokenizer ({files}): pass token ids, as in add(token_ids=[...])")


class HuggingFaceTokenizer:
    """The tokenizer of a model directory, loaded on first use."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        self._texts: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with the special tokens that the tokenizer adds by default."""
        return list(self._loaded.encode(text))

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation of {role, content}, ready for the assistant's answer.

        Raises ConfigError.
        """
        require_messages(messages)
        return list(self._loaded.encode(self.render(messages), add_special_tokens=False))

    def render(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[Any] | None = None, is_open: bool = True
    ) -> str:
        """Return the conversation rendered by the model's chat template. is_open: ready for the assistant's answer.

        Raises ConfigError if there is no template, or it rejects the messages.
        """
        from jinja2 import TemplateError

        if not self._transformers.chat_template:
            raise ConfigError(f"the tokenizer in {self.model_dir} has no chat template: use a plain prompt instead")
        try:
            text: Any = self._transformers.apply_chat_template(
                list(messages),
                tools=None if tools is None else list(tools),
                add_generation_prompt=is_open,
                tokenize=False,
            )
        except TemplateError as error:
            raise ConfigError(f"the model's chat template rejects these messages: {error}") from error
        except Exception as error:  # a template is a program, and may fail in any way
            raise ConfigError(f"the chat template in {self.model_dir} fails: {error!r}") from error
        return str(text)

    def encode_all(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return the token ids of many texts, encoded on all cores if the tokenizer can."""
        if (backend := self._backend) is None:
            return [list(self._loaded.encode(text, add_special_tokens=add_special_tokens)) for text in texts]
        return [one.ids for one in backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]

    def encode_chats(
        self, texts: Sequence[str], places: Sequence[Sequence[int]]
    ) -> list[tuple[list[int], tuple[int, ...]]]:
        """Return the token ids of rendered conversations, each with the tokens that contain the characters at `places`.

        A character outside all tokens counts to the place before it. No places if the tokenizer does not tell them.
        """
        if (backend := self._backend) is None:
            return [(ids, ()) for ids in self.encode_all(texts, add_special_tokens=False)]
        encodings = backend.encode_batch(list(texts), add_special_tokens=False)
        found = (map(one.char_to_token, at) for one, at in zip(encodings, places, strict=True))
        return [(one.ids, _filled(tokens)) for one, tokens in zip(encodings, found, strict=True)]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        return str(self._loaded.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> str:
        r"""Return one token's text for display, with its spaces; the bytes of a split character as \xe2.

        Never raises: an id without a token reads as <#id>.
        """
        if token_id not in self._texts:
            self._texts[token_id] = self._readable(token_id)
        return self._texts[token_id]

    @cached_property
    def _loaded(self) -> DirectTokenizer | PreTrainedTokenizerBase:
        loaded = direct_tokenizer(self.model_dir) or self._transformers
        give_back_freed()
        return loaded

    @property
    def _backend(self) -> Tokenizer | None:
        """The tokenizer of the library that encodes batches; None for one that is written in Python."""
        return getattr(self._loaded, "backend_tokenizer", None)

    @cached_property
    def _transformers(self) -> PreTrainedTokenizerBase:
        try:
            tokenizer: PreTrainedTokenizerBase = self._tokenizer_class().from_pretrained(
                self.model_dir, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:
            files = " or ".join(name for name in TOKENIZER_FILES if (self.model_dir / name).exists())
            said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"the tokenizer in {self.model_dir} cannot be loaded ({files}): {said}") from error
        return tokenizer

    def _tokenizer_class(self) -> Any:
        """Return the class of transformers that loads this directory.

        AutoTokenizer imports transformers' modelling half, which takes seconds. It is used only if the directory does
        not name the generic class.
        """
        if names_generic_class(self.model_dir):
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
        from transformers import AutoTokenizer

        return AutoTokenizer

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
