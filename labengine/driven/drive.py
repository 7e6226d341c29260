"""drive(): a lab on another engine's own scheduler and KV cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from labengine.config import ConfigError, checked_path
from labengine.driven.drivable import drivable, is_driver_file
from labengine.driven.driven import Driven, Patch
from labengine.lab import Lab


def drive(
    engine: str | PathLike[str],
    python: str | PathLike[str] | None = None,
    path: str | PathLike[str] | None = None,
    *,
    patches: Sequence[Patch] = (),
    **settings: Any,
) -> Lab:
    """Return a lab whose scheduler and KV cache are another engine's own, without a model.

    engine: "vllm", "nano-vllm", "mini-sglang" or "sglang", or the path of a driver file (.py) for another one; see
    docs/add-a-driver.md. python: the interpreter of its environment, by default the one named by an environment
    variable (LABENGINE_VLLM_PYTHON ...) or, except for vLLM, labengine's own.
    path: the folder of an engine that is not installed there: a clone, on any branch. patches: methods to replace.
    settings: the keywords of Lab that do not concern a model. Raises ConfigError if the engine cannot be driven there.
    """
    return Lab(replace(driven(engine, python, path), patches=tuple(patches)), **settings)


def driven(engine: str | PathLike[str], python: str | PathLike[str] | None, path: str | PathLike[str] | None) -> Driven:
    """Return the engine to drive, with the defaults of the environment. Raises ConfigError if they name none."""
    engine = fspath(engine) if isinstance(engine, PathLike) else engine
    known = drivable(engine)
    interpreter = os.environ.get(known.python) if python is None else fspath(checked_path("python", python))
    if is_driver_file(engine):
        engine = os.path.abspath(engine)
    if interpreter is None and engine != "vllm":
        interpreter = sys.executable
    if interpreter is None:
        raise ConfigError(f"name the interpreter of {engine}'s environment: python=..., or {known.python}")
    folder = os.environ.get(known.folder) if path is None else fspath(checked_path("path", path))
    return Driven(engine, interpreter, folder)
