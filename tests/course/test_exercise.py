"""labengine.exercise(): docs/exercises.md runs, and what cannot work is refused with a sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

import labengine
from checkout import ROOT
from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.course.check_result import marked
from labengine.course.exercises.your_own_policy import KeepWhatComesBack
from labengine.course.first_wrong_exercise import FirstWrongExercise
from labengine.course.policy_exercise import PolicyExercise
from labengine.events import ViolationFound

PAGE = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")


def add(a: int, b: int) -> int:
    return a + b


def play(lab: Any) -> None:
    lab.add(token_ids=range(5), max_tokens=1)
    lab.run()


def test_the_page_runs() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for text in blocks:
        exec(text, names)
    assert len(blocks) == 4 and labengine.progress()["mine/first-block"].passed


@pytest.mark.parametrize(
    ("name", "task", "keywords", "said"),
    [
        ("", None, {}, "name must be"),
        ("late-merge/keep-frist", None, {}, "did you mean 'late-merge/keep-first'"),
        ("mine", None, {}, "'mine'"),
        ("mine", "", {"cases": []}, "task"),
        ("mine", "Do it.", {}, "cases= (a function), workloads="),
        ("mine", "Do it.", {"cases": [], "solution": add}, "got []"),
        ("mine", "Do it.", {"cases": [1], "solution": add}, "got [1]"),
        ("mine", "Do it.", {"cases": [(1, "x")], "solution": add}, "(1, 'x')"),
        ("mine", "Do it.", {"cases": [(1, 2)]}, "solution"),
        ("mine", "Do it.", {"cases": [(1, 2)], "solution": add, "hints": "one"}, "hints"),
        ("mine", "Do it.", {"cases": [(1, 2)], "solution": add, "mistakes": [add]}, "mistakes"),
        ("mine", "Do it.", {"workloads": [play]}, "solution"),
        ("mine", "Do it.", {"workloads": [], "solution": labengine.LateMerge}, "workloads"),
        ("mine", "Do it.", {"workloads": [play], "solution": int}, "int"),
        ("mine", "Do it.", {"workloads": [play], "solution": labengine.LateMerge, "num_blocks": 0}, "num_blocks"),
        ("mine", "Do it.", {"workloads": [play], "solution": labengine.LateMerge, "edition": "vlm"}, "vllm"),
        ("mine", "Do it.", {"workloads": [play], "solution": labengine.LateMerge, "score": "luck", "goal": 1}, "score"),
        ("mine", "Do it.", {"workloads": [play], "solution": labengine.LateMerge, "score": "steps"}, "goal"),
        ("mine", "Do it.", {"broken": "nano-vllm-1"}, "nano-vllm-1"),
        ("mine", "Do it.", {"broken": labengine.LateMerge}, "play(lab)"),
        ("mine", "Do it.", {"truth": len}, "play(lab)"),
        ("mine", "Do it.", {"truth": len, "play": play, "about": "luck"}, "'luck'"),
        ("mine", "Do it.", {"truth": len, "play": play, "rounds": 0}, "rounds"),
    ],
)
def test_what_cannot_work_is_refused(name: str, task: str | None, keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        labengine.exercise(name, task, **keywords)
    assert said in str(error.value)


def test_verify_says_what_does_not_hold() -> None:
    wrong_hint = labengine.exercise("m", "Add.", solution=add, cases=[(1, 2)], mistakes=[(add, "No.")])
    with pytest.raises(ConfigError, match=r"'No\.'"):
        wrong_hint.verify()
    policy = labengine.exercise(
        "m",
        "Faster.",
        solution=labengine.LateMerge,
        workloads=[play],
        score="steps",
        goal=0,
        num_blocks=4,
        block_size=4,
    )
    assert isinstance(policy, PolicyExercise)
    with pytest.raises(ConfigError, match="solution"):
        policy.verify()


def test_a_workload_that_goes_wrong_with_the_solution_is_named() -> None:
    def fails(lab: Any) -> None:
        raise ValueError("no")

    made = labengine.exercise("m", "Merge.", solution=labengine.LateMerge, workloads=[fails])
    assert "ValueError: no" in made.check(labengine.LateMerge).text


def test_texts_are_escaped() -> None:
    made = labengine.exercise("<i>n</i>", "<script>x</script> `<b>`", solution=add, cases=[(1, 2)], hints=["<u>h</u>"])
    html = made._repr_html_() + made.hint()._repr_html_() + made.solution()._repr_html_()
    assert all(tag not in html for tag in ("<i>", "<script>", "<u>")) and "<code>&lt;b&gt;</code>" in html


def test_code_and_emphasis_are_marked() -> None:
    html = "<code>2 * a * b</code> goes to the <em>head</em> &lt; tail"
    assert marked("`2 * a * b` goes to the *head* < tail") == html
    assert marked("2 * 3 * 4") == "2 * 3 * 4"


class _KeepsLonger(labengine.BlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return [block_id for block_id in block_ids if self.is_worthless(block_id)]

    def is_worthless(self, block_id: int) -> bool:
        return not self.blocks[block_id].keys


def test_a_class_is_announced_with_the_methods_that_it_overrides() -> None:
    mine = labengine.exercise("m", "Keep more.", solution=_KeepsLonger, workloads=[play])
    assert "`def reused_first(self, block_ids)`" in mine.how_to_answer and "is_worthless" not in mine.how_to_answer


def test_a_broken_run_names_nothing_before_the_first_try() -> None:
    """Neither its checks, nor its title, nor the methods that Why? names."""
    made = labengine.exercise("why-blocks/twice")
    assert isinstance(made, FirstWrongExercise)
    assert made.lab.timeline is not None and made.judged.timeline is not None
    said = " ".join([made.lab.title, str(made.lab.why(event=17)), *map(str, made.lab.timeline.events())])
    assert "GivesOneTwice" not in said and "ViolationFound" not in said and made.lab.violations == []
    judged = [event for event in made.judged.timeline.events() if not isinstance(event, ViolationFound)]
    assert judged[1:] == made.lab.timeline.events()[1:], "the same run, event by event"
    result = made.check(3)
    assert "`.judged.show()`" in result.text and made.judged.violations
    assert "GivesOneTwice" in str(made.lab.why(event=17)), "after the first try the methods are named"


def test_what_a_policy_remembers_is_undone_with_its_step() -> None:
    with labengine.Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=KeepWhatComesBack)) as lab:
        lab.add(token_ids=range(9), max_tokens=1)
        lab.run()
        pool: Any = lab.session.stepper.engine.scheduler.manager.pool
        pool._journal.open()
        pool.touch([0, 1])
        assert pool.was_hit == {0, 1}
        pool.evict(pool.blocks[0])
        pool._journal.rollback()
        assert pool.was_hit == set() and pool.blocks[0].keys
