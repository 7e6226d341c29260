"""The method that decides each kind of event: its class, source and reason, and the method that it overrides."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent
from types import FunctionType
from typing import Any

from labengine.check.watch import Watch
from labengine.core.connector import Connector
from labengine.core.part_methods import definers, is_custom
from labengine.core.parts import Parts
from labengine.core.seams import DECIDED_BY, owners, tier_class
from labengine.engine.engine import Engine
from labengine.engine.transfers import Transfers
from labengine.session.source_text import source_lines, tree_of


@dataclass(frozen=True, slots=True)
class Method:
    """One definition of a method (or of a class attribute), and the definition that it overrides."""

    seam: str
    """The part's name and the method's: MergePolicy.merge_target."""
    owner: type
    """The class whose definition is used."""
    source: str
    line: int
    """The source's first line in its file, from 1; 0 without a file."""
    reason: str
    """The first line of its docstring, or of the overridden one's."""
    base: Method | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "seam": self.seam,
            "class": self.owner.__qualname__,
            "module": self.owner.__module__,
            "line": self.line,
            "reason": self.reason,
            "source": self.source,
            "base": None if self.base is None else self.base._as_base(),
            "is_custom": is_custom(self.owner),
        }

    def _as_base(self) -> dict[str, Any]:
        return {"class": self.owner.__qualname__, "source": self.source, "reason": self.reason}


def method_of(owner: type, name: str, part: str) -> Method | None:
    """Return the definition of `name` that a class uses, and those that it overrides; None without one.

    part: the name of the part that the class plays, for the seam's name.
    """
    classes = definers(owner, name)
    return _method(classes, name, f"{part}.{name}") if classes else None


def _method(classes: list[type], name: str, seam: str) -> Method:
    owner, *others = classes
    base = _method(others[:1], name, seam) if others else None
    source, line = _source(owner, name)
    reason = _first_line(_docstring(owner, name))
    if not reason and base is not None:
        reason = f"{owner.__qualname__} overrides {base.owner.__qualname__}.{name} without giving a reason."
    return Method(seam, owner, source, line, reason, base)


def _first_line(text: str | None) -> str:
    """Return the first paragraph as one line, because a long reason may be wrapped."""
    paragraph = (text or "").strip().split("\n\n")[0]
    return " ".join(line.strip() for line in paragraph.splitlines())


def _source(owner: type, name: str) -> tuple[str, int]:
    value = vars(owner)[name]
    function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "func", None) or value)
    try:
        if isinstance(function, FunctionType):
            return _text_of(function)
        return _assignment(owner, name)
    except (OSError, TypeError, SyntaxError):
        return f"# Python has no source of {owner.__qualname__}.{name}: it was not defined in a file or cell.", 0


@lru_cache(maxsize=1024)
def _text_of(function: FunctionType) -> tuple[str, int]:
    """Return a function's text and first line. Cached: reading takes a millisecond, and a view names 40 seams."""
    lines, line = inspect.getsourcelines(function)
    return dedent("".join(lines)).rstrip(), line


def _assignment(owner: type, name: str) -> tuple[str, int]:
    """Return the lines of a class that set an attribute, with the class's first line above them."""
    lines, first = source_lines(owner)
    text = dedent("".join(lines))
    at, node = _assigned(text, name)
    assignment = text.splitlines()[node.lineno - 1 : _end_with_docstring(at, node)]
    return "\n".join([_head(text), *assignment]), first + node.lineno - 1


def _head(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("class "))


def _assigned(text: str, name: str) -> tuple[ast.ClassDef, ast.stmt]:
    body = tree_of(text).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return body, node
    raise OSError(f"the class's source does not set {name}")


def _end_with_docstring(body: ast.ClassDef, node: ast.stmt) -> int:
    end = _docstring_after(body, node)
    return int((end or node).end_lineno or node.lineno)


def _docstring_after(body: ast.ClassDef, node: ast.stmt) -> ast.Expr | None:
    following = body.body[body.body.index(node) + 1 :][:1]
    if following and isinstance(following[0], ast.Expr) and isinstance(following[0].value, ast.Constant):
        return following[0]
    return None


def _docstring(owner: type, name: str) -> str | None:
    value = vars(owner)[name]
    function = getattr(value, "fget", None) or getattr(value, "func", None) or value
    if isinstance(function, FunctionType):
        return function.__doc__
    return _attribute_docstring(owner, name) or owner.__doc__


