"""Searches from the command line: for a class in a file, or another engine; findings are written to files."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from labengine.config import ConfigError
from labengine.core.editions import EDITIONS
from labengine.driven.drivable import drivable
from labengine.finder.as_notebook import checked_name
from labengine.finder.counterexample import Counterexample
from labengine.finder.engines.finding import EngineSearch
from labengine.finder.engines.search import find_in_engine
from labengine.finder.find import find
from labengine.finder.report import SearchReport
from labengine.isolation.endings import UserInterrupt, interrupts_named, named
from labengine.record.files.file_access import replace_file


def find_from_file(
    parts: str, against: str, seconds: float, seed: int, test_file: str | None = None, notebook: str | None = None
) -> Counterexample | SearchReport:
    """Search with the object named by "file.py:Name", or with an edition; write a finding to the requested files.

    The file is executed. Raises ConfigError for a missing file or name.
    """
    if notebook is not None:
        checked_name(notebook)
    found = find(object_named(parts), against, seconds=seconds, seed=seed, show_progress=sys.stderr.isatty())
    if test_file is not None and isinstance(found, Counterexample):
        replace_file(test_file, found.to_test().encode())
    if notebook is not None and isinstance(found, Counterexample):
        found.to_notebook(notebook)
    return found


def find_in_engine_command(options: Namespace) -> EngineSearch:
    """Search with the options; write a script per finding. Raises ConfigError for invalid options."""
    variable = drivable(options.engine).python
    python = options.python or os.environ.get(variable) or (None if options.engine == "vllm" else sys.executable)
    if not python:
        raise ConfigError(f"name the engine's Python with --python vllm/bin/python, or in {variable}")
    found = find_in_engine(
        options.engine,
        python,
        seconds=options.seconds if options.hours is None else options.hours * 3600,
        seed=options.seed,
        max_findings=options.findings,
        patch=options.patch,
        checkout=options.checkout,
        edition=options.edition,
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
        raise ConfigError(f"{folder} cannot be created: {error.strerror}") from None
    for number, finding in enumerate(found.findings, 1):
        finding.save_script(folder / f"finding_{number}.py")


def exit_code_of(found: Counterexample | SearchReport | EngineSearch) -> int:
    """Return the exit code of a search: 0 without a finding, 1 with one, 2 for a search cut short without one."""
    if isinstance(found, Counterexample) or found:
        return 1
    return 2 if found.is_cut else 0


def object_named(parts: str) -> object:
    """Return an edition's name unchanged, else the object named by "FILE.py:NAME"; the file is executed.

    Raises ConfigError for a missing file or name.
    """
    if parts in EDITIONS:
        return parts
    file, separator, name = parts.rpartition(":")
    if not separator or not name.isidentifier():
        raise ConfigError(f"{parts!r} does not name a class: use FILE.py:CLASS, or one of {', '.join(EDITIONS)}")
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"no file {file}")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # its classes name it as their module, and their source is found through it
    try:
        with interrupts_named():
            spec.loader.exec_module(module)
    except (Exception, UserInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(f"{file} ends the process when it runs: {named(error)}") from error
    module.__spec__ = None  # other processes cannot import it, so a generated test contains the class's source
    if not hasattr(module, name):
        raise ConfigError(f"{file} does not define {name}")
    return getattr(module, name)
