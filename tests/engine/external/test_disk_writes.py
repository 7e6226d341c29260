"""Writes are atomic, at any death of the writer; and what becomes of a disk that takes no more."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from checkout import child_environment
from engine.external.pools import FINGERPRINT, chain, held, saved, transfer
from labengine.engine.external import DiskStore
from labengine.system.atomic_write import write_atomically
from waiting import PATIENCE

Reopen = Callable[..., DiskStore]

SAVE_AND_DIE = """
import os, sys
from pathlib import Path
from engine.external.pools import FINGERPRINT, chain, saved
from labengine.engine.external import DiskStore

store = DiskStore(sys.argv[1])
store.bind(FINGERPRINT)
pool = saved(store, [1])
Path.replace = lambda *ignored, **also_ignored: os._exit(9)
store.save_kv(chain(2), pool)
"""


def die_in_a_save(path: Path) -> None:
    """Have another process save block 1, and end without any clean-up within the save of block 2."""
    env = child_environment(OMP_NUM_THREADS="1")
    command = [sys.executable, "-c", SAVE_AND_DIE, str(path)]
    run = subprocess.run(command, env=env, timeout=PATIENCE)
    assert run.returncode == 9


def asides(path: Path) -> list[Path]:
    return sorted(path.rglob("*.aside"))


def test_a_writer_that_dies_leaves_nothing_that_counts(tmp_path: Path) -> None:
    die_in_a_save(tmp_path)
    (left,) = asides(tmp_path)
    os.utime(left, (1_000_000, 1_000_000))
    store = DiskStore(tmp_path)
    store.bind(FINGERPRINT)
    assert held(store, range(9)) == [1]
    assert asides(tmp_path) == []
    pool = saved(store, [2])
    store.start_load_kv(chain(1, 2), pool)


@pytest.mark.parametrize("target", ["os.fsync", "os.utime", "pathlib.Path.replace"])
def test_a_writer_that_is_interrupted_cleans_up(disk: DiskStore, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    pool = saved(disk, [1])

    def fail(*ignored: object, **also_ignored: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, fail)
        with pytest.raises(KeyboardInterrupt):
            disk.save_kv(chain(2), pool)
    assert asides(disk.path) == []
    assert held(disk, range(9)) == [1]
    assert disk.save_kv(chain(2), pool) == tuple(chain(2))


def test_an_old_file_stays_when_its_replacement_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "block.safetensors"
    write_atomically(path, b"old", mtime_ns=1)

    def fail(*ignored: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_atomically(path, b"new", mtime_ns=2)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_living_writers_file_is_not_taken_away(disk: DiskStore, reopened: Reopen) -> None:
    saved(disk, [1])
    folder = next(disk.path.rglob("group-0"))
    new, old = folder / ".ab.77-00112233.aside", folder / ".cd.77-00112233.aside"
    for aside in (new, old):
        aside.write_bytes(b"half a blo")
    os.utime(old, (1_000_000, 1_000_000))
    reopened()
    assert asides(disk.path) == [new]


def test_a_disk_that_takes_no_more_is_noted(disk: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = saved(disk, [1])

    def fail(*ignored: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        assert disk.save_kv(chain(2, 3), pool) == ()
    assert len(disk.failures) == 2
    assert "of group 0 was not saved" in disk.failures[0] and os.strerror(errno.ENOSPC) in disk.failures[0]
    assert (asides(disk.path), held(disk, range(9))) == ([], [1])
    disk.start_load_kv(chain(1), pool)
    assert disk.save_kv(chain(2), pool) == tuple(chain(2))


@pytest.fixture
def may_only_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on every change of a folder or a time is refused. (Permissions themselves do not bind root.)"""
    really_open = Path.open

    def refuse(*ignored: object, **also_ignored: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def open_to_read(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        return really_open(path, mode, *args, **kwargs) if mode in ("r", "rb") else refuse()  # type: ignore[return-value]

    def begin() -> None:
        monkeypatch.setattr(Path, "open", open_to_read)
        for target in ("pathlib.Path.unlink", "pathlib.Path.replace", "os.utime"):
            monkeypatch.setattr(target, refuse)

    return begin


def test_a_folder_that_may_only_be_read_loads_and_notes(
    disk: DiskStore, reopened: Reopen, may_only_read: Callable[[], None]
) -> None:
    pool = saved(disk, [1, 2])
    may_only_read()
    again = reopened()
    before = pool.bits(transfer(1))
    again.start_load_kv([transfer(1, block_id=9)], pool)
    assert pool.bits(transfer(9)) == before
    assert again.save_kv(chain(3), pool) == ()
    again.forget(chain(2))
    assert held(again, range(9)) == [1]
    assert "of group 0 was not saved: [Errno 13] Permission denied" in again.failures[0]
    assert "could not be removed: Permission denied" in again.failures[1]
