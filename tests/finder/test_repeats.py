"""Steps that end at an event, rewinds, forks: they find state kept outside of the journal or the engine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from finder.test_counterexample import outcome
from finder.test_find import ONE_SCOPE, found
from finder.wrong_parts import EverySecondReuses, ForgetsToken, KeepsTokens
from labengine.config import ConfigError
from labengine.events import StepFailed, StepRolledBack
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.operations import Add, BreakOffAt, Rewind
from labengine.finder.scopes import ENDS, Scope, small_scopes
from labengine.lab import Lab
from labengine.scripts import break_off_at, fork, rewind
from labengine.session.saved.facts import facts_of

EQUAL = Add((0, 1), max_tokens=2)
ONE_PROMPT = replace(ONE_SCOPE[0], config=replace(ONE_SCOPE[0].config, num_blocks=6), only=(EQUAL,))
ENDING = (replace(ONE_PROMPT, ends=(BreakOffAt("TokenSampled"),)),)
REPEATING = (replace(ONE_PROMPT, repeats=True, max_operations=5),)


def searched(parts: object, scopes: tuple[Scope, ...]) -> object:
    return find(parts, scopes=scopes, kinds=GRAVE, max_workloads=0, workers=0, show_progress=False, seconds=600)


def test_a_token_that_is_not_journalled_is_found_in_the_second_scope() -> None:
    scopes = small_scopes()[:2]
    assert [scope.name for scope in scopes] == ["two requests", "steps that end inside"]
    one = found(ForgetsToken, scopes=scopes[1:], kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.rule, len(one.operations)) == ("rule", "said", 2) and "it has 2" in one.message
    assert one.operations[1].startswith("break_off_at(lab, '")
    assert_is_taken_home(one)


def test_a_table_that_no_rollback_undoes_is_found() -> None:
    one = found(KeepsTokens, scopes=ENDING, kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.message) == ("raises", "RuntimeError: a token too many")
    assert one.operations[1:] == ("break_off_at(lab, 'TokenSampled', 1, 'KeyboardInterrupt')", "lab.step()")
    assert 'break_off_at(lab, "TokenSampled", 1, "KeyboardInterrupt")' in one.to_test()
    assert_is_taken_home(one)
    assert "no rule" in repr(searched(KeepsTokens, (ONE_PROMPT,))), "without such steps nothing is wrong"


def test_a_run_that_a_rewind_does_not_repeat_is_found() -> None:
    one = found(EverySecondReuses, scopes=REPEATING, kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.rule) == ("rule", "repeat") and "different state" in one.message
    assert one.operations[-1] in ("fork(lab)", *map(str, map(Rewind, range(4)))) and one.operations[-1] in one.to_code()
    assert_is_taken_home(one)
    assert "Operations: requests, steps, aborts, resets of the prefix cache, rewinds, forks." in repr(
        searched("labengine", REPEATING)
    )


def assert_is_taken_home(one: Counterexample) -> None:
    text = one.to_test()
    assert outcome(text, production=False) is not None
    assert outcome(text, production=True) is None
    verdict = one.scenario().verdict()
    assert verdict.reproduced and verdict.fixed


# -- in a lab ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab() -> Lab:
    lab = Lab("simulated", num_blocks=8, block_size=2)
    for _ in range(2):
        lab.add(token_ids=range(5), max_tokens=4)
    lab.step()
    return lab


@pytest.mark.parametrize("ends_at", ENDS, ids=str)
def test_a_step_that_ends_at_any_event_has_not_happened(lab: Lab, ends_at: BreakOffAt) -> None:
    before = lab.snapshot()
    ends_at.play(lab)
    assert lab.timeline is not None and lab.violations == []
    if not lab.timeline.of_kind(StepRolledBack):
        assert lab.snapshot().step == before.step + 1, "no such event in this step"
    else:
        assert lab.snapshot().requests == before.requests and lab.snapshot().step == before.step
        assert bool(lab.timeline.of_kind(StepFailed)) == (ends_at.reason == "RuntimeError")
    lab.run()
    assert lab.violations == []


def test_it_is_repeated_by_rewinds_and_forks_and_written_down(lab: Lab) -> None:
    break_off_at(lab, "TokenSampled", 2, "RuntimeError")
    assert lab.crash is not None and lab.crash.method.startswith("RequestQueues.append_token")
    lab.step()
    rewind(lab, 1)
    lab.rewind(2)
    fork(lab)
    assert json.loads(json.dumps(facts_of(lab.session)))["inputs"][-1]["do"] == "break_off_at"
    assert 'break_off_at(lab, "TokenSampled", 2, "RuntimeError")' in lab.to_code()
    again: dict[str, Lab] = {}
    exec(lab.to_code(), again)
    assert again["lab"].snapshot() == lab.snapshot()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TokenSample",), "did you mean 'TokenSampled'"),
        (("StepEnded",), "must be an event inside a step"),
        (("TokenSampled", 0), "number must be at least 1"),
        (("TokenSampled", 1, "not a name"), "the name of an error"),
    ],
)
def test_where_no_step_can_end_is_refused(lab: Lab, arguments: tuple[str], message: str) -> None:
    before = lab.snapshot()
    with pytest.raises(ConfigError, match=message):
        break_off_at(lab, *arguments)
    assert lab.snapshot() == before
