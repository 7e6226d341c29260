"""%lab bug."""

from __future__ import annotations

from labengine.scenarios import SCENARIOS
from magic_notebook import START, Notebook


def test_bug_lists_what_there_is(notebook: Notebook) -> None:
    printed = notebook.printed("%lab bug")
    assert [line.split()[0] for line in printed.splitlines()] == list(SCENARIOS)


def test_bug_judges_the_report_and_opens_broken_and_fixed(started: Notebook) -> None:
    before = started.lab
    printed = started.printed("%lab bug nano-vllm-219")
    assert "The claim holds. nano-vllm goes wrong, nano-vllm+243 does not." in printed
    assert "2. A and B look their prompt up" in printed
    assert "8 of 12 blocks used" in printed and "5 of 12 blocks used" in printed  # the compare view, as text
    assert started.lab.parts.name == "nano-vllm"
    assert before.status()["state"] == "closed"


def test_bug_opens_both_sides_and_steps_them_together(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219")
    comparison = notebook.shell.user_ns["comparison"]
    assert comparison.left is notebook.lab and comparison.right.parts.name == "nano-vllm+243"
    notebook.value("comparison.step()")
    assert [snapshot.step for snapshot in comparison.snapshots] == [2, 2]
    notebook.printed("%lab bug nano-vllm-71")
    assert comparison.left.status()["state"] == comparison.right.status()["state"] == "closed"


def test_bug_opens_another_column_on_request(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219 --column nano-vllm+243")
    assert notebook.lab.parts.name == "nano-vllm+243"
    assert notebook.lab.snapshot().num_used_blocks == 5


def test_bug_refuses_what_it_does_not_know_and_keeps_the_lab(started: Notebook) -> None:
    lab = started.lab
    assert "Did you mean 'nano-vllm-219'" in started.refused("%lab bug nano-vllm-218")
    assert "there are 'PR 71', 'original'" in started.refused("%lab bug nano-vllm-71 --column mine")
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
