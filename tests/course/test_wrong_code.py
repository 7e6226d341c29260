"""Wrong code of a reader: it loops, raises, returns another type, corrupts tables or does not answer the question."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import labengine
from labengine.core.block_pool import BlockPool
from labengine.core.merge_policy import MergePolicy
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course import function_exercise
from labengine.course.blank import NO_RETURN
from labengine.course.exercises.your_own_policy import KeepWhatComesBack
from labengine.course.function_exercise import FunctionExercise, plain_value
from labengine_widgets.compare.view import CompareView

pytestmark = pytest.mark.usefixtures("loops_end_soon")

SLOT, KEEP, FREEING = "why-blocks/slot", "late-merge/keep-first", "reading-a-run/freeing-order"
VICTIM, WAY = "continuous-batching/victim", "prefix-caching/in-the-way"


def endless(*_: Any) -> int:
    number = 0
    while True:
        number += 1


def raising(table: list[int], position: int, block_size: int) -> int:
    return table[position]


def changing(table: list[int], position: int, block_size: int) -> int:
    table.append(1)
    return table[position // block_size] * block_size + position % block_size


def exits(token_ids: list[int], block_size: int) -> None:
    sys.exit()


def as_float(table: list[int], position: int, block_size: int) -> float:
    return float(table[position // block_size] * block_size + position % block_size)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (endless, "does not end: it is in endless"),
        (raising, "raises IndexError"),
        (changing, "changes its argument `table`"),
        (as_float, "of type float"),
        (lambda: 1, "raises TypeError"),
        (17, "17"),
        ("<b>slot</b>", "<b>slot</b>"),
    ],
)
def test_a_function_that_is_wrong(answer: Any, said: str) -> None:
    exercise = labengine.exercise(SLOT)
    result = exercise.check(answer)
    assert result.state == "wrong" and said in result.text
    assert "<b>" not in result._repr_html_().replace("<b>✗</b>", "")


class Agrees(int):
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def replaces_the_judge(*_: Any) -> int:
    function_exercise._is_equal = function_exercise._same = lambda one, other: True  # type: ignore[assignment]
    return 0


def empties_what_is_right(*_: Any) -> int:
    frame: Any = sys._getframe()
    while frame := frame.f_back:
        if isinstance(exercise := frame.f_locals.get("self"), FunctionExercise):
            exercise._expected, exercise.cases = [], ()
    return 0


@pytest.mark.parametrize("answer", [replaces_the_judge, empties_what_is_right, lambda *_: Agrees(0)])
def test_what_judges_an_answer_is_outside_its_reach(answer: Callable[..., Any]) -> None:
    exercise = labengine.exercise(SLOT)
    assert exercise.check(answer).state == "wrong" and exercise.show(answer).state == "wrong"


def test_a_value_is_judged_as_plain_data() -> None:
    point = namedtuple("point", "x y")(1, [Agrees(2), {"a": {3.5, True}}])
    found = plain_value(point)
    assert found == (1, [2, {"a": {3.5, True}}]) and type(found) is tuple and type(found[1][0]) is int
    assert repr(plain_value([object])) == "[<class 'object'>]"
    assert repr(plain_value("x" * 2**21)).endswith("x'") and not isinstance(plain_value("x" * 2**21), str)


def test_a_list_is_as_good_as_a_tuple() -> None:
    exercise: Any = labengine.exercise("first-light/peak")

    def peak_and_after(num_tokens: int, block_size: int, num_copies: int) -> list[int]:
        return list(exercise.right_answer(num_tokens, block_size, num_copies))

    def one_too_many(num_tokens: int, block_size: int, num_copies: int) -> list[int]:
        return [number + 1 for number in peak_and_after(num_tokens, block_size, num_copies)]

    assert exercise.check(peak_and_after) and exercise.show(peak_and_after)
    assert "of type" not in exercise.check(one_too_many).text
    assert "it should return (" in exercise.check(one_too_many).text
    assert "of type int" in exercise.check(lambda *sizes: 3).text


class Loops(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        while True:
            block_id += 1


class Raises(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        raise RuntimeError("<b>no</b>")


class OtherType(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> Any:
        return "x"


class Corrupts(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return (block_id + 1,)


class ChoosesANumber(TokenBudgetScheduler):
    def choose_victim(self, request: Request) -> Any:
        return 15


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = name
    return function


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        (KEEP, Loops, ["does not end", "mapped_after"]),
        (KEEP, Raises, ["Raises.mapped_after", "RuntimeError", "after event"]),
        (KEEP, OtherType, ["`mapped_after`", "a tuple", "the text 'x'."]),
        (KEEP, Corrupts, ["Corrupts.mapped_after", "the rule “"]),
        (VICTIM, ChoosesANumber, ["ChoosesANumber.choose_victim", "one of the requests", "15"]),
        (KEEP, NanoBlockPool, ["workload="]),
        (KEEP, int, ["int"]),
        (KEEP, "KeepFirst", ["KeepFirst"]),
        (FREEING, named("freeing_order", lambda self, n: [0] * n), ["freeing_order"]),
        (FREEING, named("freeing_order", lambda self: range(3)), ["freeing_order"]),
        (FREEING, named("other", lambda self, n: range(n)), ["freeing_order", "other", "num_entries)"]),
    ],
)
def test_an_override_that_is_wrong(name: str, answer: Any, said: Sequence[str]) -> None:
    result = labengine.exercise(name).check(answer)
    assert result.state == "wrong"
    assert [word for word in said if word not in result.text] == []
    assert "<b>no" not in result._repr_html_() and "RuntimeError: <b>" not in result._repr_html_()


def keeping(mapped_after: Callable[..., Any]) -> type:
    return type("KeepFirst", (MergePolicy,), {"mapped_after": mapped_after})


@pytest.mark.parametrize(
    ("mapped_after", "yours"),
    [
        (lambda self, mapped, block_id: mapped or block_id, "the number 0."),
        (lambda self, mapped, block_id: {block_id}, "the set {0}."),
        (lambda self, mapped, block_id: (i for i in (block_id,)), "<generator object"),
        (lambda self, mapped, block_id: (1.5,), "(1.5,)."),
    ],
)
def test_a_value_that_the_map_cannot_hold_is_named(mapped_after: Callable[..., Any], yours: str) -> None:
    exercise = labengine.exercise(KEEP)
    for result in (exercise.check(keeping(mapped_after)), exercise.show(keeping(mapped_after))):
        assert result.state == "wrong" and "`mapped_after`" in result.text and f"returned {yours}" in result.text


class Rarely(BlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return block_ids if len(block_ids) > 5 else super().reused_first(block_ids)


def test_a_policy_that_changes_nothing_has_a_sentence() -> None:
    exercise = labengine.exercise(WAY)
    assert "without Rarely" in exercise.check(Rarely).text
    assert "without Rarely" in exercise.check(Rarely).text
    assert [row[0] for row in exercise.table.rows][2:4] == ["Rarely 1", "Rarely 2"]


@pytest.mark.parametrize("returned", [[999], [0, 0], None])
def test_blocks_that_were_not_freed_are_named_with_the_method(returned: object) -> None:
    class Foreign(BlockPool):
        def reused_first(self, block_ids: list[int]) -> Any:
            return returned

    said = labengine.exercise(WAY).check(Foreign).text
    assert "Foreign.reused_first" in said and "[2, 1, 0]" in said and f"returned {returned}" in said


class Odd:
    """A value with which nothing can be done."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (SLOT, lambda table, position, block_size: Odd()),
        (KEEP, keeping(lambda self, mapped, block_id: Odd())),
        (KEEP, keeping(lambda self, mapped, block_id: (Odd(),))),
        (FREEING, lambda self, num_entries: Odd()),
        (FREEING, lambda self, num_entries: [Odd()] * num_entries),
        ("late-merge/wait-a-step", lambda self, request, skipped: Odd()),
        ("late-merge/num-used", Odd()),
        ("late-merge/one-short", Odd()),
    ],
)
def test_nothing_that_an_answer_returns_raises(name: str, answer: Any) -> None:
    exercise = labengine.exercise(name)
    if callable(answer):
        answer.__name__ = getattr(exercise.right_answer, "__name__", "")
    assert exercise.check(answer).state == "wrong"
    if callable(answer):
        shown = exercise.show(answer)
        assert isinstance(shown, CompareView) or shown.state == "wrong"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (SLOT, lambda table, position, block_size: [None][0]),
        ("prefix-caching/chain", lambda token_ids, block_size: print(end="")),
        ("prefix-caching/chain", exits),
    ],
)
def test_none_that_comes_from_somewhere_is_not_taken_for_a_missing_return(name: str, answer: Any) -> None:
    result = labengine.exercise(name).check(answer)
    assert result.state == "wrong" and NO_RETURN not in result.text


