"""%lab add, %%prompt, step, run, pause, reset, abort."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from endless_parts import switch
from labengine.core.proposer import NGram
from labengine.engine import endless
from labengine.engine.draft_model import DraftModel
from labengine.events import StepStarted
from labengine.magics.arguments import proposer_of
from magic_notebook import START, Notebook
from waiting import PATIENCE, wait_until

# -- adding ------------------------------------------------------------------------------------------------------------


def test_prompt_adds_copies_with_their_sampling(notebook: Notebook) -> None:
    notebook.value(START)
    cell = (
        "%%prompt --copies 2 --max-tokens 5 --temperature 0.5 --top-k 9 --top-p 0.8 --seed 3 --ignore-eos\nIt's  so\n"
    )
    assert notebook.printed(cell) == "A (id 0), B (id 1) wait with 2 tokens each: %lab step, or %lab run\n"
    for request in notebook.lab.session.stepper.engine.requests.values():
        s = request.sampling
        assert (s.max_tokens, s.temperature, s.top_k, s.top_p, s.seed, s.ignore_eos) == (5, 0.5, 9, 0.8, 3, True)
        assert "".join(map(notebook.lab.token_text, request.token_ids)) == "It's  so"


def test_prompt_adds_several_answers_and_each_is_a_request_of_its_own(notebook: Notebook) -> None:
    notebook.value(START)
    printed = notebook.printed("%%prompt -n 3 --max-tokens 4\none two three\n")
    assert printed == "A (id 0), B (id 1), C (id 2) wait with 3 tokens each: %lab step, or %lab run\n"
    lab = notebook.lab
    assert lab.step().scheduled == {0: 3}
    notebook.printed("%lab abort B")
    assert "".join(lab.stream("C")) == lab.output("C").text
    assert [lab.output(i).finish_reason for i in range(3)] == ["length", "abort", "length"]
    assert "D (id 3), E (id 4) wait" in notebook.printed("%lab add four five --n 2 --chat --max-tokens 2")


def test_add_searches_with_beams(notebook: Notebook) -> None:
    notebook.value(START)
    assert "A (id 0), B (id 1) wait" in notebook.printed("%lab add one two three --beams 2 --max-tokens 4")
    notebook.printed("%lab run --wait")
    assert notebook.lab.output("A").token_ids != notebook.lab.output("B").token_ids
    refused = notebook.run("%lab add one --beams 2 --temperature 1").error
    assert "omit temperature" in str(refused)


def test_prompt_keeps_lines_and_html_as_they_are(notebook: Notebook) -> None:
    notebook.value(START)
    notebook.printed("%%prompt --max-tokens 4\n<b>one</b>\n\n  {two} $three\n")
    ids = notebook.lab.snapshot().requests[0].token_ids
    assert "".join(map(notebook.lab.token_text, ids)) == "<b>one</b>\n\n  {two} $three"


def test_add_takes_words_quotes_and_apostrophes(notebook: Notebook) -> None:
    notebook.value(START)
    notebook.printed("""%lab add It's "a  small" --copies 1 block's world --max-tokens 4""")
    ids = notebook.lab.snapshot().requests[0].token_ids
    assert "".join(map(notebook.lab.token_text, ids)) == "It's a  small block's world"


def test_chat_wraps_the_text_as_a_users_message(notebook: Notebook) -> None:
    notebook.value(START)
    notebook.printed("%lab add --chat hello there --max-tokens 4")
    ids = notebook.lab.snapshot().requests[0].token_ids
    assert "".join(map(notebook.lab.token_text, ids)) == "user: hello there"


def test_priorities_go_by_the_policy_of_the_lab(notebook: Notebook) -> None:
    notebook.value(f"{START} --policy priority")
    notebook.printed("%lab add one two --priority 2 --max-tokens 4")
    notebook.printed("%%prompt --priority -1 --copies 2 --max-tokens 4\nthree four\n")
    assert [request.priority for request in notebook.lab.snapshot().requests.values()] == [2, -1, -1]
    assert [request.request_id for request in notebook.lab.session.stepper.engine.scheduler.waiting] == [1, 2, 0]


def test_start_takes_a_proposer(notebook: Notebook) -> None:
    notebook.value(f"{START} --speculation ngram --drafts 2")
    assert notebook.lab.settings.speculation == NGram(num_drafts=2)
    assert notebook.lab.config.num_drafts == 2
    notebook.value(f"{START} --drafts 3")
    assert notebook.lab.settings.speculation == NGram(num_drafts=3)
    assert "needs a lab with a real model" in notebook.refused(f"{START} --speculation layers=2")
    assert "--speculation must be ngram, layers=N" in notebook.refused(f"{START} --speculation layer=2")
    assert notebook.lab.settings.speculation == NGram(num_drafts=3), "a refused line closes nothing"


def test_the_names_of_proposers_and_what_they_stand_for() -> None:
    assert proposer_of("ngram", None) == NGram()
    assert proposer_of("layers=8", 2) == DraftModel(num_layers=8, num_drafts=2)
    assert proposer_of("gemma3-270m", None) == DraftModel(model="gemma3-270m")


def test_an_empty_prompt_cell_is_refused(started: Notebook) -> None:
    assert "the prompt is empty" in started.refused("%%prompt\n\n  \n")
    assert len(started.lab.snapshot().requests) == 2


# -- stepping ----------------------------------------------------------------------------------------------------------


def test_step_returns_its_report_and_shows_it_in_a_line(started: Notebook) -> None:
    ran = started.run("%lab step")
    assert ran.value.step == 1 and ran.value.scheduled == {0: 13, 1: 13}
    assert "step 1: 26 tokens computed (A 13, B 13); sampled A " in ran.printed and "peak 8 blocks" in ran.printed


def test_a_step_that_a_dashboard_plays_is_not_told_before_it(
    started: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.lab.show()
    assert "peak 8 blocks" in started.run("%lab step").printed, "a terminal plays nothing"
    monkeypatch.setattr(type(started.shell), "kernel", None, raising=False)
    before = started.lab.fork(1).step()
    assert started.run("%lab step").printed.strip().endswith("step 2")
    ran = started.run("%lab step 5")
    assert ran.value.finished == (0, 1) and "step 4: finished A, B" in ran.printed and "peak" not in ran.printed
    assert "nothing to do" in started.run("%lab step").printed
    started.shell.user_ns["before"] = before
    assert "peak" in started.run("before").printed, "of another lab, which has no dashboard"


def test_several_steps_return_the_last_report(started: Notebook) -> None:
    assert started.value("%lab step 2").step == 2
    started.value("lab.next_phase()")
    assert "nothing left" not in started.run("%lab step").printed, "which has ended the open step"
    ran = started.run("%lab step 5")
    assert ran.value.step == 4 and ran.value.finished == (0, 1)
    assert "nothing is left to do after 1 of 5 steps" in ran.printed and "finished A, B" in ran.printed


def test_a_step_without_work_says_so(notebook: Notebook) -> None:
    notebook.value(START)
    ran = notebook.run("%lab step")
    assert not ran.value and "nothing to do: no request is waiting or running" in ran.printed
    assert notebook.printed("%lab run").startswith("nothing to do")


def test_a_report_can_be_kept(started: Notebook) -> None:
    assert started.printed("report = %lab step") == ""
    assert started.shell.user_ns["report"].step == 1


def test_pause_ends_a_step_that_does_not_end(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "PATIENCE_S", 0.05)
    switch.is_on, switch.is_inside = True, False
    started.lab.hooks.subscribe(lambda event: switch.loop(), StepStarted)
    started.printed("%lab run")
    wait_until(lambda: switch.is_inside)
    said = started.printed("%lab pause")
    switch.is_on = False
    assert isinstance(started.lab.background_error, KeyboardInterrupt), said
    assert "It was in Switch.loop" in started.lab.background_error.__notes__[0]
    assert started.lab.snapshot().step == 0 and started.lab.check() == []


def test_run_returns_at_once_and_pause_stops_it(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook.value(START.replace("12", "9000"))
    notebook.printed("%lab add on and on --max-tokens 30000")
    may_compute = Event()
    runner, forward = notebook.lab.session.model.runner, notebook.lab.session.model.runner.forward

    def held_forward(plan: Any) -> Any:
        assert may_compute.wait(PATIENCE)
        return forward(plan)

    monkeypatch.setattr(runner, "forward", held_forward)
    assert "running" in notebook.printed("%lab run") and notebook.lab.is_running, "while the first step computes"
    may_compute.set()
    assert "running" in notebook.printed("%lab status")
    said = notebook.printed("%lab pause")
    assert said == f"paused after step {notebook.lab.snapshot().step}\n"
    assert not notebook.lab.is_running and notebook.lab.output(0).finish_reason is None


def test_run_wait_blocks_until_the_work_is_done(started: Notebook) -> None:
    assert started.printed("%lab run --wait") == "done after step 4\n"
    assert started.lab.output(1).finish_reason == "length"


@pytest.mark.parametrize("command", ["run --wait", "step 9"])
def test_ctrl_c_ends_a_run_in_one_line_and_it_can_go_on(
    started: Notebook, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    runner, sample = started.lab.session.model.runner, started.lab.session.model.runner.sample

    def sample_and_interrupt(plan: object, logits: object) -> object:
        if started.lab.snapshot().step == 2:
            press_ctrl_c()
        return sample(plan, logits)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(runner, "sample", sample_and_interrupt)
        ran = started.run(f"%lab {command}")
    assert isinstance(ran.error, KeyboardInterrupt), "cells below it are not run"
    step = started.lab.snapshot().step
    assert step in (2, 3) and ran.printed == f"interrupted after step {step}; %lab run continues\n"
    assert started.printed("%lab run --wait") == "done after step 4\n"


def test_ctrl_c_in_any_other_command_gives_a_line_too(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    notebook.value(START)
    monkeypatch.setattr(notebook.lab, "check", interrupted)
    ran = notebook.run("%lab check")
    assert isinstance(ran.error, KeyboardInterrupt) and ran.printed == "%lab check: interrupted\n"


def test_an_error_in_the_background_is_reported(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr(started.lab.session.model.runner, "forward", fail)
        started.printed("%lab run")
        wait_until(lambda: not started.lab.is_running)
        for cell in ("%lab status", "%lab pause"):
            printed = started.printed(cell)
            assert "its last step was rolled back: RuntimeError: no more memory; %lab goto crash shows" in printed
        said = started.refused("%lab step")
    assert said.startswith("step 1 failed in ") and ": RuntimeError: no more memory (in fail, line " in said
    assert "test_stepping.py). The step was rolled back" in said
    assert started.lab.check() == [] and started.value("%lab step").step == 1


def test_reset_begins_again(started: Notebook) -> None:
    started.value("%lab step")
    assert started.printed("%lab reset") == "empty: all 12 blocks are free\n"
    assert started.lab.snapshot().requests == {}


@pytest.mark.parametrize(("wanted", "name"), [("1", "B"), ("b", "B"), ("A", "A")])
def test_abort_takes_an_id_or_a_name(started: Notebook, wanted: str, name: str) -> None:
    said = started.printed(f"%lab abort {wanted}")
    assert said == f"{name} (id {ord(name) - 65}) was aborted and its blocks freed\n"
    assert "finished" in started.printed(f"%lab abort {wanted}")


@pytest.mark.parametrize("wanted", ["2", "C", "-1", "0x1"])
def test_abort_of_nobody_says_who_there_is(started: Notebook, wanted: str) -> None:
    assert "A, B" in started.refused(f"%lab abort {wanted}")
