"""What holds for every scenario: broken goes wrong, fixed does not, the checks see what it declares, the guide fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from importlib import import_module

import pytest

from labengine.core.seams import overrides
from labengine.record.violation import RULES
from labengine.scenarios import SCENARIOS, bug
from labengine.scenarios.report import ThreadPassage
from labengine.scenarios.scenario import KINDS, Experiment
from scenarios.guided import reached_stops

VERSION = re.compile(r"\d+\.\d+|\b[0-9a-f]{7,}\b|\b\d+\b")
"""A release, a commit, a number of a thread or a date."""
UNDATED = re.compile(r"\bState not known|\b(is|are|both|still) open\b|\bOpen: |\bclaim holds\b")
"""Sentences that belong to the dated report, or to the conclusion."""

each_scenario = pytest.mark.parametrize("id", SCENARIOS)


ALSO_BROKEN = {
    ("nano-vllm-114", "PR 199"): {"write"},  # it computes the last token of a full hit again, in the shared block
    ("vllm-44409", "bulk touch"): {"said", "ref_count"},  # it touches hits outside the window, which no table holds
}
"""Columns that do not show the defect, and break rules of their own."""


@pytest.mark.parametrize(("id", "number"), [(id, number) for id in SCENARIOS for number in range(len(bug(id).columns))])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_column_shows_the_defect_or_does_not_and_the_declared_checks_see_it(id: str, number: int) -> None:
    """The first is broken, the second fixed; another one without the defect breaks a rule only where that is known."""
    scenario = bug(id)
    name = scenario.columns[number].name
    with scenario.played(name) as lab:
        is_wrong, first = scenario.is_wrong(scenario.measure(lab)), scenario.first_wrong(lab)
        rules = list(dict.fromkeys(violation.rule for violation in lab.violations))
    if number == 0:
        assert is_wrong and tuple(rules) == scenario.seen_by and (first is not None or not rules)
    elif number == 1:
        assert not is_wrong and rules == [] and first is None
    elif not is_wrong:
        assert {*rules} == ALSO_BROKEN.get((id, name), set())


CANNOT_BE_RIGHT = {
    ("nano-vllm-219", "collision", "nano-vllm+243"): {"read"},  # six bits: it compares a block's own tokens alone
    ("nano-vllm-243", "random prompts", "labengine"): {"duplicate"},  # six bits: equal blocks are behind unequal ones
}
"""Right columns of further experiments that break a rule all the same, because the experiment itself does."""


@pytest.mark.parametrize(("id", "name"), [(id, name) for id in SCENARIOS for name in bug(id).experiments])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_right_columns_of_an_experiment_break_no_rule(id: str, name: str) -> None:
    """Right are an edition as it is, and the column that is the scenario's fixed one."""
    experiment, num_right = bug(id).experiments[name], 0
    for column in experiment.columns:
        with experiment.played(column.name) as lab:
            if column.name == bug(id).columns[1].name or not overrides(lab.parts):
                broken = {violation.rule for violation in lab.violations}
                assert broken == CANNOT_BE_RIGHT.get((id, name, column.name), set()), column.name
                assert lab.crash is None, column.name
                num_right += 1
    assert num_right


@each_scenario
def test_every_stop_of_the_guide_is_reached_in_order(id: str) -> None:
    scenario = bug(id)
    num_before = len(scenario.sentences)
    assert tuple(stop.sentence for stop in scenario.guide[:num_before]) == scenario.sentences
    with scenario.compare() as comparison:
        assert reached_stops(comparison) == list(range(num_before))
        if comparison.has_follow_up:
            comparison.follow_up()
            assert len(scenario.guide) > num_before
        assert reached_stops(comparison) == list(range(len(scenario.guide)))
        assert not comparison.has_follow_up


@each_scenario
def test_it_has_all_its_text(id: str) -> None:
    scenario, report = bug(id), bug(id).report
    assert scenario.id == id
    assert scenario.kind in KINDS and scenario.breaks.endswith(".") and "\n" not in scenario.breaks
    assert set(scenario.seen_by) <= RULES.keys()
    assert bool(scenario.why_unseen) is not bool(scenario.seen_by)
    assert len(scenario.columns) >= 2 and len(scenario.sentences) >= 3
    names = [column.name for column in scenario.columns]
    assert len(set(names)) == len(names)
    for experiment in (scenario, *scenario.experiments.values()):
        assert isinstance(experiment, Experiment) and experiment.question
        assert all(column.says.endswith(".") for column in experiment.columns)
    assert report is not None and id.rpartition("-")[2] in report.url and report.url.startswith("https://github.com/")
    assert date(2024, 1, 1) < date.fromisoformat(report.as_of)
    assert VERSION.search(report.seen_in) and (not report.mended_in or VERSION.search(report.mended_in))
    assert not any(text.endswith(".") for text in (report.seen_in, report.mended_in, *report.needs))


@each_scenario
def test_a_claim_holds_only_with_a_run_or_a_passage(id: str) -> None:
    conclusion = bug(id).conclusion
    assert conclusion.runs or conclusion.passages or not conclusion.answer.startswith("holds")
    says = [passage.says for passage in conclusion.passages]
    assert all(text.endswith(".") and text[0].isupper() for text in (conclusion.reason, *says))
    for passage in conclusion.passages:
        assert VERSION.search(passage.source) and (isinstance(passage, ThreadPassage) or passage.text)


@each_scenario
def test_the_verdict_answers_with_figures_and_does_not_say_what_upstream_is_today(id: str) -> None:
    scenario = bug(id)
    verdict = scenario.verdict()
    assert verdict.reproduced and verdict.fixed
    assert verdict.findings and all(any(map(str.isdigit, finding)) for finding in verdict.findings)
    columns = [column.says for one in (scenario, *scenario.experiments.values()) for column in one.columns]
    module = import_module(SCENARIOS[id]).__doc__
    texts = [module, scenario.claim, scenario.breaks, scenario.why_unseen, *columns, *scenario.sentences]
    texts += [stop.sentence for stop in scenario.guide] + list(verdict.findings)
    assert [text for text in texts if text and UNDATED.search(text)] == []


@each_scenario
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_can_be_patched_and_a_patch_that_changes_nothing_makes_no_difference(id: str) -> None:
    with bug(id).broken() as lab:

        class Same(lab.parts.block_pool):
            """Touches as the class in use."""

            def touch(self, block_ids: Sequence[int]) -> None:
                super().touch(block_ids)

        with lab.rerun(Same) as comparison:
            assert comparison.first_difference() is None
            assert lab.timeline is not None and comparison.timelines[0].events() == lab.timeline.events()


def test_the_engine_is_in_the_id() -> None:
    assert bug("nano-vllm-219").engine == "nano-vllm" and bug("vllm-44409").engine == "vllm"
