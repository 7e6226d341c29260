"""`make gpu-cache`: the archive, and the message without a suitable Python. It compiles nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools import gpu_cache


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one kernel, as Triton 3.6 leaves it, and a folder without any."""
    kernel, other = tmp_path / "cache" / "ABC", tmp_path / "cache" / "DEF"
    kernel.mkdir(parents=True)
    other.mkdir()
    (kernel / "add.cubin").write_bytes(b"\x7fELF")
    (kernel / "add.ttir").write_text("module {}")
    (kernel / "add.json").write_text('{"name": "add"}')
    children = {name: str(kernel / name) for name in ("add.cubin", "add.ttir", "add.json")}
    (kernel / "__grp__add.json").write_text(json.dumps({"child_paths": children}))
    (other / "cuda_utils.so").write_bytes(b"")
    return tmp_path / "cache"


def paths(folder: Path) -> list[str]:
    return [*json.loads((folder / "ABC" / "__grp__add.json").read_text())["child_paths"].values()]


def test_a_cache_is_packed_for_its_place(cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / ".gpu" / "cache.tar.xz"
    gpu_cache.pack(cache, archive)
    with tarfile.open(archive) as packed:
        assert {Path(name).name for name in packed.getnames()} == {
            "lab_triton_cache", "ABC", "add.cubin", "add.json", "__grp__add.json",
        }  # fmt: skip
        packed.extractall(tmp_path / "as packed", filter="data")
    there = gpu_cache.THERE / "ABC"
    assert paths(tmp_path / "as packed" / "lab_triton_cache") == [str(there / "add.cubin"), str(there / "add.json")]
    gpu_cache.unpack(archive, tmp_path / "here")
    assert all(Path(path).is_relative_to(tmp_path / "here") for path in paths(tmp_path / "here" / "lab_triton_cache"))
    assert all(Path(path).exists() for path in paths(tmp_path / "here" / "lab_triton_cache"))


def test_without_its_python_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPU_VENV", raising=False)
    monkeypatch.setenv("PYTHON312", str(tmp_path / "python3.12"))
    with pytest.raises(SystemExit, match=r"no Python 3\.12, the GPU machine's(.|\n)*PYTHON312=(.|\n)*triton 3\.6\.0"):
        gpu_cache.environment(tmp_path / "venv")


def test_an_environment_of_other_versions_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    monkeypatch.setenv("GPU_VENV", str(tmp_path / "venv"))
    with pytest.raises(SystemExit, match=r"Python, torch, triton, .* in 3\.12, 2\.11\.0, 3\.6\.0"):
        gpu_cache.environment(tmp_path / "unused")
