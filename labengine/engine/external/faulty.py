"""Stores that fail on purpose, each in one way: for tests, and to watch an engine get over it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING

from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError
from labengine.engine.external.around import Around
from labengine.engine.external.sizes import readable_blocks

if TYPE_CHECKING:
    from torch import Tensor


class Faulty(Around):
    """A store that fails the first `times` times (None: every time), and then does as the inner one."""

    fault = "does what it should"

    def __init__(self, inner: Connector, times: int | None = None) -> None:
        super().__init__(inner)
        self.times = times
        self.num_faults = 0

    def describe(self) -> str:
        """Return the inner one's line, and what is wrong with this one."""
        return f"{super().describe()}; {self.fault}"

    def _fails_now(self) -> bool:
        fails = self.times is None or self.num_faults < self.times
        self.num_faults += fails
        return fails


class RaisesOnLoad(Faulty):
    """Loads nothing: raises LoadError for all blocks, or any other `error` that is given."""

    fault = "raises on load"

    def __init__(self, inner: Connector, times: int | None = None, error: Exception | None = None) -> None:
        super().__init__(inner, times)
        self.error = error

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if self._fails_now():
            raise self.error or LoadError(
                loads, f"could not load {readable_blocks(len(loads))}: the store fails on purpose"
            )
        super()._load(loads, kv)


class ComesBackShort(Faulty):
    """Loads all but the last block, and says so too late: what did come is in the pool already."""

    fault = "comes back one block short"

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if not self._fails_now():
            return super()._load(loads, kv)
        super()._load(loads[:-1], kv)
        raise LoadError(loads[-1:], f"{len(loads) - 1} of {len(loads)} blocks came")


class FlipsBits(Faulty):
    """Flips the lowest bit of every tensor it loads, and says nothing. Simulated models have no bits to flip."""

    fault = "flips bits on load"

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        super()._load(loads, _Flipping(kv) if self._fails_now() else kv)


class Hangs(Faulty):
    """Begins to load and does not go on until `release`. Under `Threaded`, or the engine hangs with it."""

    fault = "hangs on load"

    def __init__(self, inner: Connector, times: int | None = None) -> None:
        super().__init__(inner, times)
        self._released = Event()

    def release(self) -> None:
        """Let all loads go on, now and later."""
        self._released.set()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if self._fails_now():
            self._released.wait()
        super()._load(loads, kv)


class FailsOnSave(Faulty):
    """Saves nothing, as a full disk would."""

    fault = "fails on save"

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Nothing is stored; it is noted."""
        if not self._fails_now():
            return super().save_kv(saves, kv)
        self.note(f"could not save {readable_blocks(len(saves))}: the store fails on purpose")
        return ()


class _Flipping:
    """The pool, with a bit flipped in whatever is written to it."""

    def __init__(self, kv: KVAccess) -> None:
        self._kv = kv

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        return self._kv.read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        self._kv.write_block(group, block_id, kv and {name: _with_a_bit_flipped(tensor) for name, tensor in kv.items()})


def _with_a_bit_flipped(tensor: Tensor) -> Tensor:
    import torch

    flipped = tensor.clone()
    flipped.view(-1)[:1].view(torch.uint8)[0] ^= 1
    return flipped
