"""Several stores on one folder at once: threads, processes, and both at the cap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from checkout import child_environment
from engine.external.pools import FINGERPRINT, TensorPool, chain, held, saved, transfer
from engine.external.tussle import tussle
from labengine.engine.external import DiskStore
from waiting import PATIENCE

Reopen = Callable[..., DiskStore]

TUSSLE = """
import sys
from engine.external.tussle import tussle
tussle(sys.argv[1], seed=int(sys.argv[2]), max_bytes=int(sys.argv[3]), num_operations=100)
"""


def test_two_stores_may_write_the_same_block(disk: DiskStore, reopened: Reopen) -> None:
    other = reopened()
    pool = saved(disk, [1])
    assert other.save_kv(chain(1), pool) == tuple(chain(1))  # it did not know
    before = pool.bits(transfer(1))
    for store in (disk, other):
        store.start_load_kv([transfer(1, block_id=9)], pool)
        assert pool.bits(transfer(9)) == before
    other.forget(chain(1))
    disk.forget(chain(1))
    assert disk.failures == other.failures == []


def test_evicting_what_another_store_evicted_is_no_failure(disk: DiskStore, reopened: Reopen) -> None:
    pool = saved(disk, [1, 2, 3])
    cap = disk.num_bytes
    first, second = reopened(max_bytes=cap), reopened(max_bytes=cap)
    saved(first, [4], pool)
    saved(second, [5], pool)
    assert (first.failures, second.failures) == ([], [])
    assert held(reopened(), range(9)) == [2, 3, 4, 5]  # second made room by removing what was gone already


def test_threads_on_stores_of_one_folder(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            tussle(tmp_path, seed=seed, max_bytes=20_000, num_operations=80)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_processes_on_one_folder(tmp_path: Path) -> None:
    env = child_environment(OMP_NUM_THREADS="1")
    runs = [
        subprocess.Popen([sys.executable, "-c", TUSSLE, str(tmp_path), str(seed), "20000"], env=env)
        for seed in range(2)
    ]
    assert [run.wait(timeout=PATIENCE) for run in runs] == [0, 0]
    store = DiskStore(tmp_path)
    store.bind(FINGERPRINT)
    assert list(tmp_path.rglob("*.aside")) == []
    store.start_load_kv(chain(*held(store, range(32))), TensorPool())
