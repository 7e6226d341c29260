"""Kernels without WebAssembly: memory that is handed out and read, and no computation."""

from __future__ import annotations

from array import array
from itertools import count
from typing import Any

from labengine.engine.native.layout import layout_numbers

LAYOUT_AT = 64


class FakeBytes:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def to_bytes(self) -> bytes:
        return self._content


class FakeKernels:
    """A million bytes from address 64 on. taken: the sizes of what was not given back, by address."""

    def __init__(self, num_bytes: int = 1_000_000) -> None:
        self.exports: Any = self
        self.memory = bytearray(num_bytes)
        self.taken: dict[int, int] = {}
        self.steps = count(1)
        numbers = array("q", layout_numbers()).tobytes()
        self.memory[LAYOUT_AT : LAYOUT_AT + len(numbers)] = numbers
        self._next = LAYOUT_AT + len(numbers)

    def read(self, at: int, num_bytes: int) -> FakeBytes:
        assert at + num_bytes <= len(self.memory)
        return FakeBytes(bytes(self.memory[at : at + num_bytes]))

    def write(self, at: int, content: bytes) -> None:
        assert any(begin <= at and at + len(content) <= begin + size for begin, size in self.taken.items())
        self.memory[at : at + len(content)] = content

    def take_memory(self, num_bytes: int) -> int:
        at = -(-self._next // 64) * 64
        if at + num_bytes > len(self.memory):
            return 0
        self._next, self.taken[at] = at + num_bytes, num_bytes
        return at

    def give_memory(self, at: int) -> None:
        del self.taken[at]

    def layout_numbers(self) -> int:
        return LAYOUT_AT

    def num_layout_numbers(self) -> int:
        return len(layout_numbers())

    def scratch_needed(self, ops: int, num_ops: int, step: int) -> int:
        return 128 * next(self.steps)

    def run_step(self, ops: int, num_ops: int, step: int) -> None:
        """Compute nothing."""
