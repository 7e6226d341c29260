"""Random operations on a store, beside a dict that does the same the simple way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.external.pools import FINGERPRINT, TensorPool, held, transfer
from labengine.core.connector import BlockTransfer, LoadError
from labengine.engine.external import Delayed, DiskStore, HostStore, KVStore, Threaded
from waiting import PATIENCE

NAMES = range(12)
GROUPS = (0, 1)
SCRATCH = range(16, 32)
Open = Callable[[int], KVStore]
Bits = list[tuple[str, bytes]]


class Model:
    """Keys in order of use, with sizes, under one cap of bytes."""

    def __init__(self, sizes: dict[int, int], max_bytes: int) -> None:
        self.sizes, self.max_bytes = sizes, max_bytes
        self.content: dict[tuple[int, bytes], Bits] = {}

    def save(self, saves: list[BlockTransfer], pool: TensorPool) -> tuple[BlockTransfer, ...]:
        written = set()
        for save in reversed(saves):
            if save.key in self.content:
                self.use(save)
                continue
            while self.num_bytes + self.sizes[save.group] > self.max_bytes:
                del self.content[next(iter(self.content))]
            self.content[save.key] = pool.bits(save)
            written.add(save)
        return tuple(save for save in saves if save in written and save.key in self.content)

    def load(self, loads: list[BlockTransfer]) -> None:
        for load in reversed(loads):
            self.use(load)

    def use(self, transfer: BlockTransfer) -> None:
        self.content[transfer.key] = self.content.pop(transfer.key)

    @property
    def num_bytes(self) -> int:
        return sum(self.sizes[group] for group, _ in self.content)


def random_transfers(rng: random.Random, blocks: range) -> list[BlockTransfer]:
    names = rng.sample(NAMES, rng.randint(1, 4))
    group = rng.choice(GROUPS)
    return [
        transfer(name, block_id=block, group=group) for name, block in zip(names, rng.sample(blocks, 4), strict=False)
    ]


def content_of(rng: random.Random, transfers: list[BlockTransfer], pool: TensorPool) -> None:
    """A key names a content: the same one whenever it is computed."""
    for each in transfers:
        pool.fill([each], seed=each.index * 2 + each.group)


def sizes_in(make: Open) -> dict[int, int]:
    """What one block of each group takes in such a store."""
    sizes = {}
    for group in GROUPS:
        store = make(2**40)
        before = _bytes(store)
        store.save_kv([transfer(1, group=group)], TensorPool())
        sizes[group] = _bytes(store) - before
        store.forget([transfer(1, group=group)])
    return sizes


def _bytes(store: KVStore) -> int:
    assert isinstance(store, HostStore | DiskStore)
    return store.num_bytes


@pytest.fixture(params=["host", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    def open_store(max_bytes: int) -> KVStore:
        host = request.param == "host"
        store = HostStore(max_bytes=max_bytes) if host else DiskStore(tmp_path / "kv", max_bytes=max_bytes)
        store.bind(FINGERPRINT)
        return store

    return open_store


@pytest.mark.parametrize("seed", range(2))
def test_a_store_does_what_a_dict_does(make: Open, seed: int) -> None:
    rng = random.Random(seed)
    sizes = sizes_in(make)
    model = Model(sizes, max_bytes=rng.randint(5 * sizes[0], 12 * sizes[0]))
    store, pool = make(model.max_bytes), TensorPool()
    for _ in range(120):
        match rng.randrange(8):
            case 0:
                forgotten = random_transfers(rng, SCRATCH)
                store.forget(forgotten)
                for each in forgotten:
                    model.content.pop(each.key, None)
            case 1 if isinstance(store, DiskStore):
                store.close()
                store = make(model.max_bytes)
            case 1 | 2 | 3 | 4:
                saves = random_transfers(rng, SCRATCH)
                content_of(rng, saves, pool)
                expected = model.save(saves, pool)
                assert store.save_kv(saves, pool) == expected
            case _:
                _load(store, random_transfers(rng, SCRATCH), pool, model)
        _compare(store, model)
    assert store.failures == []


def _load(store: KVStore, loads: list[BlockTransfer], pool: TensorPool, model: Model) -> None:
    missing = tuple(load for load in loads if load.key not in model.content)
    pool.written.clear()
    try:
        store.start_load_kv(loads, pool)
    except LoadError as error:
        assert (error.failed, pool.written) == (missing, [])
        return
    assert missing == ()
    model.load(loads)
    assert [pool.bits(load) for load in loads] == [model.content[load.key] for load in loads]


def _compare(store: KVStore, model: Model) -> None:
    for group in GROUPS:
        assert held(store, NAMES, group) == [name for name in NAMES if transfer(name, group=group).key in model.content]
    assert _bytes(store) == model.num_bytes <= model.max_bytes


@pytest.mark.parametrize("threaded", [False, True])
def test_late_loads_write_what_was_saved_and_nothing_after_a_cancel(make: Open, threaded: bool) -> None:
    rng, pool = random.Random(0), TensorPool()
    store = make(12 * sizes_in(make)[0])
    late = Threaded(store) if threaded else Delayed(store, steps=2)
    under_way: dict[int, list[BlockTransfer]] = {}
    for request_id in range(150):
        match rng.randrange(4):
            case 0:
                saves = random_transfers(rng, SCRATCH[:4])
                content_of(rng, saves, pool)
                late.save_kv(saves, pool)
            case 1 if under_way:
                late.cancel(next(iter(under_way)))
                del under_way[next(iter(under_way))]
            case 2 if len(under_way) < 3:
                blocks = SCRATCH[4 + request_id % 3 * 4 :][:4]
                if all(load.block_id not in blocks for loads in under_way.values() for load in loads):
                    loads = [
                        transfer(each.index, block_id=each.block_id, group=each.group, request_id=request_id)
                        for each in random_transfers(rng, blocks)
                    ]
                    under_way[request_id] = loads
                    late.start_load_kv(loads, pool)
            case _:
                _poll(late, pool, under_way)
    while under_way:
        late.wait(PATIENCE)
        _poll(late, pool, under_way)


def _poll(late: Delayed | Threaded, pool: TensorPool, under_way: dict[int, list[BlockTransfer]]) -> None:
    pool.written.clear()
    arrived, failed = late.get_finished(pool)
    assert arrived | failed <= under_way.keys() and not arrived & failed
    assert sorted(pool.written) == sorted((t.group, t.block_id) for i in arrived for t in under_way[i])
    for request_id in arrived:
        for load in under_way[request_id]:
            expected = TensorPool()
            expected.fill([load], seed=load.index * 2 + load.group)
            assert pool.bits(load) == expected.bits(load)
    for request_id in arrived | failed:
        del under_way[request_id]
