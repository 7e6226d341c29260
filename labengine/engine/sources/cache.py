"""The user's cache of prepared models. A directory appears only when complete, and is trusted from then on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.sources.catalogue import SourceError, WheelModel

FORMAT = "bf16-1"
"""Version of the conversion, part of the directory's name."""


def cache_root() -> Path:
    """Return LABENGINE_CACHE, else XDG_CACHE_HOME/labengine, else ~/.cache/labengine."""
    if path := os.environ.get("LABENGINE_CACHE"):
        return Path(path).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "labengine"


def cached_dir(model: WheelModel) -> Path:
    """Return the directory of a prepared model, which may not exist yet."""
    return cache_root() / f"{model.name}-{FORMAT}-{model.sha256[:12]}"


def prepared_dir(model: WheelModel) -> Path:
    """Return the model's directory; prepare it if it does not exist. Raises SourceError."""
    root, target = cache_root(), cached_dir(model)
    if not target.exists():
        try:
            root.mkdir(parents=True, exist_ok=True)
            with _lock(root, model.name):
                if not target.exists():
                    _prepare(model, target)
        except (OSError, NotImplementedError) as error:
            hint = "set LABENGINE_CACHE to a directory with enough space"
            raise SourceError(f"cannot prepare {model.name!r} in {root}: {error}; {hint}") from error
    return target


def _prepare(model: WheelModel, target: Path) -> None:
    """Build in a temporary directory, then rename.

    The lock is held, so existing temporary directories are abandoned.
    """
    from labengine.engine.sources.build import build_model_dir

    prefix = f".preparing-{model.name}-"
    for orphan in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(orphan, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=target.parent) as work:
        finished = build_model_dir(model, Path(work))
        finished.rename(target)


@contextmanager
def _lock(root: Path, name: str) -> Iterator[None]:
    """Let one process at a time prepare a model; the others wait, and then find it."""
    from filelock import FileLock, Timeout

    lock = FileLock(root / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"labengine: waiting for another process that is preparing {name}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
