"""A driven lab's session as a script that needs its engine alone, seen red and green before the user gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labengine.config import ConfigError, shown
from labengine.driven.driven import Driven
from labengine.driven.engine import DrivenEngine
from labengine.driven.model import DrivenModel
from labengine.driven.played_script import PlayedScript, played
from labengine.driven.script import change_of, script_of
from labengine.session.saved.no_test import NoTestError
from labengine.session.session import Session


@dataclass(frozen=True)
class Side:
    """One of two engines that do the same workload. name: in a sentence; word: the value of asserting= that means it.

    source: the text of the file that drives it.
    """

    name: str
    word: str
    driven: Driven
    source: str


def patch_test(session: Session, model: DrivenModel, asserting: object) -> str:
    """Return a script of a session whose engine has patches; see Lab.to_test. Raises NoTestError."""
    if not model.driven.patches:
        raise NoTestError(
            "a test is seen to pass, too, before you get it: replace the method that is wrong, "
            'lab.rerun(labengine.Patch("Class.method", text)).to_test(), or compare with an engine that is '
            "right, labengine.compare(lab, other).to_test()"
        )
    names = " and ".join(patch.method for patch in model.driven.patches)
    engine = Side(model.name, "engine", replace(model.driven, patches=()), model.source)
    return engine_test(
        (engine, Side(f"{model.name} with your {names}", "patch", model.driven, model.source)),
        workload_of(session),
        asserting,
    )


def sides_test(sessions: Sequence[Session], asserting: object) -> str:
    """Return a script of the side of a comparison of two driven engines that goes wrong. Raises NoTestError."""
    sides = list[Side]()
    for session, word in zip(sessions, ("left", "right"), strict=True):
        model = session.model
        assert isinstance(model, DrivenModel)
        names = "".join(f" with your {patch.method}" for patch in model.driven.patches)
        sides.append(Side(f"{model.name}{names} ({word})", word, model.driven, model.source))
    longest = max(map(workload_of, sessions), key=lambda workload: len(workload["operations"]))
    return engine_test((sides[0], sides[1]), longest, asserting)


def workload_of(session: Session) -> dict[str, Any]:
    """Return what a driven lab's engine has done."""
    engine = session.stepper.engine
    assert isinstance(engine, DrivenEngine)
    return engine.workload


def engine_test(sides: tuple[Side, Side], workload: Mapping[str, Any], asserting: object) -> str:
    """Return the script of the side that goes wrong, after running it on both. Raises NoTestError."""
    words = [side.word for side in sides]
    if asserting is not None and asserting not in words:
        raise ConfigError(
            f"asserting= names the side whose states are right, {words[0]!r} or {words[1]!r}, got {shown(asserting)}"
        )
    runs = _runs(sides, workload)
    if asserting is not None:
        right = words.index(str(asserting))
        if not runs[right].is_green:
            raise NoTestError(f"{sides[right].name} is not right: {runs[right].said}. Omit asserting=")
        expected = runs[right].states
        return _checked(sides, workload, expected, _runs(sides, workload, expected), 1 - right)
    for wrong in (1, 0):
        if runs[wrong].is_red and runs[1 - wrong].is_green:
            return _checked(sides, workload, (), runs, wrong)
    raise _no_test(sides, runs)


def _runs(sides: Sequence[Side], workload: Mapping[str, Any], expected: Sequence[Any] = ()) -> list[PlayedScript]:
    return played([(side.driven, _text("", side, workload, expected)) for side in sides])


def _text(heading: str, side: Side, workload: Mapping[str, Any], expected: Sequence[Any]) -> str:
    return script_of(heading, side.source, change_of(side.driven.patches), workload, expected)


def _checked(
    sides: Sequence[Side],
    workload: Mapping[str, Any],
    expected: Sequence[Any],
    runs: Sequence[PlayedScript],
    wrong: int,
) -> str:
    """Return the script of the wrong side, if it has failed there and passed on the other side."""
    if not runs[wrong].is_red or not runs[1 - wrong].is_green:
        raise _no_test(sides, runs)
    heading = f"{sides[wrong].name} fails here: {runs[wrong].said}\n\n{sides[1 - wrong].name} does not."
    return _text(heading, sides[wrong], workload, expected)


def _no_test(sides: Sequence[Side], runs: Sequence[PlayedScript]) -> NoTestError:
    if not all(run.is_green for run in runs):
        said = "; ".join(f"{side.name}: {run.said}" for side, run in zip(sides, runs, strict=True))
        return NoTestError(f"a test must fail on one side and pass on the other, but here {said}")
    if runs[0].states == runs[1].states:
        return NoTestError(
            "no rule is broken here, and both sides have the same states: add requests for which the method matters"
        )
    words = " or ".join(f"to_test(asserting={side.word!r}) if {side.name} is right" for side in sides)
    return NoTestError(f"no rule is broken here, but the states differ: use {words}", sides[0].word)
