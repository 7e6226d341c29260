from __future__ import annotations

import os
from pathlib import Path

import pytest

from labengine.engine.sources import manifest
from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.manifest import MANIFEST, verify, write_manifest


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights" * 100)
    (tmp_path / "config.json").write_text("{}")
    write_manifest(tmp_path, source="a test")
    return tmp_path


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose content was read."""
    names: list[str] = []
    original = manifest.sha256_of
    monkeypatch.setattr(manifest, "sha256_of", lambda path: (names.append(path.name), original(path))[1])
    return names


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))


def test_a_whole_directory_is_verified_without_reading_it(directory: Path, digested: list[str]) -> None:
    verify(directory)
    assert digested == []


def test_a_touched_file_is_read_once(directory: Path, digested: list[str]) -> None:
    touch(directory / "config.json")
    verify(directory)
    verify(directory)
    assert digested == ["config.json"]
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", MANIFEST, "model.safetensors"]


def test_an_unwritable_manifest_costs_time_only(
    directory: Path, digested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(manifest, "_write", refuse)
    touch(directory / "config.json")
    verify(directory)
    verify(directory)
    assert digested == ["config.json"] * 2


def test_changed_content_of_the_same_size(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(b"Weights" + b"weights" * 99)
    touch(path)
    for _ in range(2):  # the failed check does not become the new truth
        with pytest.raises(SourceError, match=r"is damaged: model.safetensors has changed. Delete the directory"):
            verify(directory)


def test_another_size_or_none(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(b"weights")
    with pytest.raises(SourceError, match=r"model.safetensors has 7 bytes and should have 700"):
        verify(directory)
    path.unlink()
    with pytest.raises(SourceError, match=r"model.safetensors is missing"):
        verify(directory)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"files": 3}'])
def test_a_manifest_that_says_nothing(directory: Path, content: str | None) -> None:
    path = directory / MANIFEST
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(SourceError, match=f"{MANIFEST} is missing or unreadable"):
        verify(directory)
