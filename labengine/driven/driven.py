"""Driven: which engine a lab drives, in which interpreter, and with which of its methods replaced."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import NoReturn

from labengine.config import ConfigError, shown
from labengine.core.collaborator import Absent
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.driven.drivable import Drivable, drivable, is_driver_file, refuse_folder

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

OPERATIONS = {"abort": "abort", "reset": "reset of its cache"}
"""Operations that an engine may lack, in words."""

NOT_DONE = {
    "beams": "a beam search lies in front of a scheduler",
    "branch": "its requests have no forks; add the tokens so far as a prompt",
    "hand_over": "without a model there is no KV to move",
    "fill_external": "its connectors are not driven",
    "kv": "without a model there is no KV to look at",
    "the X-ray": "without a model there is no attention to look at",
    "judge": "without a model there is no KV to compare; labengine.compare finds the first different decision",
    "%lab find": "it searches labengine's parts; `labengine find-engine` searches another engine",
}
"""What a lab does with labengine's own engine alone, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A method of a driven engine, replaced by a text; see Lab.rerun.

    method: "Class.method", such as "BlockPool.free_blocks". text: Python that defines a function of this name, and all
    that it needs besides the names of the method's module. Raises ConfigError for other values, or invalid Python.
    """

    method: str
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.method, str) or not all(map(str.isidentifier, self.method.split("."))):
            raise ConfigError(f'a patch names a method, "BlockPool.free_blocks", got {shown(self.method)}')
        if not isinstance(self.text, str):
            raise ConfigError(f"a patch's text must be Python in a string, got {shown(self.text)}")
        object.__setattr__(self, "text", dedent(self.text))
        try:
            ast.parse(f"\n{self.text}")
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            raise ConfigError(f"line {line}: {getattr(error, 'msg', error)}") from None

    @property
    def file(self) -> str:
        """The text's name in tracebacks. Its first line there is line 2, as in a cell, below %%lab patch."""
        return f"<your {self.method}>"


@dataclass(frozen=True)
class Driven:
    """Another engine's scheduler and KV cache, run without a model in its own interpreter; a lab's `model`.

    name: "vllm", "nano-vllm", "mini-sglang", "sglang", or the path of a driver file. python: the interpreter of its
    environment. path: the folder of an engine that is not installed there. patches: methods replaced before anything
    else happens. Raises ConfigError for an unknown engine.
    """

    name: str
    python: str
    path: str | None = None
    patches: tuple[Patch, ...] = ()

    def __post_init__(self) -> None:
        refuse_folder(self.name, self.path)
        if not isinstance(self.python, str):
            raise ConfigError(f"python must be the path of an interpreter, got {shown(self.python)}")

    @property
    def engine(self) -> Drivable:
        """What the engine can do."""
        return drivable(self.name)

    @property
    def edition(self) -> str:
        """The edition of its kind; the name of a driver file, which has none."""
        if is_driver_file(self.name):
            return Path(self.name).stem
        return self.engine.editions[0] if self.engine.editions else self.name

    def parts(self, policy: str) -> Parts:
        """Return parts that tell which requests the engine can run: those of its edition.

        For a driver file, they are labengine's without what needs its own engine.
        """
        if is_driver_file(self.name):
            if policy == "priority" and "priority" not in self.engine.options:
                raise ConfigError(f"{self.edition} has no priorities: omit policy='priority'")
            own = Parts(name=self.edition, forks=Absent, beams=Absent, hand_over=Absent)
            return own.overriding(edition_named("labengine", policy))
        return edition_named(self.edition, policy)

    def refuse(self, settings: Mapping[str, object]) -> None:
        """Raise ConfigError for the first of these settings of a lab, which another engine does not have."""
        for name in settings:
            if name in NOT_DRIVEN:
                raise ConfigError(f"a driven engine takes no {name}: {NOT_DRIVEN[name]}")
        if "speculation" in settings and not self.engine.takes_drafts:
            raise ConfigError(f"{self.name} takes no speculation: its scheduler has no drafts")

    def refuse_operation(self, operation: str) -> None:
        """Raise ConfigError if the engine lacks an operation, in the words of driver.py."""
        if operation not in self.engine.operations:
            raise ConfigError(f"{self.edition} has no {OPERATIONS[operation]}")

    def refuse_call(self, call: str) -> NoReturn:
        """Raise ConfigError for a key of NOT_DONE."""
        raise ConfigError(f"{call} is not for driven engines, such as {self.name}: {NOT_DONE[call]}")

    def patched(self, patch: Patch) -> Driven:
        """Return the same engine with another method replaced, or with a replacement in place of an earlier one."""
        others = tuple(one for one in self.patches if one.method != patch.method)
        return replace(self, patches=(*others, patch))

    def __str__(self) -> str:
        return f"{self.name}{self.whence}"

    @property
    def whence(self) -> str:
        """Folder and interpreter, to follow the engine's name."""
        return f"{f' in {self.path}' if self.path else ''}, driven with {self.python}"
