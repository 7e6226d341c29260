"""A connector as Python that makes a similar one: its class and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from labengine.config import ConfigError, shown
from labengine.core.connector import Connector
from labengine.session.carried_text import ClassText, class_text, function_text
from labengine.session.saved.definitions import External
from labengine.session.source_text import literal


def base_connector(maker: Callable[[], Connector] | None) -> type[Connector] | None:
    """Return labengine's class that a connector's class derives from; None for a function or any other class."""
    bases = maker.__mro__[1:] if isinstance(maker, type) else ()
    made = (base for base in bases if base.__module__.startswith("labengine.") and not inspect.isabstract(base))
    return next(made, None)


def maker_text(maker: Callable[[], Connector]) -> ClassText:
    """Return the text of a connector's class, or of a function that makes one. Raises ConfigError without a text."""
    text: ClassText | None = None
    if isinstance(maker, type):
        text = class_text(maker)
    elif isinstance(maker, FunctionType):
        text = function_text(maker)
    if text is None or text["missing"]:
        raise ConfigError(
            f"{shown(maker)} cannot be written as Python: pass find() the connector's class, or a `def` function that "
            f"uses only importable names"
        )
    return text


def tier_of(connector: Connector) -> External:
    """Return Python that makes a connector of the same class, empty.

    Its arguments are the connector's attributes named like parameters; other parameters keep their defaults. Raises
    ConfigError for a class without a text, and for an unknown parameter without a default.
    """
    cls = type(connector)
    text, imports, arguments = maker_text(cls), list[str](), list[str]()
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        given = getattr(connector, name, parameter.default)
        if given is parameter.empty:
            raise _unknown(cls, name)
        if given is not parameter.default:
            written, needed = _written(given)
            if written is None:
                raise _unknown(cls, name)
            arguments.append(f"{name}={written}")
            imports += needed
    return External(f"{cls.__name__}({', '.join(arguments)})", tuple(imports), text)


def _written(given: object) -> tuple[str | None, list[str]]:
    """Return an argument as Python (None if impossible), and the imports that it needs."""
    if not isinstance(given, Connector):
        return literal(given), []
    tier = tier_of(given)
    text = tier.text or {}
    return (tier.code, [*tier.imports, *text["imports"]]) if not text["definitions"] else (None, [])


def right_tier(connector: Connector | None) -> dict[str, Any]:
    """Return the name of a user's connector class with the right class, from which it derives; empty without one."""
    base = None if connector is None else base_connector(type(connector))
    is_ours = connector is None or type(connector).__module__.startswith("labengine.")
    return {} if base is None or is_ours else {type(connector).__name__: _with_what_it_knows(base)}


def _with_what_it_knows(cls: type[Connector]) -> Callable[..., Connector]:
    """Return a function that makes a connector without the arguments that only a subclass takes."""
    known = inspect.signature(cls).parameters

    @wraps(cls, updated=())
    def make(**given: Any) -> Connector:
        return cls(**{name: value for name, value in given.items() if name in known})

    return make


def _unknown(cls: type, name: str) -> ConfigError:
    return ConfigError(
        f"a test cannot make a {cls.__name__}, because its argument {name} is unknown. Keep it as self.{name} (a plain "
        f"value), or search with labengine.find({cls.__name__}) or a function that makes one"
    )
