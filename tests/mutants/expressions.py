"""Possible mistakes in an expression of a method: numbers, conditions, orders, arguments and results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from mutants.places import New, Place, becomes, int_node, shown


def expression_changes(place: Place, function: ast.FunctionDef) -> Iterator[New]:
    """Yield replacements for an expression, or for the value that the function returns there."""
    node, parent = place.node, place.parent
    if isinstance(node, ast.Return) and node.value is not None:
        for value in _neighbours(node.value, function):
            yield becomes("another return value", node, ast.Return(value))
    if not isinstance(node, ast.expr):
        return
    if _counts(place):
        for by in (1, -1):
            yield becomes("off by one", node, _moved(node, by))
    if isinstance(place.key, str) and place.key == "test":
        yield from _of_condition(node)
    if isinstance(parent, ast.comprehension) and node in parent.ifs:
        yield becomes("condition negated", node, _negated(node))
        yield becomes("condition dropped", node, _constant(True))
    if isinstance(parent, (ast.For, ast.comprehension)) and node is parent.iter:
        yield becomes("order reversed", node, _reversed(node))
    for kind, new in _rewritten(node, function):
        yield becomes(kind, node, new)


def _of_condition(node: ast.expr) -> Iterator[New]:
    yield New("condition dropped", f"never: {shown(node)}", _constant(False))
    if _is_about_hooks(node):  # nothing is decided by it but whether an event is emitted
        return
    yield New("condition negated", f"{shown(node)} is negated", _negated(node))
    yield New("condition dropped", f"always: {shown(node)}", _constant(True))


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
            yield "order reversed", ast.Subscript(value, int_node(-1))
        case ast.Subscript(value=value, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            yield "order reversed", ast.Subscript(value, int_node(0))
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
        yield from (ast.BinOp(value, ast.Add(), int_node(1)), ast.BinOp(value, ast.Sub(), int_node(1)), int_node(0))
    elif base == "bytes":
        yield _constant(b"")
    elif base in ("list", "Sequence", "GroupHit", "range") or annotation.endswith(", ...]"):
        yield ast.Tuple([]) if annotation.endswith(", ...]") else ast.List([])
        if isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) < 2:
            return
        for bounds in (ast.Slice(None, int_node(-1)), ast.Slice(int_node(1)), ast.Slice(None, None, int_node(-1))):
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


def _counts(place: Place) -> bool:
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
            return int_node(value + by)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return int_node(by - value)
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(own))):
            value = own + by
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int(own))):
            value = by - own
    return ast.BinOp(left, ast.Add() if value > 0 else ast.Sub(), int_node(abs(value))) if value else left


def _is_number(node: ast.expr) -> bool:
    """Return True for an expression that is certainly an integer and is read."""
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


def _constant(value: Any) -> ast.expr:
    return ast.Constant(value)
