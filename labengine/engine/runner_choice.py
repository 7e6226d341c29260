"""The class that runs a real model: ModelRunner, or a user's subclass after checks."""

from __future__ import annotations

import inspect

from labengine.config import ConfigError, shown
from labengine.core.overrides import refuse_wrong_overrides
from labengine.engine.attention import AttentionBackend
from labengine.engine.forward.static_step import StaticStep
from labengine.engine.model_runner import ModelRunner


def choose_runner(requested: object) -> type[ModelRunner]:
    """Return the requested class; ModelRunner for None.

    Raises ConfigError for an unrelated class, and for an override that would never or could not be called.
    """
    if requested is None:
        return ModelRunner
    if not (isinstance(requested, type) and issubclass(requested, ModelRunner)):
        raise ConfigError(f"runner must be a subclass of labengine.ModelRunner, got {shown(requested)}")
    where = f"runner {requested.__name__}"
    _check(f"{where}: static_step", requested.static_step, StaticStep)
    if requested.attention is not None:
        _check(f"{where}: attention", requested.attention, AttentionBackend)
    refuse_wrong_overrides("runner", requested, ModelRunner)
    return requested


def _check(where: str, value: object, base: type) -> None:
    if not (isinstance(value, type) and issubclass(value, base)):
        raise ConfigError(f"{where} must be a subclass of {base.__name__}, got {shown(value)}")
    refuse_wrong_overrides(where, value, base)
    constants = [name for name, kind in inspect.get_annotations(base).items() if str(kind).startswith("ClassVar")]
    open_methods = sorted(getattr(value, "__abstractmethods__", ()))
    if lacking := [*(name for name in constants if not hasattr(value, name)), *open_methods]:
        raise ConfigError(f"{where}: {value.__name__} is missing {', '.join(lacking)}; see {base.__name__}")
