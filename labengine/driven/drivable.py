"""The engines that can be driven: what they can do, and where to find them. A driver file adds another engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from labengine.config import ConfigError, shown
from labengine.system.regular_file import read_regular


@dataclass(frozen=True)
class Drivable:
    """One engine.

    operations: its calls, in the words of driver.py. editions: those that its states can be compared with, the one that
    equals it first; empty if its release tells. python, folder: environment variables that name its interpreter, and
    its folder if it is not installed there. options: what its requests have besides a prompt and max_tokens, by
    calls.WORDS. shares_process: several engines can live in one process. has_events: its driver sends the
    tap's events; without them, they are inferred from its states. takes_drafts: it speculates with the guesses that
    it is told. package: what is imported from its folder instead of the installed one. imports: the modules that a
    driver file imports, one of which is in its folder.
    """

    operations: tuple[str, ...]
    editions: tuple[str, ...] = ()
    python: str = ""
    folder: str = ""
    options: tuple[str, ...] = ()
    shares_process: bool = False
    has_events: bool = False
    takes_drafts: bool = False
    package: str = ""
    imports: frozenset[str] = frozenset()


ENGINES: Mapping[str, Drivable] = MappingProxyType(
    {
        "vllm": Drivable(
            ("add", "step", "abort", "reset"),
            python="LABENGINE_VLLM_PYTHON",
            options=("salt", "priority", "arrival", "adapter", "images", "unread"),
            takes_drafts=True,
            package="vllm",
            shares_process=True,
            has_events=True,
        ),
        "nano-vllm": Drivable(("add", "step"), ("nano-vllm", "nano-vllm+243"), folder="LABENGINE_NANO_VLLM"),
        "mini-sglang": Drivable(
            ("add", "step", "abort"),
            ("mini-sglang", "mini-sglang+142"),
            "LABENGINE_SGLANG_PYTHON",
            "LABENGINE_MINI_SGLANG",
        ),
        "sglang": Drivable(("add", "step", "abort"), ("sglang",), "LABENGINE_SGLANG_PYTHON", "LABENGINE_SGLANG"),
    }
)


def drivable(engine: str) -> Drivable:
    """Return an engine by its name, or that of a driver file. Raises ConfigError."""
    if is_driver_file(engine):
        return _of_file(engine)
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, or a driver file (.py), got {shown(engine)}")
    return ENGINES[engine]


def refuse_folder(engine: str, folder: str | None) -> None:
    """Raise ConfigError for a folder without the engine's package: Python would import another one instead."""
    known = drivable(engine)
    if folder is None:
        return
    if known.package and not Path(folder, known.package, "__init__.py").is_file():
        raise ConfigError(f"{folder} has no {known.package}/__init__.py: name the folder that contains {known.package}")
    modules = [Path(folder, name) for name in known.imports]
    if is_driver_file(engine) and not any(one.is_dir() or one.with_suffix(".py").is_file() for one in modules):
        raise ConfigError(f"{folder} has no module that {engine} imports: name the folder that contains the engine")


def is_driver_file(engine: object) -> bool:
    """Return True for the path of a driver file, which is given instead of a name."""
    return isinstance(engine, str) and engine.endswith(".py")


SUPPORTS = ("abort", "reset", "salt", "priority")
"""What an engine need not have, in the words of a driver file."""


def _of_file(path: str) -> Drivable:
    """Return what the engine of a driver file can do. The file is read here, and executed in the engine's process."""
    try:
        return _of_text(read_regular(path).decode())
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"the driver file {path} cannot be used: {error}") from None


@lru_cache(maxsize=8)
def _of_text(text: str) -> Drivable:
    """Return what a driver file says in SUPPORTS. Raises ValueError if it is no driver file."""
    tree = ast.parse(text)
    values = {
        target.id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for name in ("VERSION", "CORE", "SUPPORTS"):
        if name not in values:
            raise ValueError(f"it assigns no {name}; see docs/add-a-driver.md")
    supports = ast.literal_eval(values["SUPPORTS"])
    if not isinstance(supports, tuple):
        raise ValueError(f'SUPPORTS is {shown(supports)}: make it a tuple, such as ("abort",)')
    for word in supports:
        if word not in SUPPORTS:
            raise ValueError(f"SUPPORTS may have {', '.join(SUPPORTS)}, got {shown(word)}")
    operations = [word for word in ("abort", "reset") if word in supports]
    options = tuple(word for word in SUPPORTS if word in {*supports} - {*operations})
    return Drivable(("add", "step", *operations), options=options, imports=frozenset(_imports(tree)))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the modules and packages that a file imports, without what is inside them."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and one.module:
            yield one.module.partition(".")[0]


def refuse_edition(engine: str, edition: str) -> None:
    """Raise ConfigError for an edition that an engine cannot be compared with."""
    if edition not in (known := drivable(engine).editions):
        alone = "no edition is that of a driver file" if is_driver_file(engine) else "vLLM's release tells its edition"
        reason = f"{engine} is compared with {' or '.join(known)}" if known else alone
        raise ConfigError(f"{reason}: omit edition {shown(edition)}")
