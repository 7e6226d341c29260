"""SmolLM's byte-level BPE with single digits, from a GGUF's vocabulary; no package with a tokenizer is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any
from unicodedata import category

from labengine.config import ConfigError
from labengine.engine.tokenizer import byte_of_character, readable_fragment, require_messages

CONTROL = 3
"""Type number of special tokens in the file."""
WHITE_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000").union(
    map(chr, range(0x2000, 0x200B))
)
"""Unicode's property White_Space; str.isspace has four more control characters."""
CONTRACTIONS = "sdmtlver"
"""Letters that may follow an apostrophe ('s 'd 'm 't 'll 've 're); each is its own kind."""
WORD = re.compile(
    r"N|'(?:[sdmt]|ll|ve|re)| ?[Lsdmtlver]+| ?[P']+|[S ]+(?![^S N])|[S ]+".replace("sdmtlver", CONTRACTIONS)
)
"""GPT-2's words in a text of kinds instead of characters; the last white space of several belongs to the next word.

The text ends before and after each digit, by which it is cut first."""
MAX_WORDS = 50_000
"""Maximum number of words whose tokens are cached."""


class _Kinds(dict[int, str]):
    """The kind of each code point, looked up once."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        if character in " '" or character in CONTRACTIONS:
            kind = character
        elif character in WHITE_SPACE:
            kind = "S"
        else:
            its_category = category(character)[0]
            kind = its_category if its_category in "LN" else "P"
        self[point] = kind
        return kind


class BPETokenizer:
    """Text to token ids and back. vocabulary: a GGUF's metadata under "tokenizer."."""

    def __init__(self, vocabulary: Mapping[str, Any]) -> None:
        """Raises ConfigError for another kind of tokenizer."""
        kind = vocabulary.get("tokenizer.ggml.model"), vocabulary.get("tokenizer.ggml.pre")
        if kind != ("gpt2", "smollm"):
            raise ConfigError(
                f"the tokenizer must be SmolLM's byte-level BPE, the only kind in a page, got {kind[0]}/{kind[1]}"
            )
        self._tokens: list[str] = vocabulary["tokenizer.ggml.tokens"]
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        self._ranks = {merge: rank for rank, merge in enumerate(vocabulary["tokenizer.ggml.merges"])}
        types = vocabulary["tokenizer.ggml.token_type"]
        self._special = {self._tokens[number]: number for number, its in enumerate(types) if its == CONTROL}
        self._special_ids = frozenset(self._special.values())
        self._special_text = re.compile(
            "|".join(map(re.escape, sorted(self._special, key=len, reverse=True))) or "(?!)"
        )
        self._bytes = byte_of_character()
        self._characters = {byte: character for character, byte in self._bytes.items()}
        self._kinds = _Kinds()
        self._ids_of_word: Callable[[str], tuple[int, ...]] = lru_cache(MAX_WORDS)(self._merged)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; a special token in it is one token."""
        ids: list[int] = []
        at = 0
        for found in self._special_text.finditer(text):
            ids += self._ids_of(text[at : found.start()])
            ids.append(self._special[found[0]])
            at = found.end()
        return ids + self._ids_of(text[at:])

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation, ready for the assistant's answer, by SmolLM2's template."""
        require_messages(messages)
        return self.encode(chat_text(messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text without special tokens."""
        return self._text(token_id for token_id in token_ids if token_id not in self._special_ids)

    def spelled(self, token_ids: Sequence[int]) -> str:
        """Return the text, including special tokens."""
        return self._text(iter(token_ids))

    def token_text(self, token_id: int) -> str:
        r"""Return one token's text for display; the bytes of a split character as \xe2, an unknown id as <#id>."""
        if not 0 <= token_id < len(self._tokens):
            return f"<#{token_id}>"
        token = self._tokens[token_id]
        return token if token_id in self._special_ids else readable_fragment(token)

    def _text(self, token_ids: Iterator[int]) -> str:
        characters = "".join(self._tokens[token_id] for token_id in token_ids)
        return bytes(self._bytes[character] for character in characters).decode("utf-8", "replace")

    def _ids_of(self, text: str) -> list[int]:
        return [token_id for word in self._words(text) for token_id in self._ids_of_word(word)]

    def _words(self, text: str) -> Iterator[str]:
        kinds = text.translate(self._kinds)
        for found in WORD.finditer(kinds):
            yield text[found.start() : found.end()]

    def _merged(self, word: str) -> tuple[int, ...]:
        """Join the pair of lowest rank, the leftmost among equals, until no pair has a rank.

        A byte without a token is left out, as in the reference implementation.
        """
        parts = [part for byte in word.encode() if (part := self._characters[byte]) in self._ids]
        after, before = [*range(1, len(parts) + 1)], [*range(-1, len(parts) - 1)]
        pairs = [(rank, at) for at in range(len(parts) - 1) if (rank := self._rank(parts, at, at + 1)) is not None]
        heapify(pairs)
        while pairs:
            rank, at = heappop(pairs)
            right = after[at]
            if not parts[at] or rank != self._rank(parts, at, right):
                continue  # one of the two has been joined with another part
            parts[at], parts[right] = parts[at] + parts[right], ""
            after[at] = after[right]
            if after[at] < len(parts):
                before[after[at]] = at
            for left in (before[at], at):
                if left >= 0 and (new := self._rank(parts, left, after[left])) is not None:
                    heappush(pairs, (new, left))
        return tuple(self._ids[part] for part in parts if part)

    def _rank(self, parts: Sequence[str], left: int, right: int) -> int | None:
        return self._ranks.get(f"{parts[left]} {parts[right]}") if right < len(parts) else None


SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat_text(messages: Sequence[Mapping[str, str]]) -> str:
    """Return a conversation rendered like SmolLM2's chat template."""
    system = [] if messages[0]["role"] == "system" else [{"role": "system", "content": SYSTEM}]
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in (*system, *messages)]
    return "".join([*turns, "<|im_start|>assistant\n"])


def question_in(text: str) -> str | None:
    """Return the user's message if the text is chat_text's of a single message; None for any other text."""
    before, after = chat_text([{"role": "user", "content": "\0"}]).split("\0")
    if not (text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after)):
        return None
    question = text[len(before) : -len(after)]
    return None if "<|im_" in question else question
