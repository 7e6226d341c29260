"""labengine drive: a page that steps another engine's own scheduler, or a comparison of two engines for CI."""

from __future__ import annotations

import os.path
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from shutil import which
from threading import Event

from labengine.config import ConfigError, shown
from labengine.driven.drivable import drivable, is_driver_file
from labengine.driven.drive import drive, driven
from labengine.driven.driven import Driven
from labengine.driven.process import DrivenEngine
from labengine.finder.engines.search import find_in_engine
from labengine.finder.find_command import exit_code_of
from labengine.system.ending_signals import EndingSignals

SECONDS = 3600.0
"""Most seconds of a comparison; shrinking a difference may take half a minute more."""
NUM_WORKLOADS = 500

SETTINGS = ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "policy")

Say = Callable[[str], object]


def drive_command(options: Namespace, say: Say) -> int:
    """Serve a page, or with --against compare two engines; return the exit code.

    options: engine, python, path, SETTINGS, port, seconds, against, workloads, seed.
    """
    settings = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    if options.against is not None:
        if settings or options.seconds is not None:
            raise ConfigError("--against chooses pools and steps at random: omit settings and --seconds")
        return _compare(options, say)
    if options.workloads is not None:
        raise ConfigError("--workloads is for comparing two engines: add --against")
    with drive(options.engine, options.python, options.path, **settings) as lab, EndingSignals() as signals:
        from labengine.vllm.stream.page.server import PageServer  # anywidget: for a page only

        with PageServer([lab], options.port) as server:
            say(f"{lab.title}\n{server.address}")
            say("for a browser on this machine: anyone with the address can step it; Ctrl-C ends it")
            signals.wait(options.seconds, Event().wait)
    return 0


def _compare(options: Namespace, say: Say) -> int:
    """Play random workloads on two engines; return 0 if they do the same, 1 at a difference, 2 for fewer workloads."""
    one = driven(options.engine, options.python, options.path)
    num_workloads = NUM_WORKLOADS if options.workloads is None else options.workloads
    found = find_in_engine(
        one.name,
        one.python,
        checkout=one.path,
        against=_other(one, options.against),
        seconds=SECONDS,
        seed=options.seed,
        max_workloads=num_workloads,
    )
    say(str(found))
    if not found and found.num_workloads < num_workloads:
        return 2
    return exit_code_of(found)


def _other(one: Driven, against: str) -> DrivenEngine:
    """Return the engine to compare with: a second driver file, or the same engine in a folder or an interpreter."""
    if is_driver_file(one.name) and is_driver_file(against):
        if (drivable(against).operations, drivable(against).options) != (one.engine.operations, one.engine.options):
            raise ConfigError(
                f"{against} and {one.name} have different SUPPORTS: the same calls must be possible on both"
            )
        return DrivenEngine(os.path.abspath(against), one.python, None, one.path)
    if Path(against).is_dir():
        return DrivenEngine(one.name, one.python, None, against)
    if which(against) is None:
        also = ", or a second driver file" if is_driver_file(one.name) else ""
        raise ConfigError(f"--against must be an interpreter or a folder{also}, got {shown(against)}")
    return DrivenEngine(one.name, against, None, one.path)
