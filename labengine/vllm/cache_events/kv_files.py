"""Files of KV events: the publishers' messages unchanged, one per line, so that a later reader sees all of them."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Iterator
from json import dumps
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import INT, TEXT, TraceError, parsed
from labengine.record.files.shapes import shape_of
from labengine.system.closing import Closing
from labengine.vllm.cache_events.places import SUFFIX
from labengine.vllm.cache_events.stream import Message
from labengine.vllm.stream.files import lines_of

FORMAT = "labengine kv events"
VERSION = 1
_SOURCES = shape_of(tuple[str, ...])


class EventRecorder(Closing):
    """Appends messages to a new file, each at once, so that a killed recording can be read."""

    def __init__(self, path: str | PathLike[str], sources: tuple[str, ...]) -> None:
        self.path = Path(path)
        try:  # prompts are in it
            self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", buffering=1)
        except FileExistsError:
            raise ConfigError(f"{path} already exists: name a new file") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        self._write({"format": FORMAT, "version": VERSION, "sources": sources})

    def keep(self, message: Message) -> None:
        """Append a message."""
        self._write({"s": message.source, "n": message.number, "b": b64encode(message.payload).decode("ascii")})

    def close(self) -> None:
        """Close the file. Twice is harmless."""
        self._file.close()

    def _write(self, document: dict[str, Any]) -> None:
        self._file.write(dumps(document) + "\n")


class RecordedEvents:
    """A file of KV events. sources: the publishers' names. Raises ConfigError or TraceError for any other file."""

    def __init__(self, path: Path, limits: Limits) -> None:
        if not path.is_file():
            raise ConfigError(
                f"no file {path}: use labengine attach-kv tcp://HOST:PORT --record OUT{SUFFIX} to make one"
            )
        self._path, self._limits = path, limits
        self._lines = self._documents()
        header = next(self._lines, {})
        if header.get("format") != FORMAT:
            raise TraceError(f"{path} is not a file of KV events: use attach-kv ... --record OUT{SUFFIX} to make one")
        if header.get("version") != VERSION:
            raise TraceError(f"{path} was written by a newer labengine: update this one")
        self.sources: tuple[str, ...] = self._read(_SOURCES, header.get("sources"))
        self.is_cut = False
        """True once the last line turned out to be incomplete."""

    def messages(self) -> Iterator[Message]:
        """Yield the messages. Raises TraceError for a damaged line."""
        for document in self._lines:
            source, number = self._read(INT, document.get("s")), self._read(INT, document.get("n"))
            if not 0 <= source < len(self.sources) or number < 0:
                raise self._damage("an unknown source or number")
            try:
                payload = b64decode(self._read(TEXT, document.get("b")), validate=True)
            except ValueError as error:
                raise self._damage(str(error)) from None
            yield Message(source, number, payload)

    def _documents(self) -> Iterator[dict[str, Any]]:
        for line, is_complete in lines_of(self._path):
            self._limits.refuse_late()
            self._limits.refuse_line(line)
            if not is_complete:
                self.is_cut = True
                return
            document = parsed(line)
            if not isinstance(document, dict):
                raise self._damage("a line that is not a message")
            yield document

    def _read(self, shape: Any, value: Any) -> Any:
        try:
            return shape(value)
        except (TypeError, ValueError) as error:
            raise self._damage(str(error)) from None

    def _damage(self, why: str) -> TraceError:
        return TraceError(f"{self._path} is damaged ({why}): download it again")
