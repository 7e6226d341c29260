"""The head of a GGUF file (version 3), its metadata and its tensors' places, read with the standard library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct, unpack_from
from struct import error as StructError
from typing import Any

from labengine.config import ConfigError

MAGIC, VERSION = b"GGUF", 3
STRING, ARRAY = 8, 9
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Formats of single values, by type number."""
_LENGTH = Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor: its shape, the innermost dimension first, the number of its type, and its first byte in the file."""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Metadata and tensors by name."""

    fields: dict[str, Any]
    tensors: dict[str, TensorPlace]


def read_header(content: bytes) -> GGUFHeader:
    """Read the head of a GGUF. Raises ConfigError for any other file, or if the head is longer than `content`."""
    if content[:4] != MAGIC or len(content) < 24:
        raise ConfigError("the weights are not a GGUF file")
    if (version := unpack_from("<I", content, 4)[0]) != VERSION:
        raise ConfigError(f"the weights are in GGUF version {version}; only version {VERSION} is supported")
    try:
        return _Reader(content).header()
    except (StructError, UnicodeDecodeError, KeyError) as error:
        raise ConfigError(f"the header of the weights' GGUF cannot be read: {error!r}") from error


class _Reader:
    """A place in the file."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 8

    def header(self) -> GGUFHeader:
        num_tensors, num_fields = self._number("<Q"), self._number("<Q")
        fields = {self._string(): self._value(self._number("<I")) for _ in range(num_fields)}
        tensors = {self._string(): self._tensor() for _ in range(num_tensors)}
        alignment = fields.get("general.alignment", 32)
        first = -(-self._at // alignment) * alignment
        return GGUFHeader(
            fields, {name: TensorPlace(one.shape, one.kind, first + one.offset) for name, one in tensors.items()}
        )

    def _tensor(self) -> TensorPlace:
        shape = tuple(self._number("<Q") for _ in range(self._number("<I")))
        return TensorPlace(shape, self._number("<I"), self._number("<Q"))

    def _number(self, form: str) -> Any:
        (value,) = unpack_from(form, self._content, self._at)
        self._at += Struct(form).size
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        """Read many strings at once; a vocabulary has a hundred thousand."""
        content, at, found = self._content, self._at, []
        length_at: Callable[[bytes, int], tuple[int]] = _LENGTH.unpack_from
        for _ in range(count):
            begin = at + 8
            at = begin + length_at(content, at)[0]
            found.append(content[begin:at].decode())
        if at > len(content):
            raise KeyError(f"{at} bytes needed, but only {len(content)} present")
        self._at = at
        return found

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._number(NUMBERS[kind])
        of, count = self._number("<I"), self._number("<Q")
        if of == STRING:
            return self._strings(count)
        if of == ARRAY:
            return [self._value(of) for _ in range(count)]
        form = f"<{count}{NUMBERS[of][1]}"
        values = unpack_from(form, self._content, self._at)
        self._at += Struct(form).size
        return list(values)
