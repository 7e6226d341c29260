"""%lab back, forward, goto, rewind, fork, break."""

from __future__ import annotations

import pytest

from ctrl_c import press_ctrl_c
from labengine.lab import Lab
from magic_notebook import START, Notebook


def test_back_and_goto_show_the_recorded_state_and_leave_the_engine_alone(started: Notebook) -> None:
    started.value("%lab step 3")
    before = started.lab.snapshot()
    said = started.printed("%lab back 2")
    assert said == started.printed("%lab goto 1")
    assert "step 1 of 3: 26 tokens computed (A 13, B 13); 8 blocks allocated; 3 blocks merged away (" in said
    assert "step 1 · 5 of 12 blocks used" in said
    assert said.endswith("This is the recording. The engine has not moved: it is still after step 3.\n")
    assert started.printed("%lab back").startswith("before step 1 of 3\n"), "one before where one stands"
    assert "step 2 of 3" in started.printed("%lab forward 2")
    assert "step 3 of 3" in started.printed("%lab forward 7")
    assert "step 2 of 3" in started.printed("%lab back")
    assert started.lab.snapshot() == before


def test_the_events_of_a_step_are_counted(started: Notebook) -> None:
    started.value("%lab step 2")
    assert started.lab.timeline is not None
    low, high = started.lab.timeline.step_moments(1)
    assert f"({high - low} events)" in started.printed("%lab goto 1")


def test_goto_0_shows_the_state_before_the_first_step(started: Notebook) -> None:
    started.value("%lab step 2")
    said = started.printed("%lab back 2")
    assert said.startswith("before step 1 of 2\n") and "0 of 12 blocks used" in said
    assert said == started.printed("%lab goto 0")


def test_a_step_that_was_undone_is_not_shown(started: Notebook) -> None:
    started.value("%lab step")
    phases = started.lab.session.stepper.engine.phases()
    next(phases)
    phases.close()  # type: ignore[attr-defined]
    assert "goes from 0 to 1" in started.refused("%lab goto 2")


@pytest.mark.parametrize("cell", ["%lab goto 3", "%lab back 3"])
def test_steps_that_are_not_recorded_are_refused(started: Notebook, cell: str) -> None:
    started.value("%lab step 2")
    assert "is not in the recording, which goes from 0 to 2" in started.refused(cell)


def test_what_is_no_step_is_refused(started: Notebook) -> None:
    started.value("%lab step 2")
    assert "must be a step number or crash, got '-1'" in started.refused("%lab goto -1")


def test_dropped_steps_are_reported(notebook: Notebook) -> None:
    notebook.shell.user_ns["lab"] = lab = Lab("simulated", num_blocks=64, block_size=4, record=60)
    lab.generate([[1, 2, 3]], max_tokens=60)
    assert "(older ones were dropped)" in notebook.refused("%lab goto 1")
    first = int(notebook.refused("%lab goto 1").split("goes from ")[1].split()[0])
    assert f"before step {first + 1} of 60" in notebook.printed(f"%lab goto {first}")


def test_looking_back_needs_a_recording_and_a_step(notebook: Notebook) -> None:
    notebook.value(START)
    assert "no step has been taken yet" in notebook.refused("%lab back")
    notebook.shell.user_ns["lab"] = Lab("simulated", record=False)
    notebook.lab.generate([[1, 2]], max_tokens=2)
    assert "record=False" in notebook.refused("%lab back")


def test_looking_forward_and_back_begin_anew_when_a_step_is_taken(started: Notebook) -> None:
    started.value("%lab step 2")
    started.printed("%lab goto 0")
    started.value("%lab step")
    assert "step 2 of 3" in started.printed("%lab back") and started.lab.moment is not None
    assert "step 3 of 3" in started.printed("%lab forward") and started.lab.moment is None