def _attribute_docstring(owner: type, name: str) -> str | None:
    """Return the string that follows an attribute in its class's source."""
    try:
        body, node = _assigned(dedent("".join(source_lines(owner)[0])), name)
    except (OSError, TypeError, SyntaxError):
        return None
    expression = _docstring_after(body, node)
    value = expression.value if expression is not None else None
    return str(value.value) if isinstance(value, ast.Constant) else None


Seam = dict[str, Any]
"""JSON types: seam "MergePolicy.merge_target", class (the one that decides), module, line, reason, source, base (the
overridden method: {class, source, reason}, or None), is_custom (the class is not from labengine's core or engine), and
methods: others that take part, in the same form, the event's emitter last ("is_emitter"; "emits_at": the line of its
source, from 0, that emits the event, if only one line in all of them does)."""


def seams_of(parts: Parts, runner: type | None = None, connector: Connector | None = None) -> dict[str, Seam]:
    """Return the seam of each kind of event with these parts: {"BlockEvicted": seam, "BlockFreed:window": ...}.

    runner: a user's ModelRunner, whose overrides take part in each forward pass and so in each token.
    connector: the external tier.
    Omits methods that the parts lack (an edition that never preempts this way), and kinds without any method. A comment
    replaces a source that Python has not kept.
    """
    classes = owners(parts, tier_class(connector)) | {"Engine": (Engine,), "Transfers": (Transfers,), "Watch": (Watch,)}
    below = [] if runner is None else list(_overrides_of(runner))
    found = {
        kind: _seam(kind, [*(below if kind in _OF_THE_RUNNER else ()), *_methods(names, classes)])
        for kind, names in DECIDED_BY.items()
    }
    return {kind: seam for kind, seam in found.items() if seam is not None}


_OF_THE_RUNNER = ("ForwardRan", "TokenSampled")


def _overrides_of(runner: Any) -> Iterator[Method]:
    """Yield the public methods that a runner, its static step and its attention override."""
    played = {"ModelRunner": runner, "StaticStep": runner.static_step, "AttentionBackend": runner.attention or object}
    for part, owner in played.items():
        custom = [vars(cls) for cls in owner.__mro__[:-1] if is_custom(cls)]
        names = [name for values in custom for name, value in values.items() if isinstance(value, FunctionType)]
        for name in dict.fromkeys(names):
            method = method_of(owner, name, part)
            if method is not None and method.base is not None:
                yield method


def _methods(names: tuple[str, ...], classes: dict[str, tuple[type, ...]]) -> Iterator[Method]:
    """Yield the methods of each part's first class, and those that a user replaced in other classes."""
    for name in names:
        part, attribute = name.split(".")
        first, *others = (method_of(cls, attribute, part) for cls in classes[part])
        if first is not None:
            yield first
        yield from (method for method in others if method is not None and _replaces(method, first))


def _replaces(method: Method, first: Method | None) -> bool:
    return is_custom(method.owner) and (first is None or method.owner is not first.owner)


def _seam(kind: str, methods: list[Method]) -> Seam | None:
    if not methods:
        return None
    found = [method.to_dict() for method in methods]
    found[-1]["is_emitter"] = True
    lines = [(method, line) for method in found for line in emitting_lines(method["source"], kind.partition(":")[0])]
    if len(lines) == 1 and lines[0][0] is found[-1]:  # with several lines it is unknown which one ran
        found[-1]["emits_at"] = lines[0][1]
    found.sort(key=lambda method: not method["is_custom"])  # the user's methods come first
    return found[0] | {"methods": found[1:]}


@lru_cache(maxsize=1024)
def emitting_lines(source: str, kind: str) -> tuple[int, ...]:
    """Return the lines of a method's text, from 0, that construct and emit an event of a kind."""
    try:
        calls = [node for node in ast.walk(tree_of(source)) if isinstance(node, ast.Call)]
    except SyntaxError:  # lines of a class that set an attribute
        return ()
    emitted = [call for call in calls if _name_of(call) == "emit" and any(_builds(one, kind) for one in call.args)]
    return tuple(call.lineno - 1 for call in emitted)


def _builds(value: ast.expr, kind: str) -> bool:
    return isinstance(value, ast.Call) and _name_of(value) == kind


def _name_of(call: ast.Call) -> str:
    """Return the last name of the called expression: "emit" of self.hooks.emit."""
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))
