"""%lab judge: why two runs of the same request differ."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.core.error import UsageError

from labengine.commands import argument, command
from labengine.lab import Lab
from labengine.magics.arguments import request_id_of
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import display
from labengine.session.judging.judge import judge as judge_runs
from labengine.session.judging.verdict import RunVerdict

VARIABLE = "verdict"


@command(argument("requests", nargs="*", metavar="REQUEST", help="A B: two of the lab; A: one of two engines"))
def judge(current: CurrentLab, requests: Sequence[str] = ()) -> None:
    """Judge why two runs of one request differ: wrong content of the KV cache, or other rounding.

    Of two engines side by side it is one request (the first whose tokens differ); of a lab two with the same prompt.
    """
    verdict = _of_the_sides(current, requests) if current.comparison is not None else _of_a_lab(current, requests)
    current.store(VARIABLE, verdict)
    display(verdict)


def _of_a_lab(current: CurrentLab, requests: Sequence[str]) -> RunVerdict:
    lab = current.lab
    if len(requests) != 2:
        raise UsageError("which two requests? Like this: %lab judge A B")
    one, other = (request_id_of(name, lab.snapshot().requests) for name in requests)
    return judge_runs((lab, one), (lab, other))


def _of_the_sides(current: CurrentLab, requests: Sequence[str]) -> RunVerdict:
    assert current.comparison is not None
    labs = current.labs
    if len(labs) != 2:
        raise UsageError("there is no engine behind a recording: judge needs two labs that can be run again")
    if len(requests) > 1:
        raise UsageError("two engines are compared: name one request, as in %lab judge A")
    known = [*labs[0].snapshot().requests]
    if not known:
        raise UsageError("there is no request yet")
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
