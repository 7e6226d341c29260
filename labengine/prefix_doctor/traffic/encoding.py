"""Texts to tokens: by a model's tokenizer, in batches, or without one in pieces of words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import TOKENIZER_FILES, HuggingFaceTokenizer, has_tokenizer
from labengine.prefix_doctor.traffic.line import Line, Message
from labengine.prefix_doctor.traffic.prompt import TokenText


class Encoding(Protocol):
    """Gives the lines of a file their tokens."""

    runs_beside: bool
    """True if encoding in a thread runs at the same time as Python."""
    note: str
    """A sentence on how far its tokens can be trusted; empty for a model's own."""

    @property
    def token_text(self) -> TokenText:
        """The text of a token."""

    def encode(self, lines: Sequence[Line]) -> None:
        """Set token_ids, answer and message_starts of the lines with texts, or why_bad."""


def encoding_of(tokenizer: str | PathLike[str] | None) -> Encoding:
    """Return the encoding by a model's directory or name; without one, in pieces of words.

    Raises ConfigError for a tokenizer that is missing or cannot be loaded.
    """
    if tokenizer is None:
        return WordPieces()
    directory = Path(tokenizer) if Path(tokenizer).is_dir() else model_path(tokenizer)
    if not has_tokenizer(directory):
        raise ConfigError(f"{directory} has no tokenizer ({', '.join(TOKENIZER_FILES)})")
    return ModelEncoding(HuggingFaceTokenizer(directory))


# -- a model's tokenizer -----------------------------------------------------------------------------------------------


class ModelEncoding:
    """A model's tokenizer and chat template. Raises ConfigError for a tokenizer that cannot be loaded."""

    runs_beside = True
    note = ""

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._headers: dict[tuple[str, str], int] = {}
        """Characters that the template puts before a message's content, by the role before it and its own."""
        tokenizer.encode("")

    @property
    def token_text(self) -> TokenText:
        """The text of a token."""
        return self._tokenizer.token_text

    def encode(self, lines: Sequence[Line]) -> None:
        """Encode prompts, chats and answers, each kind as one batch."""
        prompts = [line for line in lines if line.text is not None]
        for line, ids in zip(prompts, self._tokenizer.encode_all([line.text or "" for line in prompts]), strict=True):
            line.prompt.token_ids = ids
        answers = [line for line in lines if line.answer_text]
        texts = [line.answer_text for line in answers]
        found = self._tokenizer.encode_all(texts, add_special_tokens=False)
        for line, ids in zip(answers, found, strict=True):
            line.prompt.answer = ids
        self._encode_chats([line for line in lines if line.chat])

    def _encode_chats(self, lines: Sequence[Line]) -> None:
        rendered = [(line, *text) for line in lines if (text := self._rendered(line)) is not None]
        places = [starts for _, _, starts in rendered]
        texts = [text for _, text, _ in rendered]
        for (line, _, _), (ids, starts) in zip(rendered, self._tokenizer.encode_chats(texts, places), strict=True):
            line.prompt.token_ids, line.prompt.message_starts = ids, starts

    def _rendered(self, line: Line) -> tuple[str, list[int]] | None:
        """Return a chat's text, and the characters at which its messages begin; None if the template rejects it."""
        assert line.chat is not None
        try:
            text = self._tokenizer.render(line.chat, tools=line.tools)
        except ConfigError as error:
            line.why_bad = str(error)
            return None
        return text, self._starts(line.chat, text, line.tools)

    def _starts(self, chat: Sequence[Message], text: str, tools: list[Any] | None) -> list[int]:
        """Find the contents in the text, one after the other; each message begins before its content, at its header."""
        starts, end, before = [], 0, ""
        for number, message in enumerate(chat):
            content = message["content"].strip()
            place = text.find(content, end)
            if not content or place < 0:  # tool calls, or a template that rewrites contents
                starts.append(end)
                before = message["role"]
                continue
            key = before, message["role"]
            if key not in self._headers:
                self._headers[key] = self._header(chat, number, text, place, tools)
            starts.append(max(end, place - self._headers[key]) if number else 0)
            end, before = place + len(content), message["role"]
        return starts

    def _header(self, chat: Sequence[Message], number: int, text: str, place: int, tools: list[Any] | None) -> int:
        if not number:
            return place
        try:
            earlier = self._tokenizer.render(chat[:number], tools=tools, is_open=False)
        except ConfigError:
            return 0
        return place - len(earlier) if text.startswith(earlier) and len(earlier) <= place else 0


# -- pieces of words ---------------------------------------------------------------------------------------------------


class WordPieces:
    """Splits text into pieces whose number is near that of a model's tokens; numbers them in order of appearance.

    Eight letters a piece: 0.99 of SmolLM2's tokens for this project's English, 1.06 for its code; four give 1.23, 1.32.
    """

    runs_beside = False
    note = (
        "Without --tokenizer, texts are split into pieces of words: the places at which prompts diverge are right, but "
        "lengths are only near those of a model's tokens, and chats have no template."
    )
    _PIECE = re.compile(
        r" ?[A-Za-z]{1,8}| ?\d{1,3}| ?[^\W\d_a-zA-Z]{1,2}|[^\S\n]+(?=\s?\S)|\s+| ?[^\w\s]{1,2}|_+", re.DOTALL
    )
    _FIRST = 100_000

    def __init__(self) -> None:
        self._ids = _Numbers(self._FIRST)

    def token_text(self, token_id: int) -> str:
        """Return a piece; a number for a token of an answer that is not known."""
        pieces = self._ids.pieces
        return pieces[token_id - self._FIRST] if 0 <= token_id - self._FIRST < len(pieces) else f" {token_id}"

    def encode(self, lines: Sequence[Line]) -> None:
        """Encode prompts, chats and answers."""
        for line in lines:
            if line.text is not None:
                line.prompt.token_ids = self._encoded(line.text)
            if line.answer_text:
                line.prompt.answer = self._encoded(line.answer_text)
            if line.chat:
                self._encode_chat(line, line.chat)

    def _encode_chat(self, line: Line, chat: Sequence[Message]) -> None:
        parts = [self._encoded(_as_text(message)) for message in chat]
        tools = self._encoded(f"<tools>{json.dumps(line.tools)}\n") if line.tools else []
        line.prompt.message_starts = (0, *(len(tools) + end for end in accumulate(map(len, parts[:-1]))))
        line.prompt.token_ids = [*tools, *(one for part in parts for one in part), *self._encoded("<assistant>")]

    def _encoded(self, text: str) -> list[int]:
        return list(map(self._ids.__getitem__, self._PIECE.findall(text)))


def _as_text(message: Message) -> str:
    calls = json.dumps(message["tool_calls"]) if "tool_calls" in message else ""
    return f"<{message['role']}>{message['content']}{calls}\n"


class _Numbers(dict[str, int]):
    """Numbers pieces in order of appearance."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first
        self.pieces: list[str] = []

    def __missing__(self, piece: str) -> int:
        self[piece] = number = self._first + len(self.pieces)
        self.pieces.append(piece)
        return number
