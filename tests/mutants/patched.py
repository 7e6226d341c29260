"""labengine with one line of its source changed, in a separate process."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mutants.table import Mutant

MAX_BYTES = 8 << 30


def in_a_fork(mutant: Mutant | None, work: Callable[[], str]) -> str | None:
    """Return what the work returns in a fork of this process where the mutant is installed; None if the fork died."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, resource.RLIM_INFINITY))
        if mutant is not None:
            install(mutant)
        os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    return None if os.waitpid(child, 0)[1] else said


class _PatchedLoader(SourceFileLoader):
    """Compiles the changed text without caching it."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        times = text.count(self._mutant.old)
        assert times == 1, f"{self._mutant.name}: its text is {times} times in {self.path}"
        return compile(text.replace(self._mutant.old, self._mutant.new), self.path, "exec", dont_inherit=True)


class _PatchingFinder(MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = "labengine." + mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _PatchedLoader(fullname, spec.origin, self._mutant)
        return spec


def install(mutant: Mutant) -> None:
    """Have the mutant imported instead of the original. Raises AssertionError if that is already imported."""
    finder = _PatchingFinder(mutant)
    assert finder._name not in sys.modules, f"{finder._name} was imported before it could be changed"
    sys.meta_path.insert(0, finder)
