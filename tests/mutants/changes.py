"""Each change that may make a method wrong: a boundary, a condition, an order, an argument, a lost statement."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from labengine.session.source_text import outside_names, parsed
from mutants.expressions import expression_changes
from mutants.places import New, Place, becomes, call_node, int_node, places, shown


@dataclass(frozen=True)
class Change:
    """A method with one change. kind: what sort of change; words: says which; text: the changed method."""

    kind: str
    words: str
    text: str


@cache
def changes_of(text: str) -> tuple[Change, ...]:
    """Return all changes of a method's text that leave other code, each text once.

    None that leaves a name without a value: that would be refused before anything runs.
    """
    tree = parsed(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = _without_docstring(function.body)
    unchanged = ast.unparse(tree)
    names = {*outside_names(unchanged), *vars(builtins)}
    found: dict[str, Change] = {}
    for place in places(function):
        for kind, words, new in (*_of_statement(place), *expression_changes(place, function)):
            with_change = place.with_(new, tree)
            if with_change != unchanged and (
                not _may_unbind(kind, unchanged) or names.issuperset(outside_names(with_change))
            ):
                found.setdefault(with_change, Change(kind, words, with_change))
    return tuple(found.values())


def _may_unbind(kind: str, text: str) -> bool:
    """Return True if a change of this kind can take the value of a name away: the tables of names take time."""
    return kind == "statement dropped" or ":=" in text


# -- statements --------------------------------------------------------------------------------------------------------


def _of_statement(place: Place) -> Iterator[New]:
    node = place.node
    if not isinstance(node, ast.stmt):
        return
    if _has_effect(node):
        yield New("statement dropped", shown(node), ast.Pass())
    if len(place.following) > 1 and all(_has_effect(one) and _is_simple(one) for one in place.following[:2]):
        first, second = place.following[:2]
        yield New("order reversed", f"{shown(second)} before {shown(first)}", [second, first])
    if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
        yield from _at_the_other_end(call, node)


def _has_effect(node: ast.stmt) -> bool:
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.For() | ast.If() | ast.Continue() | ast.Break():
            return True
        case ast.Assign(targets=targets):
            parts = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
            return not any(isinstance(part, ast.Name) for part in parts)
        case ast.AnnAssign(target=target):
            return not isinstance(target, ast.Name)
        case ast.Return(value=value):
            return value is None
    return False


def _is_simple(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Expr, ast.AugAssign, ast.Assign, ast.Delete))


def _at_the_other_end(call: ast.Call, node: ast.Expr) -> Iterator[New]:
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return
    receiver, name = call.func.value, call.func.attr
    if name == "append":
        if ast.unparse(receiver).endswith("free_queue"):
            other = call_node(receiver, "prepend", *call.args)
        else:
            other = call_node(receiver, "insert", int_node(0), *call.args)
    elif name in ("prepend", "appendleft"):
        other = call_node(receiver, "append", *call.args)
    else:
        return
    yield becomes("order reversed", node, ast.Expr(other))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    has_one = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] or [ast.Pass()] if has_one else body
