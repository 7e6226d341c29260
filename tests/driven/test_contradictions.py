"""A driven engine whose states no events lead to: the lab keeps its recording and goes on from the state."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import labengine
from labengine import events as ev
from labengine.session.compare.comparison import Comparison
from labengine_widgets.feed.payload import stretch
from labengine_widgets.words.captions import CaptionWriter

OWN = Path(__file__).with_name("own_engine.py")
SETTINGS = {"num_blocks": 16, "block_size": 4}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """A sound engine, and one that keeps the references to freed blocks: its second request ends in step 3."""
    wrong = tmp_path_factory.mktemp("wrong") / "own_engine.py"
    wrong.write_text(OWN.read_text().replace("self.ref_counts[block] -= 1", "pass"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = labengine.drive(OWN, **SETTINGS), labengine.drive(wrong, **SETTINGS)
        with labengine.compare(one, other) as made:
            made.add(token_ids=range(9), max_tokens=5)
            made.add(token_ids=range(20, 28), max_tokens=3)
            made.run()
            yield made


def test_the_first_difference_is_where_the_state_contradicts_the_events(compared: Comparison) -> None:
    difference = compared.first_difference()
    assert difference is not None and difference.step == 3
    assert "ref_counts is" in compared.right.violations[0].message


def test_the_check_goes_on_and_knows_what_came_before(compared: Comparison) -> None:
    lab = compared.right
    found = lab.violations
    assert "watch" not in {one.rule for one in found} > {"said"}
    recorded = lab.timeline.of_kind(ev.ViolationFound)
    assert recorded[0].step == 3 and len(recorded) == len(found)
    assert f"{len(found)} violations" in str(lab)
    assert "B joins the waiting queue with 8 prompt tokens" in str(lab.why(request="B"))


def test_every_moment_has_its_state(compared: Comparison) -> None:
    timeline = compared.right.timeline
    contradicted = next(i for i, one in enumerate(timeline.events()) if isinstance(one, ev.ViolationFound))
    assert timeline.state(contradicted).requests[0].block_tables == [[0, 1, 2, 3]]
    assert timeline.state().snapshot() == compared.right.snapshot()
    assert sum(timeline.state().ref_counts) == 4 + 3, "the blocks of both"


def test_a_saved_run_and_a_copy_have_the_same_states(compared: Comparison, tmp_path: Path) -> None:
    timeline = compared.right.timeline
    compared.right.save(tmp_path / "run.lab")
    states = [timeline.state(moment).snapshot() for moment in range(timeline.end + 1)]
    for other in (labengine.open(tmp_path / "run.lab").timeline, timeline.until(timeline.end)):
        assert [other.state(moment).snapshot() for moment in range(timeline.end + 1)] == states
        assert [moment for moment, _ in other.corrections(0, timeline.end)] == [
            moment for moment, _ in timeline.corrections(0, timeline.end)
        ]
    assert len(timeline.corrections(0, timeline.end)) > 0


def test_captions_follow_the_state(compared: Comparison) -> None:
    timeline = compared.right.timeline
    ((moment, _), *_) = timeline.corrections(0, timeline.end)
    writer = CaptionWriter(timeline)
    writer.move_to(moment)
    assert writer._scene.fold.ref_counts == timeline.state(moment).ref_counts != timeline.state(moment - 1).ref_counts


def test_a_contradicted_step_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Its references are counted twice, and its update raises, once the second request is there."""
    wrong = tmp_path / "own_engine.py"
    text = OWN.read_text().replace("self.ref_counts[block] += 1", "self.ref_counts[block] += 1 + (block > 3)")
    failing = "if len(self.running) > 1:\n            raise ValueError('two')\n        for request, number in batch:"
    wrong.write_text(text.replace("for request, number in batch:", failing, 1))
    with labengine.drive(wrong, **SETTINGS) as lab:
        lab.add(token_ids=range(9), max_tokens=5)
        lab.step()
        before = lab.snapshot()
        lab.add(token_ids=range(20, 28), max_tokens=3)
        with pytest.raises(Exception, match="two"):
            lab.step()
        assert lab.snapshot().blocks == before.blocks and "watch" not in {one.rule for one in lab.violations}
        lab.abort("B")
        lab.step()
        assert lab.snapshot().step == 2 and lab.timeline.state().ref_counts == [1] * 4 + [0] * 12


def test_an_open_view_is_told_the_state(compared: Comparison) -> None:
    timeline = compared.right.timeline
    end = timeline.end
    told = stretch(compared.right.view_source(), timeline, 0, timeline.events(0, end), timeline.state(0))["corrections"]
    assert [moment for moment, _ in told] == [moment for moment, _ in timeline.corrections(0, end)]
    assert told[-1][1]["ref_counts"] == timeline.state().ref_counts
