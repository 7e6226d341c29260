"""Each change that may make a method wrong: a boundary, a condition, an order, an argument, a lost statement."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from labengine.session.source_text import outside_names, parsed


@dataclass(frozen=True)
class Change:
    """A method with one change. kind: what sort of change; words: says which; text: the changed method."""

    kind: str
    words: str
    text: str


def changes_of(text: str) -> list[Change]:
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
    for place in _places(function):
        for kind, words, new in (*_of_statement(place), *_of_expression(place, function)):
            with_change = place.with_(new, tree)
            if with_change != unchanged and names.issuperset(outside_names(with_change)):
                found.setdefault(with_change, Change(kind, words, with_change))
    return list(found.values())


# -- places ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A node, where it stands, and the statements in the same block from it on (empty for an expression)."""

    node: ast.AST
    holder: Any
    """A list, or the node above it."""
    key: Any
    following: tuple[ast.stmt, ...] = ()
    parent: ast.AST | None = None

    def with_(self, new: Any, tree: ast.AST) -> str:
        """Return the text of the tree with another node (or statements) in this place; the tree stays as it is."""
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
"""Errors and their texts are no decisions."""


def _places(node: ast.AST) -> Iterator[_Place]:
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "returns", "annotation", "type_comment", "targets", "target", "ops", "op", "ctx"):
            continue
        if isinstance(value, list):
            for index, one in enumerate(value):
                if isinstance(one, ast.AST) and not isinstance(one, _LEFT_ALONE):
                    following = tuple(value[index:]) if isinstance(one, ast.stmt) else ()
                    yield _Place(one, value, index, following, node)
                    yield from _places(one)
        elif isinstance(value, ast.AST) and not isinstance(value, _LEFT_ALONE):
            yield _Place(value, node, name, (), node)
            yield from _places(value)


class _New(NamedTuple):
    kind: str
    words: str
    node: Any


# -- statements --------------------------------------------------------------------------------------------------------


def _of_statement(place: _Place) -> Iterator[_New]:
    node = place.node
    if not isinstance(node, ast.stmt):
        return
    if _has_effect(node):
        yield _New("statement dropped", _shown(node), ast.Pass())
    if len(place.following) > 1 and all(_has_effect(one) and _is_simple(one) for one in place.following[:2]):
        first, second = place.following[:2]
        yield _New("order reversed", f"{_shown(second)} before {_shown(first)}", [second, first])
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


def _at_the_other_end(call: ast.Call, node: ast.Expr) -> Iterator[_New]:
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return
    receiver, name = call.func.value, call.func.attr
    if name == "append":
        is_queue = ast.unparse(receiver).endswith("free_queue")
        other = _call(receiver, "prepend", *call.args) if is_queue else _call(receiver, "insert", _int(0), *call.args)
    elif name in ("prepend", "appendleft"):
        other = _call(receiver, "append", *call.args)
    else:
        return
    yield _becomes("order reversed", node, ast.Expr(other))


# -- expressions -------------------------------------------------------------------------------------------------------


def _of_expression(place: _Place, function: ast.FunctionDef) -> Iterator[_New]:
    node, parent = place.node, place.parent
    if isinstance(node, ast.Return) and node.value is not None:
        for value in _neighbours(node.value, function):
            yield _becomes("another return value", node, ast.Return(value))
    if not isinstance(node, ast.expr):
        return
    if _counts(place):
        for by in (1, -1):
            yield _becomes("off by one", node, _moved(node, by))
    if isinstance(place.key, str) and place.key == "test":
        yield from _of_condition(node)
    if isinstance(parent, ast.comprehension) and node in parent.ifs:
        yield _becomes("condition negated", node, _negated(node))
        yield _becomes("condition dropped", node, _constant(True))
    if isinstance(parent, (ast.For, ast.comprehension)) and node is parent.iter:
        yield _becomes("order reversed", node, _reversed(node))
    for kind, new in _rewritten(node, function):
        yield _becomes(kind, node, new)


