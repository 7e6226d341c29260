"""%lab after %lab bug: time, selection and breakpoints are set on both sides."""

from __future__ import annotations

import pytest

from labengine.session.compare.comparison import Comparison
from magic_notebook import Notebook


@pytest.fixture
def both(notebook: Notebook) -> Notebook:
    notebook.printed("%lab bug nano-vllm-219")
    return notebook


def comparison(notebook: Notebook) -> Comparison:
    found = notebook.shell.user_ns["comparison"]
    assert isinstance(found, Comparison)
    return found


def test_time_is_looked_at_on_both_sides(both: Notebook) -> None:
    both.value("%lab step 2")
    said = both.printed("%lab goto 1")
    assert "nano-vllm: step 1 of 3" in said and "nano-vllm+243: step 1 of 3" in said
    assert "8 of 12 blocks used" in said and "5 of 12 blocks used" in said
    assert said.endswith("These are the recordings. Neither engine has moved: they are still after step 3.\n")
    assert both.printed("%lab forward").count("step 2 of 3") == 2
    assert both.printed("%lab back 2").count("before step 1 of 3") == 2
    assert "comparison.left.goto(1, 4)" in both.refused("%lab goto 1 4")
    assert "from 0 to 3" in both.refused("%lab goto 4")


def test_choice_and_why_are_of_both(both: Notebook) -> None:
    assert "block 3" in both.printed("%lab select block 3")
    assert [side.selection for side in comparison(both).sides] == [comparison(both).selection] * 2
    assert "nothing" in both.printed("%lab select nothing") and comparison(both).selection is None
    why = both.value("%lab why")
    assert "nano-vllm and nano-vllm+243 differ" in why.question
    assert "comparison.left.why(block=3) or comparison.right.why(block=3)" in both.refused("%lab why block 3")


def test_without_two_sides_why_asks_what_about(started: Notebook) -> None:
    assert "%lab why block 3" in started.refused("%lab why")


def test_break_stops_both_and_says_on_which_side(both: Notebook) -> None:
    assert both.printed("%lab break") == "no breakpoints\n"
    said = both.printed("%lab break RequestFinished request_id=1")
    assert said == "breakpoint 1, on both sides: RequestFinished request_id=1, met 0 + 0 times\n"
    both.value("alone = comparison.right.break_on('BlockEvicted')")
    assert "right side: breakpoint 2: BlockEvicted" in both.printed("%lab break")
    both.value("alone.close()")
    ran = both.run("%lab step 9")
    assert "nano-vllm: stopped after step" in ran.printed and "nano-vllm+243: stopped after step" in ran.printed
    assert both.printed("%lab status").count("stopped after step") == 2
    assert "the lab has 1" in both.refused("%lab break --off 2")
    assert both.printed("%lab break --off 1") == "no breakpoints\n" and not comparison(both).left.breakpoints
    assert "done after step" in both.printed("%lab run --wait")


def test_a_run_of_both_reports_a_stop_of_the_right_side(both: Notebook) -> None:
    both.value("comparison.reset()")
    both.printed("%lab add some prompt that is long enough for a block or two --copies 2 --max-tokens 3")
    assert "block_hash=12345678" in both.printed("%lab break BlockCached block_hash=12345678"), "digits, and no number"
    both.printed("%lab break --off")
    both.printed("%lab break BlockMerged")
    assert both.printed("%lab run --wait").startswith("nano-vllm+243: stopped after step 1")


def test_what_is_closed_can_still_be_looked_at(both: Notebook) -> None:
    both.value("%lab step")
    both.printed("%lab close")
    assert "state  closed" in both.printed("%lab status") and "no breakpoints" in both.printed("%lab break")
    assert both.printed("%lab goto 1").count("step 1 of 2") == 2
    assert "closed" in both.refused("%lab rewind 1") and "closed" in both.refused("%lab break BlockFreed")


def test_rewind_brings_both_back_and_fork_is_refused(both: Notebook) -> None:
    both.value("comparison.follow_up()")
    newest = comparison(both).snapshots[0].step
    assert both.printed("%lab rewind 1") == (
        f"both engines are after step 1; use %lab rewind {newest} to go forward again\n"
    )
    assert [snapshot.step for snapshot in comparison(both).snapshots] == [1, 1] and comparison(both).has_follow_up
    assert "between 0 and" in both.refused("%lab rewind 99")
    assert "comparison.left.fork(1, edition='vllm')" in both.refused("%lab fork 1 --edition vllm")
    assert "fork" not in both.shell.user_ns