def test_a_missing_return_is_named_and_not_taken_for_an_empty_function() -> None:
    def chain(token_ids: list[int], block_size: int) -> None:
        hashes = []
        for token_id in token_ids:
            hashes.append(token_id)

    def returns_none(token_ids: list[int], block_size: int) -> None:
        return None

    def skips(self: Any, request: Any, skipped: Any) -> None:
        bool(self.running)

    for name, answer in (("prefix-caching/chain", chain), ("prefix-caching/chain", returns_none),
                         ("late-merge/wait-a-step", skips)):  # fmt: skip
        result = labengine.exercise(name).check(answer)
        assert result.state == "wrong" and NO_RETURN in result.text


def takes_out(self: TokenBudgetScheduler, request: Request) -> Request:
    victim = min(reversed(self.running), key=lambda one: one.num_computed_tokens)
    self.running.remove(victim)
    return victim


def test_a_victim_that_is_taken_out_of_the_list_gets_its_sentence() -> None:
    exercise = labengine.exercise("continuous-batching/victim")
    result = exercise.check(type("Takes", (TokenBudgetScheduler,), {"choose_victim": takes_out}))
    assert result.state == "wrong" and "`choose_victim` only chooses" in result.text
    assert len(result.pictures) == 2, "a run that has ended is drawn at its end"


