"""Parsing Python source, by one thread at a time.

CPython counts the depth of the tree that it builds in one place for all threads: two that parse at once get a
SystemError ("AST constructor recursion depth mismatch", 3.11 and 3.12). `inspect` parses, too, to find a class.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")

_one_at_a_time = RLock()
_MOST_TRIES = 20
"""A notebook's shell parses its cells without our lock."""


@lru_cache(maxsize=256)
def tree_of(text: str) -> ast.Module:
    """Return the tree of a source text, as ast.parse. The tree is shared: do not change it."""
    return _alone(lambda: ast.parse(text))


def value_of(text: str) -> Any:
    """As ast.literal_eval."""
    return _alone(lambda: ast.literal_eval(text))


@lru_cache(maxsize=256)
def source_lines(owner: type) -> tuple[list[str], int]:
    """Return the lines of a class's text and its first line's number, as inspect.getsourcelines.

    Kept, because inspect parses the whole file for each class. Raises OSError where Python keeps no text.
    """
    return _alone(lambda: inspect.getsourcelines(owner))


def _alone(call: Callable[[], T]) -> T:
    with _one_at_a_time:
        for _ in range(_MOST_TRIES - 1):
            try:
                return call()
            except SystemError:
                continue
        return call()
