"""Driven: which engine a lab drives, in which interpreter, and with which of its methods replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labengine.config import ConfigError, shown
from labengine.driven.drivable import Drivable, drivable

_NO_MODEL = "it runs without a model"
_ITS_OWN = "it decides by itself; replace one of its methods with %%lab patch"
NOT_DRIVEN = {
    "edition": _ITS_OWN,
    "parts": _ITS_OWN,
    "external": "its connectors are not driven",
    "overlap": "its steps are taken one by one",
    "runner": _NO_MODEL,
    "dtype": _NO_MODEL,
    "device": _NO_MODEL,
    "attention": _NO_MODEL,
    "cuda_graphs": _NO_MODEL,
}
"""Keywords of Lab that a driven engine does not have, and why."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A method of the engine, replaced by a text. method: "Class.method"; file: the text's name in tracebacks."""

    method: str
    text: str
    file: str


@dataclass(frozen=True)
class Driven:
    """Another engine's scheduler and KV cache, run without a model in its own interpreter; a lab's `model`.

    name: "vllm", "nano-vllm", "mini-sglang" or "sglang". python: the interpreter of its environment. path: the folder
    of an engine that is not installed there. patches: methods replaced before anything else happens.
    Raises ConfigError for an unknown engine.
    """

    name: str
    python: str
    path: str | None = None
    patches: tuple[Patch, ...] = ()

    def __post_init__(self) -> None:
        package = drivable(self.name).package
        if package and self.path is not None and not Path(self.path, package, "__init__.py").is_file():
            raise ConfigError(f"{self.path} has no {package}/__init__.py: path= is the folder that contains {package}")
        if not isinstance(self.python, str):
            raise ConfigError(f"python must be the path of an interpreter, got {shown(self.python)}")

    @property
    def engine(self) -> Drivable:
        """What the engine can do."""
        return drivable(self.name)

    @property
    def edition(self) -> str:
        """The edition of its kind, whose parts say what an engine of this kind can run."""
        return self.engine.editions[0] if self.engine.editions else self.name

    def refuse(self, settings: Mapping[str, object]) -> None:
        """Raise ConfigError for the first of these settings of a lab, which another engine does not have."""
        for name in settings:
            if name in NOT_DRIVEN:
                raise ConfigError(f"a driven engine takes no {name}: {NOT_DRIVEN[name]}")
        if "speculation" in settings and not self.engine.takes_drafts:
            raise ConfigError(f"{self.name} takes no speculation: its scheduler has no drafts")

    def patched(self, patch: Patch) -> Driven:
        """Return the same engine with another method replaced, or with a replacement in place of an earlier one."""
        others = tuple(one for one in self.patches if one.method != patch.method)
        return replace(self, patches=(*others, patch))

    def __str__(self) -> str:
        return f"{self.name}, driven with {self.python}"
