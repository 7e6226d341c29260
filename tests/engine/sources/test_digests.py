"""Digests are remembered by path, inode, size, mtime and ctime; a file that cannot be trusted is read completely."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.digesting import aged, files_read, next_tick
from labengine.engine.sources import cache, digests
from labengine.engine.sources.cache import RememberedDigests
from labengine.engine.sources.digests import digests_of, hash_files
from waiting import PATIENCE

__all__ = ["aged", "files_read"]
MEMORY = RememberedDigests()


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where digests are remembered."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "digests.json"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights" * 1000)
    return path


def digest(path: Path) -> str:
    return digests_of([path], "test", MEMORY)[path]


def in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_KNOWN", {})


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


@pytest.mark.parametrize("other_process", [False, True])
def test_an_unchanged_file_is_read_once(
    weights: Path, files_read: list[str], aged: None, other_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(weights)
    if other_process:
        in_a_new_process(monkeypatch)
    assert digest(weights) == first
    assert files_read == [weights.name]


@pytest.mark.parametrize("other_process", [False, True])
@pytest.mark.parametrize("change", [Path.touch, edit_in_place, replace_by_copy, lengthen, move])
def test_a_changed_file_is_read_anew(
    weights: Path,
    files_read: list[str],
    aged: None,
    change: Callable[[Path], None],
    other_process: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digest(weights)
    next_tick(weights)
    change(weights)
    if other_process:
        in_a_new_process(monkeypatch)
    assert digest(weights) == sha256(weights.read_bytes()).hexdigest()
    assert len(files_read) == 2


def test_a_file_that_has_just_changed_is_not_remembered(
    weights: Path, store: Path, files_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change may come within the same tick of the file system's clock."""
    monkeypatch.setattr(digests, "SETTLED_NS", int(PATIENCE * 1e9))
    digest(weights)
    digest(weights)
    assert len(files_read) == 2 and not store.exists()


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    weights: Path, store: Path, aged: None, monkeypatch: pytest.MonkeyPatch
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
    assert not store.exists()
    assert digest(weights) == sha256(weights.read_bytes()).hexdigest()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "not JSON": lambda _: b"\x00\xff",
    "another JSON": lambda _: b'{"files": 3, "sha256": ""}',
    "deep": lambda _: b"[" * 100_000,
    "a wrong digest": lambda content: content.replace(json.loads(content)["sha256"].encode()[:8], b"00000000"),
    "one digit of a file's digest": lambda content: content.replace(
        sha256(b"weights" * 1000).hexdigest().encode(), b"0" * 64
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_memory_is_ignored_and_made_anew(
    weights: Path, store: Path, files_read: list[str], aged: None, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(weights)
    intact = store.read_bytes()
    store.write_bytes(DAMAGES[damage](intact))
    in_a_new_process(monkeypatch)
    assert digest(weights) == first and len(files_read) == 2
    assert store.read_bytes() == intact


def test_a_cache_that_cannot_be_written_costs_time_only(
    weights: Path, tmp_path: Path, aged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "file" / "cache"))
    assert digest(weights) == sha256(b"weights" * 1000).hexdigest()


def test_where_ctime_says_nothing_nothing_is_remembered(
    weights: Path, store: Path, aged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "IS_KEPT", False)
    digest(weights)
    assert not store.exists()


def test_the_memory_keeps_the_newest(tmp_path: Path, store: Path, aged: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    for number in range(5):
        path = tmp_path / f"{number}.safetensors"
        path.write_text(str(number))
        digest(path)
    assert [Path(path).name for path in MEMORY.known()] == [f"{number}.safetensors" for number in (2, 3, 4)]
    assert [path.name for path in store.parent.iterdir() if path.name.startswith(".digests.json")] == []


WRITER = """
import sys
from pathlib import Path
from labengine.engine.sources import cache, digests
from labengine.engine.sources.cache import RememberedDigests
digests.SETTLED_NS = -10**9
for path in map(Path, sys.argv[1:]):
    digests.digests_of([path], "test", RememberedDigests())
"""


def test_processes_that_remember_at_the_same_time_lose_nothing(tmp_path: Path, project_root: Path) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(60)]
    for path in paths:
        path.write_text(path.name)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, *map(str, paths[start::3])], cwd=project_root)
        for start in range(3)
    ]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    assert {path: entry[1] for path, entry in MEMORY.known().items()} == {
        str(path.resolve()): sha256(path.name.encode()).hexdigest() for path in paths
    }


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