@pytest.mark.parametrize("answer", [Raises, Corrupts, MergePolicy])
def test_show_draws_both_engines_also_where_the_answer_is_wrong(answer: type) -> None:
    shown = labengine.exercise(KEEP).show(answer)
    assert isinstance(shown, CompareView)
    shown.close()


def test_a_loop_is_drawn_up_to_where_it_began() -> None:
    result = labengine.exercise(KEEP).show(Loops)
    assert "does not end" in result.text and "<svg" in result._repr_html_()


@pytest.mark.parametrize("name", [SLOT, KEEP, FREEING])
def test_a_blank_answer_is_seen(name: str) -> None:
    def blank(*_: Any) -> None:
        """Do it."""

    class BlankPolicy(MergePolicy):
        def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]: ...

    exercise = labengine.exercise(name)
    for answer in (None, blank, BlankPolicy, ...):
        assert exercise.check(answer).state == exercise.show(answer).state == "blank"
    assert len(labengine.progress()) == 0


def test_a_failing_check_has_a_picture_of_both_at_the_first_difference() -> None:
    result = labengine.exercise(KEEP).check(MergePolicy)
    assert [title for title, _ in result.pictures] == ["as it should be", "yours"]
    assert result._repr_html_().count("<svg") == 2


def test_a_policy_that_breaks_a_rule_gets_no_score() -> None:
    class Twice(NanoBlockPool):
        def reused_first(self, block_ids: list[int]) -> list[int]:
            return [*block_ids, *block_ids]

    exercise = labengine.exercise("reading-a-run/race")
    result = exercise.check(Twice)
    assert result.state == "wrong" and "Twice" in result.text and exercise.runs[1:] == []


