"""Copying the course's notebooks into one of the reader's folders."""

from __future__ import annotations

from pathlib import Path

import labengine
from labengine.config import ConfigError
from labengine.system.atomic_write import write_atomically
from labengine.system.regular_file import read_regular

_KINDS = (".ipynb", ".svg", ".png")
_MAX_NAMED = 3
"""Most file names in an error message."""


def copy_course(folder: Path) -> str:
    """Write the notebooks and their pictures into a folder, creating it if needed; return a sentence on the result.

    Raises ConfigError, before anything is written, if a file there differs: the reader's work is kept.
    """
    files = {path.relative_to(_source()): path.read_bytes() for path in course_files()}
    changed = [name for name in files if _holds_another(folder / name, files[name])]
    if changed:
        more = f" and {len(changed) - _MAX_NAMED} more" if len(changed) > _MAX_NAMED else ""
        named = ", ".join(str(name) for name in changed[:_MAX_NAMED])
        raise ConfigError(f"{folder} already has other files: {named}{more}. Name a new folder, or move them first")
    missing = [name for name in files if not (folder / name).exists()]
    try:
        for name in missing:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, files[name])
    except OSError as error:
        raise ConfigError(f"the notebooks cannot be written to {folder}: {error}") from None
    return _sentence(folder, missing, len(files))


def course_files() -> list[Path]:
    """Return the paths of the notebooks and their pictures, in course order."""
    return sorted(path for path in _source().rglob("*") if path.suffix in _KINDS and not _is_checkpoint(path))


def _is_checkpoint(path: Path) -> bool:
    return ".ipynb_checkpoints" in path.parts


def _source() -> Path:
    """Return the folder of the notebooks: beside the package in a checkout, inside it once it is installed."""
    package = Path(labengine.__file__).parent
    folder = next((at for at in (package / "course" / "notebooks", package.parent / "notebooks") if at.is_dir()), None)
    if folder is None:
        raise ConfigError("this installation has no notebooks: install labengine from its wheel, or use a checkout")
    return folder


def _holds_another(path: Path, content: bytes) -> bool:
    try:
        return read_regular(path) != content
    except (FileNotFoundError, NotADirectoryError):
        return path.is_symlink()  # a broken link
    except OSError:  # a folder or a pipe of that name, or no permission
        return True


def _sentence(folder: Path, written: list[Path], num_files: int) -> str:
    if not written:
        return f"{folder}: all {num_files} files of the course are already there"
    lines = [f"  {folder / name}" for name in written]
    kept = f" ({num_files - len(written)} were already there)" if len(written) < num_files else ""
    noun = "file" if len(written) == 1 else "files"
    return "\n".join([f"wrote {len(written)} {noun}{kept}:", *lines, f"to start: jupyter lab {folder}"])
