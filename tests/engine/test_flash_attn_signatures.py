"""The stand-ins for flash-attn have the signatures of the published packages.

FA2's sources on PyPI hold FA3's too, which PyPI has no package of; flash-attn-4 is a wheel with neither's functions.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import fake_flash_attn

Signature = list[tuple[str, object]]
"""Names and defaults in order; REQUIRED for none."""
REQUIRED = "required"
SOURCES = {"FA2": "flash_attn/flash_attn_interface.py", "FA3": "hopper/flash_attn_interface.py"}
FAKES = {"FA2": fake_flash_attn.fa2, "FA3": fake_flash_attn.fa3}
CALLS = [("FA2", "flash_attn_with_kvcache"), ("FA2", "flash_attn_varlen_func"), ("FA3", "flash_attn_with_kvcache")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The newest release that the extra `gpu` may install. Nothing is compiled."""
    options = ["--no-build-isolation", "--no-binary", "flash-attn", "flash-attn>=2.8,<3"]
    return _extracted(_downloaded(tmp_path_factory.mktemp("flash_attn"), "*.tar.gz", *options))


def _downloaded(folder: Path, pattern: str, *options: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *options]
    environment = {**os.environ, "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = list(folder.glob(pattern))
    if not found:
        pytest.skip(f"{options[-1]} cannot be downloaded: {done.stderr[-300:]}")
    return found[0]


def _extracted(archive: Path) -> dict[str, str]:
    top = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as files:
        found = {name: files.extractfile(f"{top}/{path}") for name, path in SOURCES.items()}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def published(source: str, name: str) -> Signature:
    (function,) = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name]
    arguments = function.args
    assert not (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
    defaults = [ast.literal_eval(default) for default in arguments.defaults]
    missing = [REQUIRED] * (len(arguments.args) - len(defaults))
    return list(zip((argument.arg for argument in arguments.args), [*missing, *defaults], strict=True))


def signature_of(function: Callable[..., object]) -> Signature:
    return [
        (name, REQUIRED if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


@pytest.mark.sweep
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("generation", "name"), CALLS)
def test_a_fakes_signature_is_the_packages(generation: str, name: str, sources: dict[str, str]) -> None:
    assert signature_of(getattr(FAKES[generation](), name)) == published(sources[generation], name)