def test_goto_an_event_inside_a_step(started: Notebook) -> None:
    started.value("%lab step")
    timeline = started.lab.timeline
    assert timeline is not None
    start, end = timeline.step_moments(1)
    said = started.printed("%lab goto 1 1")
    assert said.startswith(f"step 1 of 1, after 2 of its {end - start} events: ")
    assert started.lab.moment == start + 2
    assert f"step 1 has events 0 to {end - start - 1}, got 999" in started.refused("%lab goto 1 999")
    assert started.printed("%lab back").startswith("before step 1 of 1")


def test_rewind_brings_the_engine_back_and_forward(started: Notebook) -> None:
    started.value("%lab step 3")
    end = started.lab.snapshot()
    assert started.printed("%lab rewind 1") == ("the engine is after step 1; use %lab rewind 3 to go forward again\n")
    assert started.lab.snapshot().step == 1
    assert started.printed("%lab rewind 3") == "the engine is after step 3\n" and started.lab.snapshot() == end


def test_an_interrupted_rewind_names_its_step(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    started.value("%lab step 3")
    runner, sample = started.lab.session.model.runner, started.lab.session.model.runner.sample

    def sample_and_interrupt(plan: object, logits: object) -> object:
        press_ctrl_c()
        return sample(plan, logits)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "sample", sample_and_interrupt)
    ran = started.run("%lab rewind 2")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert "after step 1 of 2; lab.rewind(2) continues" in ran.printed


def test_fork_makes_a_second_lab(started: Notebook) -> None:
    started.value("%lab step 2")
    ran = started.run("%lab fork 1 --edition nano-vllm --blocks 20")
    fork = started.shell.user_ns["fork"]
    assert ran.value is fork and fork is not started.lab and fork.parts.name == "nano-vllm"
    assert "step 1" in ran.printed and "labengine.compare(lab.fork(1), fork)" in ran.printed
    assert fork.config.num_blocks == 20 and started.lab.snapshot().step == 2
    other = started.value("%lab fork --name other")
    assert other.snapshot() == started.lab.snapshot() and fork.status()["state"] == "paused"
    assert started.value("%lab fork") is not fork and fork.status()["state"] == "closed"
    other.close()


@pytest.mark.parametrize(("cell", "advice"), [("1", "lab.fork(1), fork"), ("--name other", "lab, other")])
def test_the_comparison_that_a_fork_advises_can_be_made(started: Notebook, cell: str, advice: str) -> None:
    started.value("%lab step 2")
    printed = started.printed(f"%lab fork {cell}")
    assert f"labengine.compare({advice}) shows" in printed
    started.value(f"import labengine\nlabengine.compare({advice})").close()


def test_break_stops_a_run_and_says_where(started: Notebook) -> None:
    assert started.printed("%lab break") == "no breakpoints\n"
    assert "breakpoint 1: BlockMerged into_block_id=0, met 0 times" in started.printed(
        "%lab break BlockMerged into_block_id=0"
    )
    said = started.printed("%lab run --wait")
    assert said.startswith("stopped after step 1, event ") and said.endswith("(BlockMerged into_block_id=0)\n")
    assert started.lab.stopped_at is not None and started.lab.moment == started.lab.stopped_at.moment
    assert "breakpoint 1: BlockMerged into_block_id=0, met once" in started.printed("%lab status")
    assert said in started.printed("%lab status")
    assert started.printed("%lab run --wait") == "done after step 4\n"


def test_break_stops_several_steps(started: Notebook) -> None:
    started.printed("%lab break RequestFinished request_id=1 reason=length")
    ran = started.run("%lab step 9")
    assert ran.value.step == 4 and "stopped after step 4" in ran.printed


def test_break_on_fields_alone_and_on_violations(started: Notebook) -> None:
    assert "any event with block_id=3 reason=merged" in started.printed("%lab break block_id=3 reason=merged")
    assert "breakpoint 2: violation rule=ref_count" in started.printed("%lab break violation rule=ref_count")
    assert started.printed("%lab break --off 1").count("breakpoint") == 1
    assert started.printed("%lab break --off") == "no breakpoints\n"
