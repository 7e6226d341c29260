"""The imports of a source tree, read with ast: importing module, imported module, line, and whether at import time."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OURS = ("labengine", "labengine_widgets")


def rules_of(text: str, number: int = 0) -> dict[str, str]:
    """Return the rows of a docstring's table as {first column: the rest}; number: which of its tables."""
    rows = text.split("----\n")[1 + number].split("\n\n")[0].splitlines()
    return dict(row.split(maxsplit=1) for row in rows)


@dataclass(frozen=True)
class Import:
    """One module imported by another; lazy inside a function or under TYPE_CHECKING."""

    source: str
    target: str
    line: int
    is_lazy: bool

    @property
    def is_ours(self) -> bool:
        return self.target.partition(".")[0] in OURS

    @property
    def is_third_party(self) -> bool:
        return not self.is_ours and self.target.partition(".")[0] not in sys.stdlib_module_names

    def __str__(self) -> str:
        return f"{self.source}, line {self.line}, imports {self.target}"


class SourceTree:
    """Packages on disk: `roots` maps a package's name to its folder."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self.modules: dict[str, Path] = {}
        for package, root in roots.items():
            for path in sorted((root / package).rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                self.modules[".".join(parts).removesuffix(".__init__")] = path

    def imports(self) -> list[Import]:
        """Every import of every module, in file order."""
        return self._imports

    @cached_property
    def _imports(self) -> list[Import]:
        names = set(self.modules)
        return [
            imported
            for module, path in self.modules.items()
            for imported in imports_of(module, path.read_text(encoding="utf-8"), names, path.name == "__init__.py")
        ]


def imports_of(module: str, code: str, modules: set[str], is_package: bool = False) -> list[Import]:
    """The imports in `code`; `from package import name` counts as `package.name` where that is one of `modules`."""
    return [
        Import(module, target, node.lineno, is_lazy)
        for node, is_lazy in _statements(ast.parse(code), False)
        for target in _targets(node, module if is_package else module.rpartition(".")[0], modules)
    ]


def _statements(node: ast.AST, is_lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_lazy
        else:
            yield from _statements(child, is_lazy or _defers(child))


def _defers(node: ast.AST) -> bool:
    """Return whether the code below this node does not run on import. (An else of TYPE_CHECKING counts as below it.)"""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _targets(node: ast.Import | ast.ImportFrom, package: str, modules: set[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, *filter(None, [node.module])])
    submodules = [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in modules]
    return [*submodules, *([base] if len(submodules) < len(node.names) else [])]


def path_to(packages: set[str], module: str, imports: list[Import]) -> list[str]:
    """A shortest way from `module` to one of `packages` through imports that run on import; empty if there is none."""
    graph = _at_import_time(imports)
    paths, seen = [[module]], {module}
    for path in paths:
        for target in sorted(graph.get(path[-1], set()) - seen):
            if target.partition(".")[0] in packages:
                return [*path, target]
            seen.add(target)
            paths.append([*path, target])
    return []


def cycles(imports: list[Import]) -> list[list[str]]:
    """Sets of modules that import each other, directly or through others of the set, sorted.

    All imports count: inside functions and under TYPE_CHECKING, too.
    """
    targets: dict[str, set[str]] = {}
    for imported in imports:
        targets.setdefault(imported.source, set()).add(imported.target)
    reached = {module: _reached(module, targets) for module in targets}
    circles = {tuple(sorted(m for m in reached[module] if module in reached.get(m, ()))) for module in targets}
    return sorted([*circle] for circle in circles if circle)


def _reached(module: str, targets: dict[str, set[str]]) -> set[str]:
    """The modules to which imports lead from a module; itself only where they come back to it."""
    found: set[str] = set()
    following = [module]
    while following:
        new = targets.get(following.pop(), set()) - found
        found |= new
        following += new
    return found


def _at_import_time(imports: list[Import]) -> dict[str, set[str]]:
    """Each module's targets, without the lazy ones."""
    graph: dict[str, set[str]] = {}
    for imported in imports:
        if not imported.is_lazy:
            graph.setdefault(imported.source, set()).add(imported.target)
    return graph
