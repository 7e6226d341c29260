"""Roles of code: where a Ctrl-C may be raised follows from marks at the code itself, which a rename takes along."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import walk_packages
from types import FrameType
from typing import Any

import pytest

import labengine
from labengine.check.watched_runner import WatchedRunner
from labengine.engine.ahead import OverlappedEngine
from labengine.engine.engine import Engine
from labengine.system import code_roles
from labengine.system.code_roles import Role, passes_calls_on, role_of, rolls_back

FOLLOWERS = (
    *("check", "record.files", "record.timeline", "record.fold", "record.fold_state", "record.figures"),
    *("session.stats", "session.history.inputs"),
)


def frame_in(module: str) -> FrameType:
    """Return a frame whose globals are a module's."""
    namespace: dict[str, Any] = {"__name__": module, "sys": sys}
    exec("def frame():\n    return sys._getframe()", namespace)
    return namespace["frame"]()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_events_is_never_interrupted(name: str) -> None:
    module = import_module(f"labengine.{name}")
    inside = [found.name for found in walk_packages(getattr(module, "__path__", []), f"{module.__name__}.")]
    assert {role_of(frame_in(one)) for one in (module.__name__, *inside)} == {Role.FOLLOWS_EVENTS}


def test_the_core_is_undone_but_for_the_journal_and_what_it_restores() -> None:
    core = import_module("labengine.core")
    roles = {found.name: role_of(frame_in(found.name)) for found in walk_packages(core.__path__, "labengine.core.")}
    others = {name for name, role in roles.items() if role is not Role.CORE}
    assert others == {"labengine.core.journal", "labengine.core.state"}


@pytest.mark.parametrize("engine", [Engine, OverlappedEngine])
def test_an_engines_own_steps_are_rolled_back(engine: type[Engine]) -> None:
    assert {engine.step.__code__, engine.phases.__code__} <= code_roles._steps
    assert Engine._roll_back.__code__ not in code_roles._steps
    assert role_of(frame_in(engine.__module__)) is Role.ENGINE


def test_a_watched_runner_only_passes_calls_on() -> None:
    own = [value for name, value in vars(WatchedRunner).items() if callable(value)]
    assert own and all(value.__code__ in code_roles._passing for value in own)


def test_a_scenario_counts_as_the_users_code_and_others_have_no_role() -> None:
    import_module("labengine.scenarios.tiers")
    assert role_of(frame_in("labengine.scenarios.tiers")) is Role.USERS
    assert role_of(frame_in("__main__")) is role_of(frame_in("labengine.config")) is None
    assert labengine.__name__ not in code_roles._roles


@pytest.mark.parametrize("mark", [rolls_back, passes_calls_on])
def test_what_has_no_code_of_its_own_is_refused(mark: Any) -> None:
    with pytest.raises(TypeError, match="decorate the function first"):
        mark(staticmethod(len))
