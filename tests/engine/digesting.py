"""Fixtures of tests on digests: which files were read completely, and files that count as old."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from time import sleep

import pytest

from labengine.engine.sources import digests


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose content was read to its end."""
    names: list[str] = []
    original = digests.sha256_of

    def noted(path: Path, *arguments: object) -> str:
        names.append(path.name)
        return original(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(digests, "sha256_of", noted)
    return names


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once; changes that have to be seen wait for next_tick."""
    monkeypatch.setattr(digests, "SETTLED_NS", -(10**9))


def next_tick(path: Path) -> None:
    """Wait until a change of the file would get another time: some milliseconds."""
    last = path.stat().st_ctime_ns
    with TemporaryFile(dir=path.parent) as probe:
        while os.fstat(probe.fileno()).st_ctime_ns <= last:
            sleep(0.001)
            probe.write(b"?")
            probe.flush()
