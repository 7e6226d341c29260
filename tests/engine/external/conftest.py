"""Both stores, bound, so that what holds for each is tried on each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.external.pools import FINGERPRINT
from labengine.engine.external import DiskStore, HostStore, KVStore


@pytest.fixture(params=["host", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> KVStore:
    store: KVStore = HostStore() if request.param == "host" else DiskStore(tmp_path / "kv")
    store.bind(FINGERPRINT)
    return store


@pytest.fixture
def disk(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "kv")
    store.bind(FINGERPRINT)
    return store


@pytest.fixture
def reopened(disk: DiskStore) -> Callable[..., DiskStore]:
    """Another store on the folder of `disk`, as a new process would open it."""

    def open_again(max_bytes: int | None = None, fingerprint: str = FINGERPRINT) -> DiskStore:
        store = DiskStore(disk.path, max_bytes=max_bytes)
        store.bind(fingerprint)
        return store

    return open_again
