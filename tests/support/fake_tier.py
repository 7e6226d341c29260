"""An external tier in a dict, which fails where and as often as a test asks it to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from labengine.core.block import Key
from labengine.core.connector import BlockKV, BlockTransfer, Connector, KVAccess, LoadError, LocalHit
from labengine.core.request import Request


class TierDown(Exception):
    """Raised by the tier where a contract lets no error be expected."""


@dataclass(frozen=True)
class Luck:
    """How likely it is, each time, that ...

    fails: a load fails, all of it or a part. hangs: a late load never arrives. loses: a block is not saved.
    raises: a call of one of these methods raises TierDown.
    """

    fails: float = 0.0
    hangs: float = 0.0
    loses: float = 0.0
    raises: float = 0.0
    methods: tuple[str, ...] = ("has", "update_state_after_alloc", "start_load_kv", "get_finished", "save_kv")


@dataclass
class Load:
    """A late load on its way; None: it never arrives."""

    transfers: list[BlockTransfer]
    content: list[BlockKV | None]
    arrives_at: int | None
    failed: list[BlockTransfer] = field(default_factory=list)


class FakeTier(Connector):
    """Keeps what is saved. delay None: a load is done at once; n: it arrives when it is asked for the n-th time."""

    def __init__(self, luck: Luck | None = None, seed: int = 0, delay: int | None = None) -> None:
        super().__init__()
        self.loads_are_async = delay is not None
        self.blocks: dict[Key, BlockKV | None] = {}
        self.met: Counter[str] = Counter()
        """What happened so far, and how often."""
        self.on_their_way: dict[int, Load] = {}
        self._luck, self._rng, self._delay = luck or Luck(), Random(seed), delay or 0
        self._clock = self._num_kept = 0

    @property
    def hanging(self) -> list[int]:
        """Requests whose load will never arrive."""
        return [request_id for request_id, load in self.on_their_way.items() if load.arrives_at is None]

    def has(self, group: int, block_hash: bytes) -> bool:
        """Whether it was saved, and not forgotten."""
        self._maybe_raise("has")
        return (group, block_hash) in self.blocks

    def update_state_after_alloc(
        self, request: Request, transfers: Sequence[BlockTransfer], hits: Sequence[LocalHit] = ()
    ) -> Sequence[BlockTransfer]:
        """As every connector, or TierDown before or after."""
        self._maybe_raise("update_state_after_alloc")
        loads = super().update_state_after_alloc(request, transfers, hits)
        self._maybe_raise("update_state_after_alloc")
        return loads

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Now, or later."""
        self._maybe_raise("start_load_kv")
        failed = self._failing(loads)
        if self.loads_are_async:
            self._start(loads, failed)
            return
        self._settle({transfer.request_id for transfer in loads})
        if failed:
            self.met["failed load"] += 1
            self.met["short load"] += len(failed) < len(loads)
            raise LoadError(failed, f"{len(failed)} of {len(loads)} blocks are unreadable")
        for transfer in loads:
            kv.write_block(transfer.group, transfer.block_id, self.blocks[transfer.key])
        self.met["load"] += 1

    def get_finished(self, kv: KVAccess) -> tuple[set[int], set[int]]:
        """The loads whose time has come."""
        self._maybe_raise("get_finished")
        self._clock += 1
        finished = {i: load for i, load in self.on_their_way.items() if load.arrives_at is not None}
        finished = {i: load for i, load in finished.items() if load.arrives_at <= self._clock}  # type: ignore[operator]
        failed = {i for i, load in finished.items() if load.failed}
        self._settle(set(finished))
        for load in finished.values():
            self._finish(load, kv)
        for request_id in finished:  # last: whatever raises before this, the loads are told the next time
            del self.on_their_way[request_id]
        return set(finished) - failed, failed

    def cancel(self, request_id: int) -> None:
        """Nothing of it will be written."""
        super().cancel(request_id)
        if self.on_their_way.pop(request_id, None) is not None:
            self.met["cancelled load"] += 1

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """All that are new, less those that get lost."""
        self._maybe_raise("save_kv")
        kept = [t for t in saves if t.key not in self.blocks and self._rng.random() >= self._luck.loses]
        for transfer in kept:
            self.blocks[transfer.key] = kv.read_block(transfer.group, transfer.block_id)
        self.met["save"] += bool(kept)
        self._num_kept += len(kept)
        return tuple(kept)

    def forget(self, transfers: Sequence[BlockTransfer]) -> None:
        """Drop these."""
        for transfer in transfers:
            if transfer.key in self.blocks:
                self.log.note_dropped(transfer.key)
                del self.blocks[transfer.key]

    def num_kept(self) -> int:
        """Blocks saved so far: nobody else puts any there."""
        return self._num_kept

    def describe(self) -> str:
        """How much it holds."""
        return f"fake tier: {len(self.blocks)} blocks"

    def _start(self, loads: Sequence[BlockTransfer], failed: list[BlockTransfer]) -> None:
        for request_id in dict.fromkeys(transfer.request_id for transfer in loads):
            own = [t for t in loads if t.request_id == request_id]
            hangs = self._rng.random() < self._luck.hangs
            arrives_at = None if hangs else self._clock + self._delay
            content = [self.blocks[t.key] for t in own]
            self.on_their_way[request_id] = Load(own, content, arrives_at, [t for t in own if t in failed])
            self.met["hanging load"] += hangs

    def _finish(self, load: Load, kv: KVAccess) -> None:
        if load.failed:
            self.forget(load.failed)
            self.note(f"{len(load.failed)} of {len(load.transfers)} blocks did not arrive")
            self.met["failed load"] += 1
            self.met["short load"] += len(load.failed) < len(load.transfers)
            return
        for transfer, content in zip(load.transfers, load.content, strict=True):
            kv.write_block(transfer.group, transfer.block_id, content)
        self.met["load"] += 1

    def _failing(self, loads: Sequence[BlockTransfer]) -> list[BlockTransfer]:
        """Those of the blocks that have become unreadable."""
        if self._rng.random() >= self._luck.fails:
            return []
        return self._rng.sample(loads, self._rng.randint(1, len(loads)))

    def _maybe_raise(self, method: str) -> None:
        if method in self._luck.methods and self._rng.random() < self._luck.raises:
            self.met[f"{method} raised"] += 1
            raise TierDown(method)
