"""Places in a method's tree that can be changed, and their replacements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Place:
    """A node, where it stands, and the statements in the same block from it on (empty for an expression)."""

    node: ast.AST
    holder: Any
    """A list, or the node above it."""
    key: Any
    following: tuple[ast.stmt, ...] = ()
    parent: ast.AST | None = None

    def with_(self, new: Any, tree: ast.AST) -> str:
        """Return the text of the tree with another node (or statements) in this place; the tree stays unchanged."""
        if not isinstance(self.holder, list):
            setattr(self.holder, self.key, new)
            text = ast.unparse(tree)
            setattr(self.holder, self.key, self.node)
            return text
        before = self.holder[:]
        if isinstance(new, list):
            self.holder[self.key : self.key + len(new)] = new
        else:
            self.holder[self.key] = new
        text = ast.unparse(tree)
        self.holder[:] = before
        return text


_LEFT_ALONE = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)
"""Errors and their texts, which are not decisions."""


def places(node: ast.AST) -> Iterator[Place]:
    """Yield every place inside a node, but for types, decorators, targets, operators and errors."""
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "returns", "annotation", "type_comment", "targets", "target", "ops", "op", "ctx"):
            continue
        if isinstance(value, list):
            for index, one in enumerate(value):
                if isinstance(one, ast.AST) and not isinstance(one, _LEFT_ALONE):
                    following = tuple(value[index:]) if isinstance(one, ast.stmt) else ()
                    yield Place(one, value, index, following, node)
                    yield from places(one)
        elif isinstance(value, ast.AST) and not isinstance(value, _LEFT_ALONE):
            yield Place(value, node, name, (), node)
            yield from places(value)


class New(NamedTuple):
    """A node (or statements) for a place, and what it changes, in words."""

    kind: str
    words: str
    node: Any


def becomes(kind: str, old: ast.AST, new: ast.AST) -> New:
    """Return the replacement of one node by another, and its description."""
    return New(kind, f"{shown(old)} becomes {shown(new)}", new)


def shown(node: ast.AST) -> str:
    """Return a node's text in one line, without the contents of its blocks."""
    first, *more = ast.unparse(node).splitlines()
    return f"{first} ..." if more else first


def int_node(value: int) -> ast.expr:
    """Return the node of an integer."""
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def call_node(receiver: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    """Return the node of a method's call."""
    return ast.Call(ast.Attribute(receiver, name), list(arguments), [])
