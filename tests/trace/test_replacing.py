"""Atomic writes over existing files: a special file stays, a link too, and so does the mode."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from labengine.lab import Lab
from labengine.record.files.file_access import replace_file
from labengine.record.files.parsing import TraceError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pipe_stays_a_pipe_and_is_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TraceError, match="pipe cannot be written: it is a pipe"):
        replace_file(pipe, b"x")
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_a_socket_and_a_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name may not be long
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(TraceError, match="it is a socket"):
            replace_file("s", b"x")
    with pytest.raises(TraceError, match="it is a folder"):
        replace_file(tmp_path, b"x")


def test_a_link_to_a_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with pytest.raises(TraceError, match="link cannot be written: it is a pipe"):
        replace_file(link, b"x")
    assert link.is_symlink() and pipe.is_fifo()


def test_a_link_to_a_file_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"before")
    target.chmod(0o640)
    link.symlink_to(target)
    replace_file(link, b"after")
    assert link.is_symlink() and not target.is_symlink() and target.read_bytes() == b"after" and mode(target) == 0o640


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_mode(tmp_path: Path, permissions: int) -> None:
    target = tmp_path / "target"
    target.touch()
    target.chmod(permissions)
    replace_file(target, b"after")
    assert mode(target) == permissions and target.read_bytes() == b"after"


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "new", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == 0o640


@pytest.mark.parametrize("write", ["save", "export_html"])
def test_neither_save_nor_export_replaces_a_pipe(tmp_path: Path, write: str) -> None:
    pipe = tmp_path / "pipe.html"
    os.mkfifo(pipe)
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.generate([[1, 2, 3]], max_tokens=2)
        with pytest.raises(TraceError, match="it is a pipe"):
            getattr(lab, write)(pipe)
    assert pipe.is_fifo()
