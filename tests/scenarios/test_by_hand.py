"""labengine.scenario(): a scenario in ten lines, saved, and opened by somebody without its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.merge_policy import LateMerge
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external import HostStore
from labengine.lab import Lab
from labengine.session.saved.trace import run_script


class MergesIntoFree(LateMerge):
    """Merges into blocks that are free."""

    def is_alive(self, other: Block) -> bool:
        return True


def play(lab: Lab) -> None:
    for max_tokens in (1, 3):
        lab.add(token_ids=range(5), max_tokens=max_tokens)
    lab.run()


def mine(**settings: Any) -> Any:
    return labengine.scenario(
        MergesIntoFree, play=play, claim="A merge takes a free block.", num_blocks=8, block_size=4, **settings
    )


class RaisesInStepTwo(TokenBudgetScheduler):
    """Takes one step."""

    def schedule(self) -> StepPlan:
        if any(request.num_generated_tokens for request in self.running):
            raise RuntimeError("a second step")
        return super().schedule()


def test_a_part_that_raises_is_compared_up_to_there() -> None:
    def add(lab: Lab) -> None:
        lab.add(token_ids=range(5), max_tokens=3)

    claim = "It takes one step."
    one = labengine.scenario(RaisesInStepTwo, play=[add, Lab.step, Lab.step], claim=claim, num_blocks=8, block_size=4)
    assert one.verdict().reproduced and len(one.follow_up_acts()) == 1
    with one.compare() as comparison:
        assert [side.snapshot().step for side in comparison.sides] == [1, 1]
    with labengine.scenario(
        RaisesInStepTwo, play=play, claim=claim, num_blocks=8, block_size=4
    ).compare() as comparison:
        assert comparison.has_follow_up, "a single function is not done where both sides end elsewhere"


def test_each_lab_has_a_tier_of_its_own() -> None:
    made: list[HostStore] = []

    def tier() -> HostStore:
        made.append(HostStore())
        return made[-1]

    mine(external=tier).compare().close()
    assert len(made) == len(set(map(id, made))) > 4


def test_it_is_judged_and_compared() -> None:
    verdict = mine().verdict()
    assert verdict.reproduced and verdict.fixed and verdict.claim_holds
    assert verdict.before["rules broken"] > 0 == verdict.after["rules broken"]
    with mine().compare() as comparison:
        assert [side.snapshot().step for side in comparison.sides] == [3, 3]


def test_it_is_exported_as_a_page_that_says_how_it_is_seen(tmp_path: Path) -> None:
    text = mine().export(tmp_path / "mine.html").read_text()
    assert "A merge takes a free block." in text and "<b>held</b>" in text


class Raises(LateMerge):
    """Raises in every merge."""

    def is_alive(self, other: Block) -> bool:
        raise RuntimeError("no merge today")


def test_a_part_that_raises_ends_the_play_and_is_what_is_wrong() -> None:
    made = labengine.scenario(Raises, play=play, claim="It raises.", num_blocks=8, block_size=4)
    assert made.verdict().reproduced and "raises" in made.why_unseen


def test_a_play_that_raises_by_itself_is_the_users_to_mend() -> None:
    with pytest.raises(ZeroDivisionError):
        labengine.scenario(MergesIntoFree, play=lambda lab: 1 / 0, claim="It breaks.", num_blocks=8)


def test_its_own_judgement_counts() -> None:
    verdict = mine(is_wrong=lambda measured: measured["tokens computed"] > 1000).verdict()
    assert not verdict.reproduced


def test_a_saved_one_shows_its_source_and_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.lab"
    mine().save(path)
    trace = labengine.open(path)
    assert "MergesIntoFree" in trace.to_code() and trace.violations
    with pytest.raises(ConfigError, match=r"read to_code\(\), and then call rerun\(trust=True\)"):
        trace.rerun()
    with pytest.raises(ConfigError, match="trust"):
        trace.rerun(trust="yes")  # type: ignore[arg-type]
    with trace.rerun(trust=True) as lab:
        assert lab.snapshot() == trace.snapshot()
        assert [v.message for v in lab.violations] == [v.message for v in trace.violations]


SCRIPT = """
import labengine
from labengine import LateMerge


class Mine(LateMerge):
    def is_alive(self, other):
        return True


lab = labengine.Lab("simulated", num_blocks=8, block_size=4, parts=labengine.Parts(merge_policy=Mine))
print(lab)
"""


def test_a_rerun_knows_the_source_of_its_classes(capsys: pytest.CaptureFixture[str]) -> None:
    with run_script(SCRIPT, "a file") as lab:
        assert "    def is_alive(self, other):\n        return True" in lab.to_code()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"play": 3}, "play"),
        ({"play": [play, 3]}, "play"),
        ({"claim": ""}, "claim"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"fixed": "vlm"}, "mean 'vllm'"),
        ({"external": HostStore()}, "external="),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        labengine.scenario(MergesIntoFree, **{"play": play, "claim": "It breaks.", "num_blocks": 8, **arguments})
