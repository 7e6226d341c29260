"""A prepared directory is read completely once a process; a change in it since is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.digesting import aged, files_read, next_tick
from labengine.engine.sources.cache import MANIFEST, verify, write_manifest
from labengine.engine.sources.catalogue import SourceError

__all__ = ["aged", "files_read"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights" * 100)
    (tmp_path / "config.json").write_text("{}")
    write_manifest(tmp_path, source="a test")
    return tmp_path


def test_every_file_is_read_once(directory: Path, files_read: list[str], aged: None) -> None:
    verify(directory)
    verify(directory)
    assert sorted(files_read) == ["config.json", "model.safetensors"]


def test_work_is_done_meanwhile_where_files_are_read(directory: Path, aged: None) -> None:
    calls: list[str] = []
    verify(directory, meanwhile=lambda: calls.append("while they are read"))
    verify(directory, meanwhile=lambda: calls.append("although they are known"))
    assert calls == ["while they are read"]


def test_a_touched_file_is_read_again_and_alone(directory: Path, files_read: list[str], aged: None) -> None:
    verify(directory)
    files_read.clear()
    next_tick(directory / "config.json")
    (directory / "config.json").touch()
    verify(directory)
    assert files_read == ["config.json"]


@pytest.mark.parametrize("was_verified", [True, False])
def test_one_flipped_bit_of_the_same_size_and_mtime(directory: Path, was_verified: bool, aged: None) -> None:
    if was_verified:
        verify(directory)
    path = directory / "model.safetensors"
    stat = path.stat()
    next_tick(path)
    content = bytearray(path.read_bytes())
    content[350] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for _ in range(2):  # the failed check does not become the new truth
        with pytest.raises(SourceError, match=r"is damaged: model.safetensors has changed.* Delete the directory"):
            verify(directory)


def test_a_directory_may_move(directory: Path, tmp_path: Path) -> None:
    verify(Path(shutil.copytree(directory, tmp_path / "elsewhere")))


def test_a_manifest_of_before_digests_were_always_asked(directory: Path) -> None:
    """Those of earlier versions say a time of change, too."""
    path = directory / MANIFEST
    path.write_text(path.read_text().replace('"size"', '"mtime_ns": 5, "size"'))
    verify(directory)


def test_another_size_or_none_or_a_file_too_many(directory: Path) -> None:
    (directory / ".DS_Store").touch()
    verify(directory)
    (directory / "more.safetensors").touch()
    with pytest.raises(SourceError, match=r"more.safetensors is not part of it"):
        verify(directory)
    path = directory / "model.safetensors"
    path.write_bytes(b"weights")
    with pytest.raises(SourceError, match=r"model.safetensors has 7 bytes and should have 700"):
        verify(directory)
    path.unlink()
    with pytest.raises(SourceError, match=r"model.safetensors is missing"):
        verify(directory)


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "{}", '{"files": 3}', '{"files": {"a": {"size": "x", "sha256": 1}}}']
)
def test_a_manifest_that_says_nothing(directory: Path, content: str | None) -> None:
    path = directory / MANIFEST
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(SourceError, match=f"{MANIFEST} is missing or unreadable"):
        verify(directory)
