"""Stores that fail on purpose, each in one way: for tests, and to see how an engine recovers."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Lock
from typing import TYPE_CHECKING

from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError
from labengine.engine.external.late import ConnectorWrapper
from labengine.engine.external.store import readable_blocks

if TYPE_CHECKING:
    from torch import Tensor


class Faulty(ConnectorWrapper):
    """A store that fails the first `times` times (None: every time), and then forwards to the inner connector."""

    fault = "does what it should"

    def __init__(self, inner: Connector, times: int | None = None) -> None:
        super().__init__(inner)
        self.times = times
        self.num_faults = 0
        self._guard = Lock()

    def describe(self) -> str:
        """Return the inner connector's line, and this one's fault."""
        return f"{super().describe()}; {self.fault}"

    def _fails_now(self) -> bool:
        with self._guard:  # loads may run on several threads
            fails = self.times is None or self.num_faults < self.times
            self.num_faults += fails
        return fails


class RaisesOnLoad(Faulty):
    """Loads nothing: raises LoadError for all blocks, or the given `error`."""

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


class LoadsTooFew(Faulty):
    """Loads all but the last block, and raises LoadError after writing the others to the pool."""

    fault = "comes back one block short"

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if not self._fails_now():
            return super()._load(loads, kv)
        super()._load(loads[:-1], kv)
        raise LoadError(loads[-1:], f"{len(loads) - 1} of {len(loads)} blocks came")


class FlipsBits(Faulty):
    """Flips the lowest bit of every tensor that it loads, silently. Simulated models have no bits to flip."""

    fault = "flips bits on load"

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        super()._load(loads, _Flipping(kv) if self._fails_now() else kv)


class Hangs(Faulty):
    """Begins to load and continues only after `release`. Use it in `Threaded`, or the engine hangs too."""

    fault = "hangs on load"

    def __init__(self, inner: Connector, times: int | None = None) -> None:
        super().__init__(inner, times)
        self._released = Event()

    def release(self) -> None:
        """Let all present and later loads continue."""
        self._released.set()

    def _load(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        if self._fails_now():
            self._released.wait()
        super()._load(loads, kv)


class FailsOnSave(Faulty):
    """Saves nothing, as a full disk would."""

    fault = "fails on save"

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Store nothing, and note that."""
        if not self._fails_now():
            return super().save_kv(saves, kv)
        self.note(f"could not save {readable_blocks(len(saves))}: the store fails on purpose")
        return ()


class _Flipping:
    """The pool, with a bit flipped in every write."""

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
