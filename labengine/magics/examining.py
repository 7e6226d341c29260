"""%lab find, judge, doctor: where parts go wrong, why two runs differ, why requests missed the prefix cache."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError

from labengine.commands import SEARCH_SECONDS, SEARCH_SEED, SETTING, TOKENIZER, argument, command
from labengine.core.editions import EDITIONS
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import find as find_workload
from labengine.lab import Lab
from labengine.magics.arguments import request_id_of
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import acting_on, display
from labengine.prefix_doctor.doctor import doctor as examined
from labengine.session.judging.judge import judge as judge_runs
from labengine.session.judging.verdict import RunVerdict

_FOUND, _VERDICT, _DIAGNOSIS = "counterexample", "verdict", "diagnosis"
"""Notebook variables that keep the results."""


@command(
    argument(
        "parts", nargs="?", metavar="PARTS", help="a variable (a class or Parts) or an edition; default: the lab's"
    ),
    argument(
        "--against", offers=tuple(EDITIONS), metavar="EDITION", help="compare costs and decisions with this edition"
    ),
    SEARCH_SECONDS,
    SEARCH_SEED,
)
def find(
    current: CurrentLab,
    parts: str | None = None,
    against: str = "labengine",
    seconds: float = 60.0,
    seed: int = 0,
) -> None:
    """Search for the shortest workload on which parts go wrong, and open it beside the edition that handles it."""
    found = find_workload(_wanted(current, parts), against, seconds=seconds, seed=seed)
    display(found)
    if not isinstance(found, Counterexample):
        return
    current.store(_FOUND, found)
    comparison = current.open("comparison", found.compare())
    display(comparison.show())
    print(acting_on("comparison", "holds both engines", current))
    print(f"print({_FOUND}.to_test()) prints a test for pytest, {_FOUND}.to_code() a script;", end=" ")
    print(f"{_FOUND}.to_notebook('found.ipynb') writes a notebook")


def _wanted(current: CurrentLab, parts: str | None) -> object:
    """Return the notebook's object of that name, an edition's name, or the lab's parts."""
    if parts is None:
        current.lab.session.model.refuse_call("%lab find")
        return current.lab.parts
    if parts in EDITIONS:
        return parts
    if not parts.isidentifier() or keyword.iskeyword(parts) or parts not in current.names:
        raise UsageError(f"no variable {parts!r}: define the class in a cell, or name an edition")
    return current.names[parts]


@command(argument("requests", nargs="*", metavar="REQUEST", help="A B: two requests; A: one request on two engines"))
def judge(current: CurrentLab, requests: Sequence[str] = ()) -> None:
    """Judge why two runs of one request differ: wrong content in the KV cache, or different rounding.

    With two engines side by side, name one request (default: the first whose tokens differ); with one lab, two requests
    with the same prompt.
    """
    verdict = _of_the_sides(current, requests) if current.comparison is not None else _of_a_lab(current, requests)
    current.store(_VERDICT, verdict)
    display(verdict)


def _of_a_lab(current: CurrentLab, requests: Sequence[str]) -> RunVerdict:
    lab = current.lab
    if len(requests) != 2:
        raise UsageError("judge needs two requests, as in %lab judge A B")
    one, other = (request_id_of(name, lab.snapshot().requests) for name in requests)
    return judge_runs((lab, one), (lab, other))


def _of_the_sides(current: CurrentLab, requests: Sequence[str]) -> RunVerdict:
    assert current.comparison is not None
    labs = current.labs
    if len(labs) != 2:
        raise UsageError("judge needs two labs that it can run again; a recording has no engine")
    if len(requests) > 1:
        raise UsageError("two engines are being compared: name a single request, as in %lab judge A")
    known = [*labs[0].snapshot().requests]
    if not known:
        raise UsageError("no requests yet: add a prompt")
    request = request_id_of(requests[0], known) if requests else _first_differing(labs[0], labs[1])
    return judge_runs(labs[0], labs[1], request=request, names=current.comparison.names)


def _first_differing(left: Lab, right: Lab) -> int:
    """Return the first request whose tokens differ, or else the first one."""
    states = left.snapshot().requests, right.snapshot().requests
    differing = (
        request_id
        for request_id, state in states[0].items()
        if request_id in states[1] and state.token_ids != states[1][request_id].token_ids
    )
    return next(differing, next(iter(states[0])))


@command(
    argument("place", nargs="?", metavar="FILE", help="a file, or the folder of LABENGINE_TAP; default: the lab"),
    TOKENIZER,
    *SETTING,
)
def doctor(current: CurrentLab, place: str | None = None, **asked: Any) -> None:
    """Explain why prompts miss the prefix cache, what that costs, and what would mend it."""
    diagnosis = examined(current.recorded if place is None else place, **asked)
    current.store(_DIAGNOSIS, diagnosis)
    display(diagnosis)
