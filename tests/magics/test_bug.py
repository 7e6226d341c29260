"""%lab bugs, %lab bug."""

from __future__ import annotations

from labengine.scenarios import SCENARIOS, bugs
from magic_notebook import START, Notebook


def test_bugs_lists_them_with_what_breaks_also_those_of_an_engine_or_a_kind(notebook: Notebook) -> None:
    assert [scenario.id for scenario in notebook.value("%lab bugs")] == [scenario.id for scenario in bugs()]
    assert "nano-vllm-219" in [scenario.id for scenario in notebook.value("%lab bugs nano-vllm duplicate")]
    assert "kind of bug" in notebook.refused("%lab bugs nothing")
    assert {"vllm", "nano-vllm", "double free"} < set(notebook.completions("%lab bugs "))


def test_bug_lists_what_there_is(notebook: Notebook) -> None:
    printed = notebook.printed("%lab bug")
    assert [line.split()[0] for line in printed.splitlines()] == list(SCENARIOS)


def test_bug_judges_the_report_and_opens_broken_and_fixed(started: Notebook) -> None:
    before = started.lab
    printed = started.printed("%lab bug nano-vllm-219")
    assert "Here nano-vllm goes wrong, nano-vllm+243 does not. The claim holds." in printed
    assert "2. A and B look their prompt up" in printed
    assert "8 of 12 blocks used" in printed and "5 of 12 blocks used" in printed  # the compare view, as text
    assert printed.index("5 of 12 blocks used") < printed.index("The claim holds"), "the picture comes first"
    assert "`lab` stays as it is" in printed and started.lab is before


def test_the_commands_act_on_the_report_until_close_and_then_on_the_lab_again(started: Notebook) -> None:
    before = started.lab
    started.printed("%lab bug nano-vllm-219")
    assert len(started.value("%lab step")) == 2 and before.snapshot().step == 0
    assert "act on `lab` again" in started.printed("%lab close")
    assert started.value("%lab step").step == 1 and started.lab is before
    comparison = started.shell.user_ns["comparison"]
    assert comparison.show().comm is not None and comparison.goto(1).left.step == 1, "its recording can still be seen"


def test_a_lab_made_by_hand_afterwards_comes_before_the_report(started: Notebook) -> None:
    started.printed("%lab bug nano-vllm-219 --column nano-vllm")
    started.printed("import labengine\nlab = labengine.Lab('simulated', num_blocks=7)")
    assert "all 7 blocks are free" in started.printed("%lab reset")


def test_bug_opens_both_sides_and_steps_them_together(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219")
    comparison = notebook.shell.user_ns["comparison"]
    assert "lab" not in notebook.shell.user_ns and comparison.right.parts.name == "nano-vllm+243"
    notebook.value("comparison.step()")
    assert [snapshot.step for snapshot in comparison.snapshots] == [2, 2]
    notebook.printed("%lab bug nano-vllm-71")
    assert comparison.left.status()["state"] == comparison.right.status()["state"] == "closed"


def test_bug_opens_another_column_on_request(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219 --column nano-vllm+243")
    lab = notebook.shell.user_ns["bug_lab"]
    assert lab.parts.name == "nano-vllm+243" and lab.snapshot().num_used_blocks == 5
    assert "step 1 of 1" in notebook.printed("%lab goto 1")


def test_bug_refuses_what_it_does_not_know_and_keeps_the_lab(started: Notebook) -> None:
    lab = started.lab
    assert "Did you mean 'nano-vllm-219'" in started.refused("%lab bug nano-vllm-218")
    assert "the scenario has 'PR 71', 'original'" in started.refused("%lab bug nano-vllm-71 --column mine")
    assert started.lab is lab and lab.status()["state"] == "paused"


def test_the_other_commands_act_on_both_sides(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219")
    left, right = (side for side in notebook.shell.user_ns["comparison"].sides)
    reports = notebook.value("%lab step")
    assert [report.step for report in reports] == [left.snapshot().step, right.snapshot().step] == [2, 2]
    notebook.printed("%lab add one more request --max-tokens 2")
    notebook.printed("%lab run --wait")
    assert left.output(2).finish_reason == right.output(2).finish_reason == "length"
    notebook.value(START)
    assert left.status()["state"] == right.status()["state"] == "closed"
    assert notebook.printed("%lab add alone --max-tokens 2").startswith("A (id 0)")
