"""What setup prints before it fetches anything, and that every direct dependency is pinned."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from install.pins import CONSTRAINTS, pins
from install.wheels import write_wheel
from tools import install

EXTRAS = ("models", "lab", "test", "dev", "site", "lite")


def direct_dependencies(root: Path) -> list[Requirement]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [Requirement(line) for lines in (project["dependencies"], *map(optional.get, EXTRAS)) for line in lines]


def test_every_direct_dependency_is_pinned_to_a_version_it_allows() -> None:
    for requirement in direct_dependencies(CONSTRAINTS.parent):
        pinned = pins()[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(pin.version) for pin in pinned), requirement


def test_what_a_build_of_torch_brings_along_is_not_pinned() -> None:
    assert not [name for name in pins() if name.startswith(("nvidia-", "cuda-"))]


@pytest.mark.parametrize(("has_card", "brings"), [(False, "nvidia-cublas"), (True, "nvidia-cublas"), (False, "numpy")])
def test_the_cuda_build_is_announced_where_there_is_no_card(has_card: bool, brings: str, tmp_path: Path) -> None:
    write_wheel(tmp_path, "torch", "1.0", [brings])
    write_wheel(tmp_path, brings, "1.0", [])
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", f"--target={tmp_path / 'there'}", "torch"]
    command += ["--no-config", "--no-index", f"--find-links={tmp_path}"]
    plan = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    said = install.notice(plan, has_card)
    assert ("make setup TORCH=cpu" in said) == (brings == "nvidia-cublas" and not has_card)


@pytest.mark.parametrize(
    ("listing", "status", "has_card"), [("GPU 0: H100", 0, True), ("No devices were found", 0, False), ("", 9, False)]
)
def test_a_card_is_what_the_driver_lists(
    listing: str, status: int, has_card: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{listing}'\nexit {status}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.has_nvidia_card() == has_card
