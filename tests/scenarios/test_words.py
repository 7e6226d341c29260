"""Words of scenarios: a TOML file is read into class attributes, and a wrong name in it is refused with its line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from labengine.config import ConfigError, GroupSpec
from labengine.events import BlockCached, BlockFreed
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, ThreadPassage
from labengine.scenarios.scenario import Column, Scenario
from labengine.scenarios.verdict import Table
from labengine.scenarios.words import filled, refuse_unused

WORDS = """[Mine]
id = "mine-1"
seen_by = ["read"]
finding = "{bad: wrong} of 8"
settings = {num_blocks = 8, groups = [[4], [4, "sliding_window", 8]]}
columns = [["bad", "Is wrong."], ["good", "Is right."]]
guide = [["BlockCached request_id=1 index>=2 slots", "Now.", "How many?"], ["BlockFreed", "Later."]]
story = 1
[Mine.report]
thread = "some/engine pull request 7"
title = "T"
state = "open"
as_of = "2026-11-01"
seen_in = "1.0"
[Mine.conclusion]
answer = "holds"
reason = "R."
passages = [["engine 1.0", "a.py", 3, "x = 1", "It says so."], ["some/engine 7", "And so."]]
"""

Make = Callable[[str], type[Scenario]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make the class Mine in a module with this text beside it."""
    module = ModuleType("scenario_of_a_test")
    module.__file__ = str(tmp_path / "mine.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def made(text: str) -> type[Scenario]:
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")

        def play(self: Scenario, lab: Lab) -> None:
            lab.step()

        def measure(self: Scenario, lab: Lab) -> dict[str, int]:
            return {"wrong": 3}

        columns = (Column("nano-vllm"), Column("vllm"))
        body = {"__module__": module.__name__, "columns": columns, "play": play, "measure": measure}
        mine: type[Scenario] = type("Mine", (Scenario,), body)
        vars(module)["Mine"] = mine
        refuse_unused(module)
        return mine

    return made


def test_a_file_becomes_class_attributes(make: Make) -> None:
    mine = make(WORDS)()
    assert [(one.name, one.edition, one.says) for one in mine.columns] == [
        ("bad", "nano-vllm", "Is wrong."),
        ("good", "vllm", "Is right."),
    ]
    assert mine.settings["groups"] == (GroupSpec(4), GroupSpec(4, "sliding_window", 8)) and mine.seen_by == ("read",)
    assert mine.report is not None and mine.report.name == "some/engine pull request 7"
    assert [type(one) for one in mine.conclusion.passages] == [CodePassage, ThreadPassage]
    assert mine.sentences == ("Now.",) and [stop.sentence for stop in mine.guide] == ["Now.", "Later."]
    assert mine.answer(Table("", {"bad": {"wrong": 3}})) == "3 of 8"


def test_a_stop_asks_for_fields(make: Make) -> None:
    first, second = make(WORDS).guide
    assert (first.question, first.about_slots, second.about_slots) == ("How many?", True, False)
    cached = [BlockCached(0, request, 0, index, b"", (0,), True) for request, index in ((1, 1), (0, 2), (1, 2), (1, 3))]
    assert [first.matches(event) for event in cached] == [False, False, True, True]
    assert second.matches(BlockFreed(0, 0, 0, 0, 0, "tail", "")) and not second.matches(cached[0])


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("seen_by", "seen_bye", 3, "mean 'seen_by'?"),
        ("BlockCached", "BlockCachd", 7, "mean 'BlockCached'?"),
        ("index>=2", "indx>=2", 7, "mean 'index'?"),
        ("slots", "slot", 7, "'slot'"),
        ('["good", "Is right."]', "", 6, "2 columns"),
        ("as_of", "asof", 13, "mean 'as_of'?"),
        ('title = "T"\n', "", 9, "'title'"),
        ("[Mine.conclusion]", "[Mine2.conclusion]", 15, "mean 'Mine'?"),
        ('id = "mine-1"', 'id = "mine-1"\nplay = "x"', 3, "'play'"),
        ("seen_by", "seen_by =", 3, "line 3"),
    ],
)
def test_a_wrong_name_is_refused_with_its_line(make: Make, right: str, wrong: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(WORDS.replace(right, wrong, 1))
    assert message in str(refused.value) and f"line {line}" in str(refused.value) and "mine.toml" in str(refused.value)


def test_a_figure_that_the_table_lacks_is_refused(make: Make) -> None:
    mine = make(WORDS.replace("{bad: wrong}", "{bad: right}"))()
    with pytest.raises(ConfigError, match=r"\{bad: right\}.*\{bad: wrong\}"):
        mine.answer(Table("", {"bad": {"wrong": 3}}))


@pytest.mark.parametrize(
    ("condition", "is_wrong"),
    [("lost", True), ("lost > 2", False), ("lost = 2", True), ("lost < kept", True), ("kept < lost", False)],
)
def test_figures_show_the_defect_where_a_condition_holds(make: Make, condition: str, is_wrong: bool) -> None:
    mine = make(WORDS)()
    type(mine).wrong_when = condition
    assert mine.is_wrong({"lost": 2, "kept": 5}) is is_wrong
    type(mine).wrong_when = ("lost > 9", condition)
    assert mine.is_wrong({"lost": 2, "kept": 5}) is is_wrong


def test_a_name_in_a_finding_that_the_code_does_not_give_is_refused() -> None:
    assert filled("{a: x} {more}", {"a": {"x": 1}}, {"more": 2}) == "1 2"
    with pytest.raises(ConfigError, match=r"\{moer\}"):
        filled("{moer}", {}, {"more": 2})
