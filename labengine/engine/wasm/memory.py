"""The kernels in WebAssembly and their memory, passed to Python by the page (widgets/live_page/kernels.ts)."""

from __future__ import annotations

from typing import Protocol

from labengine.config import ConfigError
from labengine.engine.native.layout import layout_numbers


class Copied(Protocol):
    """Bytes in JavaScript's memory."""

    def to_bytes(self) -> bytes:
        """Return a copy of the bytes."""
        ...


class Exports(Protocol):
    """Functions of wasm/csrc/page.c. Addresses above 2 GiB come back as negative numbers."""

    def take_memory(self, num_bytes: int) -> int:
        """Return the address of new memory, aligned to a cache line; 0 if none is left."""
        ...

    def give_memory(self, at: int) -> None:
        """Free memory."""
        ...

    def packed_bytes(self, n: int, k: int) -> int:
        """Return the size of a packed matrix [n, k] of bf16."""
        ...

    def pack_rows(self, rows: int, packed: int, n: int, k: int, is_gated: int) -> None:
        """Pack rows of bf16 for multiplication."""
        ...

    def expand_q4_1(self, source: int, to: int, rows: int, k: int, heads: int) -> None:
        """Write a quantized matrix as bf16; heads > 0: rows from pairs to halves."""
        ...

    def expand_q8_0(self, source: int, to: int, rows: int, k: int, heads: int) -> None:
        """Write a quantized matrix as bf16; heads > 0: rows from pairs to halves."""
        ...

    def round_floats(self, source: int, to: int, count: int) -> None:
        """Round floats to bf16, and write them as floats."""
        ...

    def layout_numbers(self) -> int:
        """Return the address of the layout of ops and steps, int64 each."""
        ...

    def num_layout_numbers(self) -> int:
        """Return the count of layout_numbers."""
        ...

    def scratch_needed(self, ops: int, num_ops: int, step: int) -> int:
        """Return the number of bytes that step.scratch needs."""
        ...

    def run_step(self, ops: int, num_ops: int, step: int) -> None:
        """Run a program."""
        ...

    def draw_token(self, logits: int, size: int, temperature: float, top_k: int, top_p: float, target: float) -> int:
        """Return the token drawn by a uniform number; -1 without memory. top_k 0 and top_p 1 cut nothing."""
        ...


class Kernels(Protocol):
    """The module and access to its memory."""

    exports: Exports

    def read(self, at: int, num_bytes: int) -> Copied:
        """Copy bytes out of its memory."""
        ...

    def write(self, at: int, content: bytes) -> None:
        """Copy bytes into its memory."""
        ...


class Memory:
    """The kernels' memory. An address is a Python integer from 1."""

    def __init__(self, kernels: Kernels) -> None:
        """Raises ConfigError for kernels built from other sources than this package."""
        self._kernels = kernels
        self.exports = kernels.exports
        if self._layout() != layout_numbers():
            raise ConfigError("this page's kernels and Python have different versions: rebuild the site")

    def take(self, num_bytes: int) -> int:
        """Return the address of new memory. Raises ConfigError if the page has none left."""
        at = self.exports.take_memory(max(1, num_bytes)) & 0xFFFFFFFF
        if at == 0:
            raise ConfigError(
                f"this page has less than {num_bytes / 2**20:,.0f} MiB of memory left: close other labs, or lower "
                "num_blocks"
            )
        return at

    def give(self, at: int) -> None:
        """Free memory from `take`."""
        self.exports.give_memory(at)

    def read(self, at: int, num_bytes: int) -> bytes:
        """Return a copy of bytes."""
        return self._kernels.read(at, num_bytes).to_bytes()

    def write(self, at: int, content: bytes) -> None:
        """Write bytes."""
        self._kernels.write(at, content)

    def keep(self, content: bytes) -> int:
        """Return the address of new memory with this content."""
        at = self.take(len(content))
        self.write(at, content)
        return at

    def _layout(self) -> list[int]:
        exports = self.exports
        content = self.read(exports.layout_numbers(), 8 * exports.num_layout_numbers())
        return memoryview(content).cast("q").tolist()
