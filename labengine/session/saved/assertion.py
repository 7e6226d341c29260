"""The assertion of a generated test, given by the user: Python over `lab`, or a function of a lab."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import dedent
from types import FunctionType
from typing import Any

from labengine.config import ConfigError, shown
from labengine.session.carried_text import function_text, lambda_text
from labengine.session.saved.definitions import FUNCTIONS
from labengine.session.source_text import outside_names, parsed

KNOWN = ("lab", "labengine", *FUNCTIONS)
"""Names that an assertion may use, besides Python's builtins."""

Asserting = str | Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Assertion:
    """Lines of a test, and the definitions that they use."""

    lines: tuple[str, ...]
    text: Mapping[str, Any] | None = None


def assertion_of(asserting: Asserting) -> Assertion:
    """Return an assertion. Raises ConfigError for an invalid one, or one that a test file cannot contain.

    asserting: an expression over `lab`, statements that assert, or a function of a lab, which returns False or raises
    if the run goes wrong.
    """
    if isinstance(asserting, str):
        return Assertion(_lines(dedent(asserting).strip()))
    if not isinstance(asserting, FunctionType) or asserting.__code__.co_argcount != 1:
        raise ConfigError(
            f"asserting= must be Python about `lab`, such as 'lab.snapshot().step == 3', or a function of one lab, got "
            f"{shown(asserting)}"
        )
    return _called(asserting)


def _lines(text: str) -> tuple[str, ...]:
    try:
        statements = parsed(text).body
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"asserting= is not valid Python: {error}") from None
    if unknown := [name for name in outside_names(text) if name not in KNOWN and not hasattr(builtins, name)]:
        raise ConfigError(
            f"asserting= uses {', '.join(unknown)}, which the test does not define (it defines {', '.join(KNOWN)}): "
            "use a function of a lab instead, whose names are copied into the test"
        )
    match statements:
        case [ast.Expr()]:
            return (f"assert {text}",) if "\n" not in text else ("assert (", *text.split("\n"), ")")
    if not any(isinstance(node, ast.Assert) for one in statements for node in ast.walk(one)):
        raise ConfigError(f"asserting={text!r} asserts nothing: use an expression, or statements with an assert")
    return tuple(text.split("\n"))


def _called(function: FunctionType) -> Assertion:
    name = function.__name__
    if name.startswith("test"):
        raise ConfigError(f"pytest would collect {name} as a separate test: rename the function")
    if name == "<lambda>":
        source, text = lambda_text(function)
        if not source:
            raise ConfigError("this lambda's source was not found: use a string or a `def` function for asserting=")
        name = f"({source})"
    else:
        text = function_text(function)
    return Assertion((f"assert {name}(lab) is not False",), text)
