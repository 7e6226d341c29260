"""Digests are remembered by path, inode, size, mtime and ctime; a file that cannot be trusted is read completely."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.digesting import aged, files_read, next_tick
from labengine.engine.sources import digests
from labengine.engine.sources.digests import digests_of, hash_files
from waiting import PATIENCE

__all__ = ["aged", "files_read"]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights" * 1000)
    return path


def digest(path: Path) -> str:
    return digests_of([path], "test")[path]


def edit_in_place(path: Path) -> None:
    """Another content of the same size, inode and mtime."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(b"W")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replace_by_copy(path: Path) -> None:
    """Another inode with the same content and mtime."""
    stat, content = path.stat(), path.read_bytes()
    path.with_suffix(".new").write_bytes(content)
    os.utime(path.with_suffix(".new"), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    path.with_suffix(".new").replace(path)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"!")


def move(path: Path) -> None:
    """Another path to the same inode: its ctime changes too."""
    path.rename(path.with_suffix(".moved"))
    path.with_suffix(".moved").rename(path)


def test_a_digest_is_that_of_the_full_content(weights: Path) -> None:
    assert digest(weights) == sha256(b"weights" * 1000).hexdigest()


def test_an_unchanged_file_is_read_once(weights: Path, files_read: list[str], aged: None) -> None:
    first = digest(weights)
    assert digest(weights) == first
    assert files_read == [weights.name]


@pytest.mark.parametrize("change", [Path.touch, edit_in_place, replace_by_copy, lengthen, move])
def test_a_changed_file_is_read_anew(
    weights: Path,
    files_read: list[str],
    aged: None,
    change: Callable[[Path], None],
) -> None:
    digest(weights)
    next_tick(weights)
    change(weights)
    assert digest(weights) == sha256(weights.read_bytes()).hexdigest()
    assert len(files_read) == 2


def test_a_file_that_has_just_changed_is_not_remembered(
    weights: Path, files_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change may come within the same tick of the file system's clock."""
    monkeypatch.setattr(digests, "SETTLED_NS", int(PATIENCE * 1e9))
    digest(weights)
    digest(weights)
    assert len(files_read) == 2


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    weights: Path, aged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = digests.sha256_of

    def changing(path: Path, *arguments: object) -> str:
        found = original(path, *arguments)  # type: ignore[arg-type]
        next_tick(path)
        edit_in_place(path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(digests, "sha256_of", changing)
        digest(weights)
    assert digest(weights) == sha256(weights.read_bytes()).hexdigest()


def test_a_bar_is_shown_where_it_takes_long(
    weights: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_files([weights], "quick one")
    assert capfd.readouterr() == ("", "")
    original, looks = digests.wait, iter(range(3))

    def not_done_at_first(futures: list[Any], timeout: float) -> Any:
        return SimpleNamespace(not_done=True) if next(looks, None) is not None else original(futures, timeout)

    monkeypatch.setattr(digests, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(digests, "wait", not_done_at_first)
    hash_files([weights], "slow one")
    assert "slow one" in capfd.readouterr().err


def test_an_interrupt_ends_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/zero never ends: only the interrupt does."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hash_files([Path("/dev/zero")] * 2, "endless", meanwhile=interrupt)
    monkeypatch.setattr(digests, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hash_files([Path("/dev/zero")] * 2, "endless")


def test_threads_read_meanwhile(tmp_path: Path) -> None:
    """The reader waits for what is written meanwhile."""
    os.mkfifo(tmp_path / "pipe")
    found = hash_files([tmp_path / "pipe"], "a pipe", meanwhile=lambda: (tmp_path / "pipe").write_bytes(b"written"))
    assert found == {tmp_path / "pipe": sha256(b"written").hexdigest()}
