"""An empty cache for kernels, and the library that this machine's compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labengine.engine.native import compile as compiling
from labengine.engine.native import library as kernels
from labengine.engine.native.image import cached_images


@pytest.fixture(scope="session")
def image() -> bytes:
    """The kernels as they are compiled here."""
    kernels.library()
    compilers = compiling.find_compilers()
    kept = next(cached_images().images(compiling.image_name(compilers)), None)
    return kept or compiling.compiled_image(compilers)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an empty cache in which images will be kept; this process has opened none."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "_hung", {})
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