def _of_condition(node: ast.expr) -> Iterator[_New]:
    yield _New("condition dropped", f"never: {_shown(node)}", _constant(False))
    if _is_about_hooks(node):  # nothing is decided by it but whether an event is emitted
        return
    yield _New("condition negated", f"{_shown(node)} is negated", _negated(node))
    yield _New("condition dropped", f"always: {_shown(node)}", _constant(True))


def _rewritten(node: ast.expr, function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BOUNDARIES:
            yield "boundary", ast.Compare(left, [_BOUNDARIES[type(op)]()], [right])
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPPOSITES:
            if not _is_about_hooks(node):
                yield "condition negated", _negated(node)
        case ast.Compare(left=left, ops=[first, second], comparators=comparators):
            for ops in ([_other(first), second], [first, _other(second)]):
                yield "boundary", ast.Compare(left, ops, comparators)
        case ast.BoolOp(op=op, values=values):
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition negated", operand
        case ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), top), ast.FloorDiv(), divisor)):
            yield "rounded down", ast.BinOp(top, ast.FloorDiv(), divisor)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right) if _is_number(node):
            yield "sign", ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), right)
        case ast.Subscript(value=value, slice=ast.Constant(value=0)):
            yield "order reversed", ast.Subscript(value, _int(-1))
        case ast.Subscript(value=value, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            yield "order reversed", ast.Subscript(value, _int(0))
        case ast.Subscript(value=value, slice=ast.Slice()):
            yield "boundary", ast.Subscript(value, ast.Slice())
        case ast.Call():
            yield from _called_otherwise(node, function)


def _called_otherwise(call: ast.Call, function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name in _EXCHANGED:
        yield "min or max, any or all", ast.Call(ast.Name(_EXCHANGED[name]), call.args, call.keywords)
        return
    if name == "reversed":
        yield "order reversed", ast.List([ast.Starred(call.args[0])])
    for index, (first, second) in enumerate(zip(call.args, call.args[1:], strict=False)):
        if (meaning := _meaning(first, function)) is not None and meaning == _meaning(second, function):
            swapped = [*call.args[:index], second, first, *call.args[index + 2 :]]
            yield "arguments swapped", ast.Call(call.func, swapped, call.keywords)
    for index, argument in enumerate(call.args):
        for other in _parameters_like(argument, function):
            replaced = [*call.args[:index], ast.Name(other), *call.args[index + 1 :]]
            yield "another argument", ast.Call(call.func, replaced, call.keywords)
    for index, keyword in enumerate(call.keywords):
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            turned = ast.keyword(keyword.arg, _constant(not keyword.value.value))
            keywords = [*call.keywords[:index], turned, *call.keywords[index + 1 :]]
            yield "order reversed", ast.Call(call.func, call.args, keywords)


def _annotations(function: ast.FunctionDef) -> dict[str, str]:
    parameters = (*function.args.args, *function.args.kwonlyargs)
    return {one.arg: ast.unparse(one.annotation) for one in parameters if one.annotation is not None}


def _meaning(argument: ast.expr, function: ast.FunctionDef) -> str | None:
    """Return the type of an argument, as far as the method's text says it."""
    if isinstance(argument, ast.Name) and argument.id in _annotations(function):
        return _annotations(function)[argument.id]
    return "int" if _is_number(argument) else None


def _parameters_like(argument: ast.expr, function: ast.FunctionDef) -> list[str]:
    """Return the function's other parameters of the same annotation as this argument, which is a parameter itself."""
    annotations = _annotations(function)
    own = annotations.get(argument.id) if isinstance(argument, ast.Name) else None
    return [name for name, one in annotations.items() if one == own and name != getattr(argument, "id", None)]


def _neighbours(value: ast.expr, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Return values near the one that a function returns, by its annotation."""
    annotation = ast.unparse(function.returns) if function.returns else ""
    yield from (ast.Name(name) for name, one in _annotations(function).items() if one == annotation)
    base = annotation.partition("[")[0].partition(" |")[0]
    if base == "bool":
        yield from (_constant(True), _constant(False), _negated(value))
    elif base in ("int", "Admission"):
        yield from (ast.BinOp(value, ast.Add(), _int(1)), ast.BinOp(value, ast.Sub(), _int(1)), _int(0))
    elif base == "bytes":
        yield _constant(b"")
    elif base in ("list", "Sequence", "GroupHit", "range") or annotation.endswith(", ...]"):
        yield ast.Tuple([]) if annotation.endswith(", ...]") else ast.List([])
        if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) < 2:
            return
        for bounds in (ast.Slice(None, _int(-1)), ast.Slice(_int(1)), ast.Slice(None, None, _int(-1))):
            yield ast.Subscript(value, bounds)
    elif base == "tuple" and isinstance(value, ast.Tuple) and len(value.elts) == 2:
        yield ast.Tuple(value.elts[::-1])
    elif base == "set":
        yield ast.Call(ast.Name("set"), [], [])
    if "None" in annotation or base == "Admission":
        yield _constant(None)


# -- pieces ------------------------------------------------------------------------------------------------------------

_BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_EXCHANGED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NUMBERS = re.compile(r"(num|max)_\w+|start|end|index|link|length|limit|size|first|last|block_size|ref_count|missing")


def _counts(place: _Place) -> bool:
    """Return True for a number that is read: by its form, or because it bounds a range or a slice."""
    node, parent = place.node, place.parent
    if not isinstance(node, ast.expr) or (_is_call(parent, "range") and place.key == 2):  # a step of 0 is none
        return False
    if isinstance(parent, ast.UnaryOp) or (isinstance(parent, ast.Call) and node is parent.func):
        return False
    return _is_number(node) or isinstance(parent, ast.Slice) or _is_call(parent, "range")


def _moved(node: ast.expr, by: int) -> ast.expr:
    """Return a number that is greater by `by` (1 or -1), without two constants one after the other."""
    left, value = node, by
    match node:
        case ast.Constant(value=int(value)):
            return _int(value + by)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return _int(by - value)
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(own))):
            value = own + by
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(own))):
            value = by - own
    return ast.BinOp(left, ast.Add() if value > 0 else ast.Sub(), _int(abs(value))) if value else left


def _is_number(node: ast.expr) -> bool:
    """Return True for what is surely an integer that is read."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            return _NUMBERS.fullmatch(name) is not None
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            return _is_number(left) or _is_number(right)
        case ast.BinOp(op=ast.Sub() | ast.FloorDiv() | ast.Mod()):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in ("len", "sum", "int")
    return False


def _is_about_hooks(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) and ast.unparse(node).endswith(("in self._hooks", "in hooks"))


def _is_call(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _other(op: ast.cmpop) -> ast.cmpop:
    return _BOUNDARIES[type(op)]() if type(op) in _BOUNDARIES else op


def _negated(node: ast.expr) -> ast.expr:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in _OPPOSITES:
            return ast.Compare(left, [_OPPOSITES[type(op)]()], comparators)
    return ast.UnaryOp(ast.Not(), node)


def _reversed(node: ast.expr) -> ast.expr:
    if _is_call(node, "reversed"):
        assert isinstance(node, ast.Call)
        return ast.List([ast.Starred(node.args[0])])
    return ast.Call(ast.Name("reversed"), [ast.List([ast.Starred(node)])], [])


def _call(receiver: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(receiver, name), list(arguments), [])


def _int(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def _constant(value: Any) -> ast.expr:
    return ast.Constant(value)


def _becomes(kind: str, old: ast.AST, new: ast.AST) -> _New:
    return _New(kind, f"{_shown(old)} becomes {_shown(new)}", new)


def _shown(node: ast.AST) -> str:
    """Return a node's text in one line, without what is inside its blocks."""
    first, *more = ast.unparse(node).splitlines()
    return f"{first} ..." if more else first


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    has_one = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] or [ast.Pass()] if has_one else body