def test_the_runs_of_a_policy_are_kept_in_a_table() -> None:
    exercise: Any = labengine.exercise("reading-a-run/race")
    for answer in (NanoBlockPool, exercise.right_answer):
        result = exercise.check(answer)
    assert result and [row[0] for row in exercise.table.rows[1:]] == [
        "as it was", "NanoBlockPool", "CopiesFirst", "to reach",
    ]  # fmt: skip
    assert labengine.progress()["reading-a-run/race"].score == exercise.runs[-1].total == exercise.goal
    tomorrow: Any = labengine.exercise("reading-a-run/race")
    assert [(row[0], row[-1]) for row in tomorrow.table.rows[2:-1]] == [
        (f"{run.name} (earlier)", f"{run.total:g}") for run in exercise.runs[1:]
    ]


@pytest.mark.parametrize(("answer", "said"), [(10**6, "from 0 to"), ("x", "got 'x'"), (1.5, "got 1.5")])
def test_an_event_that_does_not_exist(answer: Any, said: str) -> None:
    assert said in labengine.exercise("reading-a-run/lost-entry").check(answer).text


def test_an_event_can_be_pointed_at_in_the_dashboard() -> None:
    exercise: Any = labengine.exercise("reading-a-run/lost-entry")
    exercise.show()
    assert exercise.check().state == "blank"
    exercise.lab.selection = ("event", 3)
    assert "event 3 (" in exercise.check().text
    exercise.lab.selection = None
    exercise.lab.moment = exercise.first[0] + 1
    assert exercise.check()
    exercise.lab.close()


@pytest.mark.parametrize(
    ("name", "answer", "said"),
    [
        ("why-blocks/next-block", 99, "block 99"),
        ("why-blocks/next-block", "x", "got 'x'"),
        ("continuous-batching/preempted", "Z", "request 25"),
        ("reading-a-run/evicted", "0:", "'0:'"),
        ("why-blocks/num-free", [1], "got [1]"),
    ],
)
def test_a_prediction_that_is_none(name: str, answer: Any, said: str) -> None:
    exercise: Any = labengine.exercise(name)
    assert said in exercise.answer(answer).text
    assert said in exercise.check(answer).text
    assert exercise.question.prediction is None and exercise.question.is_open


def test_a_step_without_a_prediction_reveals_too_and_can_be_asked_again() -> None:
    exercise: Any = labengine.exercise("why-blocks/next-block")
    exercise.lab.step()
    assert f"#{exercise._right_answers()[0]}" in exercise.question.verdict
    assert not exercise.check()
    assert exercise.answer(1).state == "wrong"
    exercise.again()
    assert exercise.answer(exercise._right_answers()[0]).state == "blank"
    assert exercise.check()


def test_a_right_last_step_after_a_wrong_one_is_reported_as_right() -> None:
    exercise: Any = labengine.exercise("why-blocks/num-free")
    first, last = exercise._right_answers()
    assert exercise.check(first + 1).state == "wrong"
    result = exercise.check(last)
    assert result.state == "wrong" and "1 of 2 right: this answer is" in result.text
    exercise.again()
    assert exercise.check(first).state == "blank" and exercise.check(last)


class PlainSet(KeepWhatComesBack):
    def touch(self, block_ids: Any) -> None:
        labengine.BlockPool.touch(self, block_ids)
        self.was_hit |= set(block_ids)


class RaisesAfterTheVisit(PlainSet):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        if (len(self.was_hit.intersection(block_ids)), len(block_ids)) == (9, 10):
            raise RuntimeError("nine blocks were hit")
        return super().reused_first(block_ids)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PlainSet, "`self._journal.record("),
        (RaisesAfterTheVisit, "After a step is undone"),
    ],
)
def test_a_policy_that_still_knows_of_an_undone_step_reaches_the_score_and_does_not_pass(
    answer: type, said: str
) -> None:
    result = labengine.exercise("your-policy/one-off-texts").check(answer)
    assert result.state == "wrong" and said in result.text
    assert ("nine blocks were hit" in result.text) == (answer is RaisesAfterTheVisit)
    assert not labengine.progress()["your-policy/one-off-texts"].passed
