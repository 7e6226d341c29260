"""The JSON objects of a file, one per line or in one array: read as a stream, in bounded memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from os import PathLike, fspath
from typing import Any, NoReturn

from labengine.config import ConfigError, shown
from labengine.record.wording import counted, readable
from labengine.system.regular_file import open_regular

MAX_LINE_BYTES = 1 << 26
"""Most bytes of a line, and of a file with one array."""
NUM_JUDGED = 100
"""Lines after which a file whose lines are mostly bad is refused."""
EXPECTED = 'one JSON object a line, such as {"prompt": "text"}, {"prompt": [1, 2]} or {"messages": [...]}'

GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CHUNK = 1 << 20
_DAMAGED = (EOFError, zlib.error, BadGzipFile)


class JsonLines:
    """One reading of a file. `notes` is complete once all objects have been read.

    Raises ConfigError, while reading, for a file that cannot be read or whose lines are mostly bad.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = fspath(path)
        self._num_good = self._num_bad = 0
        self._first_bad = self._ending = ""
        try:
            self._raw = open_regular(path).detach()
            self._size = self._raw.seek(0, 2)
            self._raw.seek(0)
            is_packed = self._raw.read(2) == GZIP
            self._raw.seek(0)
        except OSError as error:
            raise self._unreadable(error) from None
        self._file = GzipFile(fileobj=self._raw) if is_packed else BufferedReader(self._raw, _CHUNK)

    @property
    def share_read(self) -> float:
        """Share of the file's bytes that have been read."""
        return 1.0 if self._raw.closed or not self._size else self._raw.tell() / self._size

    @property
    def notes(self) -> list[str]:
        """Sentences on what was left out."""
        some = [f"{counted(self._num_bad, 'line')} left out; the first is {self._first_bad}."] if self._num_bad else []
        return [*some, *([self._ending] if self._ending else [])]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def head(self) -> bytes:
        """Return the first bytes, without reading them."""
        try:
            return self._file.peek(_CHUNK).removeprefix(_BOM)
        except (*_DAMAGED, OSError):
            return b""

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each object with its number: of its line, or in the array."""
        head = self.head()
        if head.startswith(_UTF_16):
            raise ConfigError(f"{self._path} is in UTF-16: write it as UTF-8")
        is_array = head[:200].split()[:1] == [b"["] or head.lstrip().startswith(b"[{")
        yield from self._array() if is_array else self._lines()

    def check(self) -> None:
        """Raise ConfigError if most lines were bad, or none was good."""
        if not self._num_good or self._num_bad > self._num_good:
            self._refuse()

    def reject(self, number: int, why: str) -> None:
        """Count a line as bad whose object was yielded. Raises ConfigError once most lines are."""
        self._num_good -= 1
        self._leave_out(number, why)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _leave_out(self, number: int, why: str) -> None:
        self._num_bad += 1
        self._first_bad = self._first_bad or f"line {number:,}: {readable(why, 300)}"
        if self._num_bad + self._num_good > NUM_JUDGED and self._num_bad > self._num_good:
            self._refuse()

    def _refuse(self) -> NoReturn:
        if not self._num_bad:
            raise ConfigError(f"{self._path} has no prompts ({self._ending or 'it is empty'}): it needs {EXPECTED}")
        raise ConfigError(
            f"{self._path} is not a file of prompts: {self._bad_lines} ({self._first_bad}). It needs {EXPECTED}"
        )

    @property
    def _bad_lines(self) -> str:
        num_lines = self._num_bad + self._num_good
        if self._num_good:
            return f"{self._num_bad:,} of its first {num_lines:,} lines cannot be used"
        if num_lines == 1:
            return "its only line cannot be used"
        return f"none of its first {num_lines:,} lines can be used"

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(self._split(), 1):
            text = line.strip()
            if number == 1:
                text = text.removeprefix(_BOM)
            if not text:
                continue
            try:
                found = parsed(text)
            except ValueError as error:
                if line.endswith(b"\n") or not text.startswith(b"{"):
                    self._leave_out(number, str(error))
                else:
                    self._ending = f"The file ends in the middle of line {number:,}, which is left out."
                continue
            yield from self._object(number, found)

    def _object(self, number: int, found: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        if isinstance(found, dict):
            self._num_good += 1
            yield number, found
        else:
            self._leave_out(number, f"it is not an object, but {shown(found)}")

    def _array(self) -> Iterator[tuple[int, dict[str, Any]]]:
        text = b"".join(self._pieces(MAX_LINE_BYTES + 1)).removeprefix(_BOM)
        if len(text) > MAX_LINE_BYTES:
            raise ConfigError(
                f"{self._path} is one array of more than {MAX_LINE_BYTES >> 20} MiB: write its objects one a line, as "
                "`jq -c '.[]'` does"
            )
        try:
            found = parsed(text)
        except ValueError as error:
            raise ConfigError(f"{self._path} is an array that cannot be read ({error}): it needs {EXPECTED}") from None
        for number, one in enumerate(found, 1):
            yield from self._object(number, one)

    def _split(self) -> Iterator[bytes]:
        """Yield the lines; those that are too long as empty ones, after leaving them out."""
        for number, line in enumerate(self._pieces(MAX_LINE_BYTES + 1), 1):
            if len(line) <= MAX_LINE_BYTES:
                yield line
                continue
            for piece in self._pieces(_CHUNK):
                if piece.endswith(b"\n"):
                    break
            self._leave_out(number, f"it has more than {MAX_LINE_BYTES >> 20} MiB")
            yield b""

    def _pieces(self, most: int) -> Iterator[bytes]:
        """Yield the lines, in pieces of at most `most` bytes."""
        while True:
            try:
                piece = self._file.readline(most)
            except _DAMAGED:
                self._ending = "The compressed file is damaged or cut off; what comes before is read."
                return
            except OSError as error:
                raise self._unreadable(error) from None
            if not piece:
                return
            yield piece

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self._path} cannot be read: {error.strerror or error}")


def parsed(text: bytes) -> Any:
    """Return the JSON document. Raises ValueError for anything else, NaN included; orjson is used if installed."""
    try:
        return _loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _with_json(text: bytes) -> Any:
    found = json.loads(text, parse_constant=_refuse_constant)
    if b"\\ud" in text.lower():  # refuse half a surrogate pair, as orjson does: it can be neither encoded nor printed
        json.dumps(found, ensure_ascii=False).encode()
    return found


_loads: Callable[[bytes], Any]
try:
    from orjson import loads as _loads
except ImportError:
    _loads = _with_json
