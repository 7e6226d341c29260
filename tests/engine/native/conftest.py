"""An empty cache for kernels, and the library that this machine's compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labengine.engine.native import compile as compiling
from labengine.engine.native import library as kernels


@pytest.fixture(scope="session")
def image() -> bytes:
    """The kernels as they are compiled here."""
    kernels.library()
    file = compiling.cached_file()
    return file.read_bytes() if file.is_file() else compiling.compiled_image(compiling.find_compilers())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty cache for kernels; this process has opened none, and the package brings none."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "INSTALLED", tmp_path / "package")
    kernels._opened.cache_clear()
    yield tmp_path / "cache" / "native"
    kernels._opened.cache_clear()


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which programs are $CC and cc; there are no others."""

    def choose(asked: str, second: str | None = None) -> None:
        monkeypatch.setenv("CC", asked)
        monkeypatch.setattr(compiling.shutil, "which", {asked: asked, "cc": second}.get)

    return choose
