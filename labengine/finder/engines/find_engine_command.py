"""`labengine find-engine`: a search on another engine, from the command line."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from labengine.config import ConfigError
from labengine.finder.engines.finding import EngineSearch
from labengine.finder.engines.search import find_in_engine

VARIABLE = "LABENGINE_VLLM_PYTHON"
"""Environment variable that names the interpreter of an environment with vLLM."""


def find_in_engine_command(options: Namespace) -> EngineSearch:
    """Search as the options say; write scripts of what is found. Raises ConfigError for options that do not fit."""
    python = options.python or (os.environ.get(VARIABLE) if options.engine == "vllm" else sys.executable)
    if not python:
        raise ConfigError(f"name the engine's interpreter: --python vllm/bin/python, or {VARIABLE}")
    found = find_in_engine(
        options.engine,
        python,
        seconds=options.seconds if options.hours is None else options.hours * 3600,
        seed=options.seed,
        max_findings=options.findings,
        patch=options.patch,
        checkout=options.checkout,
        with_connector=not options.no_connector,
        show=_show if sys.stderr.isatty() else lambda line: None,
    )
    if options.scripts is not None:
        _write_scripts(found, Path(options.scripts))
    return found


def _show(line: str) -> None:
    print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


def _write_scripts(found: EngineSearch, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
    for number, finding in enumerate(found.findings, 1):
        finding.save_script(folder / f"finding_{number}.py")
