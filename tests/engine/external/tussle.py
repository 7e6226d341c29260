"""One of several users of a disk store's folder: whatever the others do, what it loads is right."""

from __future__ import annotations

import random
from os import PathLike

from engine.external.pools import FINGERPRINT, TensorPool, chain, transfer
from labengine.core.connector import LoadError
from labengine.engine.external import DiskStore

CONTENTS = range(24)
SPARE_BLOCK = 30


def tussle(path: str | PathLike[str], *, seed: int, max_bytes: int, num_operations: int) -> None:
    """Save, load, forget and reopen at random. Every user's content of a name is the same."""
    rng, pool = random.Random(seed), TensorPool()
    for name in CONTENTS:
        pool.fill(chain(name), seed=name)
    expected = {name: pool.bits(transfer(name)) for name in CONTENTS}
    store = DiskStore(path, max_bytes=max_bytes)
    store.bind(FINGERPRINT)
    for _ in range(num_operations):
        name = rng.choice(CONTENTS)
        match rng.randrange(20):
            case 0:
                store.forget(chain(name))
            case 1:
                store.close()
                store.bind(FINGERPRINT)
            case n if n < 10:
                store.save_kv(chain(name), pool)
            case _ if store.has(*transfer(name).key):
                _load(store, name, pool, expected[name])
    assert store.failures == [], store.failures


def _load(store: DiskStore, name: int, pool: TensorPool, expected: list[tuple[str, bytes]]) -> None:
    load = transfer(name, block_id=SPARE_BLOCK)
    try:
        store.start_load_kv([load], pool)
    except LoadError as error:
        assert "its file no longer exists" in str(error), error
    else:
        assert pool.bits(load) == expected
