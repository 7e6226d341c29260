"""%lab and %%prompt as typed: every command, its errors, completion, and loading and unloading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import labengine
from labengine.core.editions import EDITIONS
from labengine.lab import Lab
from labengine.magics.table import COMMANDS, words
from labengine.scenarios import SCENARIOS

PATIENCE = 20.0
"""Seconds after which a test gives up on another thread."""

START = "%lab start --model simulated --blocks 12 --block-size 4"
PROMPT = "%%prompt --copies 2 --max-tokens 4\nOnce upon a time there was a block that waited in a queue\n"
NAMES = (
    *("start", "add", "step", "run", "pause", "reset", "abort", "show", "check", "status", "back", "goto", "bug"),
    "close",
)


@dataclass
class Cell:
    """What a cell returned, printed and raised."""

    value: Any
    printed: str
    error: BaseException | None


class Notebook:
    """A shell that runs cells and hands over what a reader would see."""

    def __init__(self, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell = shell
        self._capsys = capsys

    def run(self, cell: str) -> Cell:
        """Run a cell, which may fail."""
        self._capsys.readouterr()
        result = self.shell.run_cell(cell)
        captured = self._capsys.readouterr()
        return Cell(result.result, captured.out + captured.err, result.error_before_exec or result.error_in_exec)

    def value(self, cell: str) -> Any:
        """The value of a cell that works."""
        return self._worked(cell).value

    def printed(self, cell: str) -> str:
        """What a cell that works printed."""
        return self._worked(cell).printed

    def refused(self, cell: str) -> str:
        """The words of the UsageError that a cell ends with; a reader sees no traceback."""
        ran = self.run(cell)
        assert isinstance(ran.error, UsageError), f"{cell}: {ran.error!r}\n{ran.printed}"
        assert "Traceback" not in ran.printed and f"UsageError: {ran.error}" in ran.printed
        return str(ran.error)

    def completions(self, line: str) -> list[str]:
        """What the tab key offers at the end of a line."""
        with provisionalcompleter():
            return [completion.text for completion in self.shell.Completer.completions(line, len(line))]

    @property
    def lab(self) -> Lab:
        """The variable `lab`."""
        lab = self.shell.user_ns["lab"]
        assert isinstance(lab, Lab)
        return lab

    def _worked(self, cell: str) -> Cell:
        ran = self.run(cell)
        assert ran.error is None, f"{cell}: {ran.error!r}\n{ran.printed}"
        return ran


@pytest.fixture(scope="module")
def shell(jupyter_dirs: dict[str, str]) -> Iterator[Any]:
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    InteractiveShell.clear_instance()


@pytest.fixture
def notebook(shell: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[Notebook]:
    """The extension freshly loaded, and no lab."""
    shell.reset()
    labengine.load_ipython_extension(shell)
    yield Notebook(shell, capsys)
    labs = [value for value in shell.user_ns.values() if isinstance(value, Lab)]
    labengine.unload_ipython_extension(shell)
    for lab in labs:
        lab.close()


@pytest.fixture
def started(notebook: Notebook) -> Notebook:
    """Twelve blocks of four tokens on the simulated model, and two equal requests waiting."""
    notebook.value(START)
    notebook.printed(PROMPT)
    return notebook


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.001)


# -- loading -----------------------------------------------------------------------------------------------------------


def test_load_ext_brings_the_magics_and_unload_ext_takes_them_away(notebook: Notebook) -> None:
    labengine.unload_ipython_extension(notebook.shell)
    assert "start" not in notebook.completions("%lab st")
    notebook.printed("%load_ext labengine")
    assert "%lab start" in notebook.printed("%lab")
    notebook.printed("%unload_ext labengine")
    magics = notebook.shell.magics_manager.magics
    assert "lab" not in magics["line"] and "prompt" not in magics["cell"]
    assert "LabMagics" not in notebook.shell.magics_manager.registry
    assert "start" not in notebook.completions("%lab st")
    assert "not found" in notebook.refused("%lab status")


def test_loading_twice_is_harmless_and_keeps_the_lab(started: Notebook) -> None:
    labengine.load_ipython_extension(started.shell)
    assert started.completions("%lab st").count("start") == 1
    assert len(started.lab.snapshot().requests) == 2 and "step 1:" in started.printed("%lab step")


def test_unloading_twice_is_harmless(notebook: Notebook) -> None:
    labengine.unload_ipython_extension(notebook.shell)
    labengine.unload_ipython_extension(notebook.shell)


def test_reload_finds_the_lab_again(started: Notebook) -> None:
    started.printed("%reload_ext labengine")
    assert started.value("%lab step").scheduled == {0: 13, 1: 13}


# -- start and the lab that the magics work on -------------------------------------------------------------------------


def test_start_makes_a_lab_of_that_name_and_shows_it(notebook: Notebook) -> None:
    ran = notebook.run(START + " --edition nano-vllm --max-num-seqs 3 --max-num-batched-tokens 64 --seed 5")
    assert ran.value is notebook.lab and "0 of 12 blocks used" in ran.printed
    config = notebook.lab.config
    assert (config.num_blocks, config.groups[0].block_size) == (12, 4)
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (3, 64)
    assert notebook.lab.status()["edition"] == "nano-vllm" and config.seed == 5


def test_a_second_start_closes_the_first_lab(notebook: Notebook) -> None:
    first = notebook.value(START)
    second = notebook.value(START)
    assert notebook.lab is second and first.status()["state"] == "closed" and second.status()["state"] == "paused"


def test_a_lab_made_by_hand_is_used(notebook: Notebook) -> None:
    started = notebook.value(START)
    notebook.printed("import labengine\nlab = labengine.Lab('simulated', num_blocks=7)")
    notebook.printed("%lab add one two three")
    assert len(notebook.lab.snapshot().requests) == 1 and started.snapshot().requests == {}
    started.close()


def test_a_variable_called_lab_that_is_none_does_not_disturb(started: Notebook) -> None:
    lab = started.lab
    started.printed("lab = 'oratory'")
    assert started.value("%lab step").step == 1 and lab.snapshot().step == 1
    started.shell.user_ns["lab"] = lab


@pytest.mark.parametrize("name", [name for name in NAMES[1:] if name != "bug"])
def test_every_command_before_start_says_how_to_start(notebook: Notebook, name: str) -> None:
    word = {"add": " hello", "abort": " 0", "goto": " 1"}.get(name, "")
    assert "there is no lab yet: %lab start --model smollm2" in notebook.refused(f"%lab {name}{word}")


def test_a_prompt_before_start_says_how_to_start(notebook: Notebook) -> None:
    assert "there is no lab yet" in notebook.refused(PROMPT)


# -- adding ------------------------------------------------------------------------------------------------------------


def test_prompt_adds_copies_with_their_sampling(notebook: Notebook) -> None:
    notebook.value(START)
    cell = (
        "%%prompt --copies 2 --max-tokens 5 --temperature 0.5 --top-k 9 --top-p 0.8 --seed 3 --ignore-eos\nIt's  so\n"
    )
    assert notebook.printed(cell) == "A (id 0), B (id 1) wait with 2 tokens each: %lab step, or %lab run\n"
    for request in notebook.lab._stepper.engine.requests.values():
        s = request.sampling
        assert (s.max_tokens, s.temperature, s.top_k, s.top_p, s.seed, s.ignore_eos) == (5, 0.5, 9, 0.8, 3, True)
        assert "".join(map(notebook.lab.token_text, request.token_ids)) == "It's  so"


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


def test_an_empty_prompt_cell_is_refused(started: Notebook) -> None:
    assert "the prompt is empty" in started.refused("%%prompt\n\n  \n")
    assert len(started.lab.snapshot().requests) == 2


# -- stepping ----------------------------------------------------------------------------------------------------------


def test_step_returns_its_report_and_shows_it_in_a_line(started: Notebook) -> None:
    ran = started.run("%lab step")
    assert ran.value.step == 1 and ran.value.scheduled == {0: 13, 1: 13}
    assert "step 1: 26 tokens computed (A 13, B 13); sampled A " in ran.printed and "peak 8 blocks" in ran.printed


def test_several_steps_return_the_last_report(started: Notebook) -> None:
    assert started.value("%lab step 3").step == 3
    ran = started.run("%lab step 5")
    assert ran.value.step == 4 and ran.value.finished == (0, 1)
    assert "after 1 of 5 steps there is nothing left to do" in ran.printed and "finished A, B" in ran.printed


def test_a_step_without_work_says_so(notebook: Notebook) -> None:
    notebook.value(START)
    ran = notebook.run("%lab step")
    assert not ran.value and "nothing to do: no request waits or runs" in ran.printed
    assert notebook.printed("%lab run").startswith("nothing to do")


def test_a_report_can_be_kept(started: Notebook) -> None:
    assert started.printed("report = %lab step") == ""
    assert started.shell.user_ns["report"].step == 1


def test_run_returns_at_once_and_pause_stops_it(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, forward = started.lab._model.runner, started.lab._model.runner.forward

    def slow_forward(plan: Any) -> Any:
        time.sleep(0.1)
        return forward(plan)

    monkeypatch.setattr(runner, "forward", slow_forward)
    began = time.monotonic()
    assert "running" in started.printed("%lab run")
    assert time.monotonic() - began < 0.1 and started.lab.is_running
    assert "running" in started.printed("%lab status")
    said = started.printed("%lab pause")
    assert said == f"paused after step {started.lab.snapshot().step}\n" and started.lab.snapshot().step < 4
    assert not started.lab.is_running and started.lab.output(0).finish_reason is None


def test_run_wait_blocks_until_the_work_is_done(started: Notebook) -> None:
    assert started.printed("%lab run --wait") == "done after step 4\n"
    assert started.lab.output(1).finish_reason == "length"


def test_an_error_in_the_background_is_told(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr(started.lab._model.runner, "forward", fail)
        started.printed("%lab run")
        wait_until(lambda: not started.lab.is_running)
        for cell in ("%lab status", "%lab pause"):
            assert "broken off, its last step undone: RuntimeError: no more memory" in started.printed(cell)
        said = started.refused("%lab step")
    assert said.startswith("%lab step: no more memory (RuntimeError in fail, line ") and "test_magics.py" in said
    assert started.lab.check() == [] and started.value("%lab step").step == 1


def test_reset_begins_again(started: Notebook) -> None:
    started.value("%lab step")
    assert started.printed("%lab reset") == "empty: 12 blocks, all of them free\n"
    assert started.lab.snapshot().requests == {}


@pytest.mark.parametrize(("wanted", "name"), [("1", "B"), ("b", "B"), ("A", "A")])
def test_abort_takes_an_id_or_a_name(started: Notebook, wanted: str, name: str) -> None:
    said = started.printed(f"%lab abort {wanted}")
    assert said == f"{name} (id {ord(name) - 65}) is aborted, its blocks are free\n"
    assert "had finished before" in started.printed(f"%lab abort {wanted}")


@pytest.mark.parametrize("wanted", ["2", "C", "-1", "0x1"])
def test_abort_of_nobody_says_who_there_is(started: Notebook, wanted: str) -> None:
    assert f"there is no request {wanted}; known are A, B" in started.refused(f"%lab abort {wanted}")


# -- looking -----------------------------------------------------------------------------------------------------------


def test_show_displays_the_dashboard(started: Notebook) -> None:
    ran = started.run("%lab show\n1")
    assert ran.value == 1 and "0 of 12 blocks used" in ran.printed


def test_check_tells_that_all_is_well_or_what_is_not(started: Notebook) -> None:
    started.value("%lab step")
    assert started.printed("%lab check") == "all invariants hold\n"
    started.lab._stepper.engine.scheduler.manager.pool.blocks[0].ref_count += 1
    assert "ref_count: block 0 has ref_count 3, and 2 table entries" in started.printed("%lab check")


def test_status_tells_what_runs_and_how_the_requests_stand(started: Notebook) -> None:
    started.value("%lab step")
    started.lab.abort(1)
    said = started.printed("%lab status")
    assert "model  simulated" in said and "edition  labengine" in said and "of 12 blocks of 4 tokens in use" in said
    assert "A (id 0)  running, 13 + 1 tokens" in said and "B (id 1)  finished (abort), 13 + 1 tokens" in said


def test_status_tells_of_a_listener_that_was_dropped(started: Notebook) -> None:
    started.lab.hooks.subscribe(lambda event: 1 / 0)
    started.value("%lab step")
    assert "a listener raised and was dropped: ZeroDivisionError" in started.printed("%lab status")


def test_status_shows_the_newest_of_many_requests(notebook: Notebook) -> None:
    notebook.value(START)
    notebook.printed("%lab add one two --copies 13 --max-tokens 2")
    said = notebook.printed("%lab status")
    assert "(3 earlier requests)" in said and "M (id 12)" in said and "C (id 2)" not in said


def test_close_ends_the_lab_and_start_makes_a_new_one(started: Notebook) -> None:
    started.value("%lab step")
    assert "closed" in started.printed("%lab close")
    for cell in ("%lab step", "%lab add more", "%lab reset", "%lab run"):
        assert "this lab is closed; make a new one" in started.refused(cell)
    assert started.printed("%lab check") == "all invariants hold\n"
    assert "state  closed" in started.printed("%lab status") and "step 1 of 1" in started.printed("%lab goto 1")
    started.value(START)
    assert started.lab.status()["state"] == "paused"


# -- looking back ------------------------------------------------------------------------------------------------------


def test_back_and_goto_show_the_recorded_state_and_leave_the_engine_alone(started: Notebook) -> None:
    started.value("%lab step 3")
    before = started.lab.snapshot()
    said = started.printed("%lab back 2")
    assert said == started.printed("%lab goto 1")
    assert "step 1 of 3: 26 tokens computed (A 13, B 13); 8 blocks allocated; 3 blocks merged away (" in said
    assert "step 1 · 5 of 12 blocks used" in said
    assert said.endswith("This is the recording. The engine has not moved: it stands after step 3.\n")
    assert "step 2 of 3" in started.printed("%lab back")
    assert started.lab.snapshot() == before


def test_the_events_of_a_step_are_counted(started: Notebook) -> None:
    started.value("%lab step 2")
    assert started.lab.timeline is not None
    low, high = started.lab.timeline.step_moments(1)
    assert f"({high - low} events)" in started.printed("%lab goto 1")


def test_goto_0_shows_the_state_before_the_first_step(started: Notebook) -> None:
    started.value("%lab step 2")
    said = started.printed("%lab goto 0")
    assert said.startswith("before step 1 of 2\n") and "0 of 12 blocks used" in said
    assert said == started.printed("%lab back 2")


def test_a_step_that_was_undone_is_not_shown(started: Notebook) -> None:
    started.value("%lab step")
    phases = started.lab._stepper.engine.phases()
    next(phases)
    phases.close()  # type: ignore[attr-defined]
    assert "goes from 0 to 1" in started.refused("%lab goto 2")


@pytest.mark.parametrize("cell", ["%lab goto 3", "%lab goto -1", "%lab back 3"])
def test_steps_that_are_not_recorded_are_refused(started: Notebook, cell: str) -> None:
    started.value("%lab step 2")
    assert "is not in the recording, which goes from 0 to 2" in started.refused(cell)


def test_dropped_steps_are_told(notebook: Notebook) -> None:
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


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%lab stepp", "%lab has no 'stepp'; did you mean step?"),
        ("%lab stat", "%lab has no 'stat'; did you mean status?"),
        ("%lab frobnicate", "%lab has no 'frobnicate'; there are start, add, step, run"),
        ("%lab step x", "'x' is no whole number from 1\nusage: %lab step [N]"),
        ("%lab step 0", "'0' is no whole number from 1"),
        ("%lab step 1 2", "'2' is one word too many\nusage: %lab step [N]"),
        ("%lab run --wiat", "there is no option --wiat; did you mean --wait?"),
        ("%lab pause --now", "there is no option --now; it takes no options"),
        ("%lab add", "TEXT"),
        ("%lab add hi --copys 2", "there is no option --copys; did you mean --copies?"),
        ("%lab add hi --copies 0", "argument --copies: '0' is no whole number from 1"),
        ("%lab add hi --max-tokens -3", "max_tokens must be at least 1, got -3"),
        ("%lab add hi --temperature nan", "temperature must be a finite number"),
        ("%lab add hi --max-tokens 99", "needs 25 blocks, and the pool has 12"),
        ("%lab add --max-tokens", "expected one argument"),
        ("%lab goto", "STEP"),
        ("%lab goto one", "invalid int value: 'one'"),
        ("%%prompt --top-q 1\nhello", "there is no option --top-q; did you mean --top-p?"),
    ],
)
def test_bad_lines_are_refused_with_a_word_on_what_to_do(started: Notebook, cell: str, said: str) -> None:
    before = started.lab.snapshot()
    assert said in started.refused(cell)
    assert started.lab.snapshot() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--edition nano-vlm", "unknown edition 'nano-vlm'"),
        ("--block-size 0", "block_size must be at least 1, got 0"),
        ("--blocks many", "argument --blocks: 'many' is neither a number nor auto"),
        ("--model smolm2", "no model 'smolm2', did you mean 'smollm2'?"),
        ("--bloks 3", "there is no option --bloks; did you mean --blocks?"),
    ],
)
def test_a_start_that_cannot_work_says_why(notebook: Notebook, options: str, said: str) -> None:
    assert said in notebook.refused(f"{START} {options}")
    assert "lab" not in notebook.shell.user_ns


@pytest.mark.parametrize("options", ["--block-size 0", "--model smolm2", "--edition nano-vlm"])
def test_a_start_that_cannot_work_leaves_the_lab_as_it_is(started: Notebook, options: str) -> None:
    lab = started.lab
    started.refused(f"%lab start {options}")
    assert started.lab is lab and lab.step()


def test_an_interrupt_stays_an_interrupt(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(plan: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(started.lab._model.runner, "forward", interrupt)
    assert isinstance(started.run("%lab step").error, KeyboardInterrupt)
    assert started.lab.snapshot().step == 0


# -- bugs --------------------------------------------------------------------------------------------------------------


def test_bug_lists_what_there_is(notebook: Notebook) -> None:
    printed = notebook.printed("%lab bug")
    assert [line.split()[0] for line in printed.splitlines()] == list(SCENARIOS)


def test_bug_judges_the_report_and_opens_the_broken_lab(started: Notebook) -> None:
    before = started.lab
    printed = started.printed("%lab bug nano-vllm-219")
    assert "The claim holds. nano-vllm goes wrong, nano-vllm+243 does not." in printed
    assert "1. A and B look their prompt up" in printed
    assert "8 of 12 blocks used" in printed  # the dashboard, as text
    assert started.lab.parts.name == "nano-vllm"
    assert before.status()["state"] == "closed"
    started.value("%lab step")
    assert started.lab.snapshot().step == 2


def test_bug_opens_another_column_on_request(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-219 --column nano-vllm+243")
    assert notebook.lab.parts.name == "nano-vllm+243"
    assert notebook.lab.snapshot().num_used_blocks == 5


def test_bug_refuses_what_it_does_not_know_and_keeps_the_lab(started: Notebook) -> None:
    lab = started.lab
    assert "Did you mean 'nano-vllm-219'" in started.refused("%lab bug nano-vllm-218")
    assert "there are 'PR 71', 'original'" in started.refused("%lab bug nano-vllm-71 --column mine")
    assert started.lab is lab and lab.status()["state"] == "paused"


# -- help and completion -----------------------------------------------------------------------------------------------


def test_the_help_walks_through_and_lists_every_command(started: Notebook) -> None:
    told = started.shell.object_inspect("%lab")["docstring"]
    steps = [line for line in told.splitlines() if line.startswith("    %lab ")]
    assert tuple(COMMANDS) == NAMES
    assert [step.split()[1] for step in steps] == ["start", "add", "step", "run", "back"]
    for name, command in COMMANDS.items():
        assert f"\n%lab {name}" in told and command.summary.endswith(".") and command.summary in told
    assert "--copies" in started.shell.object_inspect("%%prompt")["docstring"]


def test_the_walk_through_of_the_help_works(notebook: Notebook) -> None:
    told = notebook.shell.object_inspect("%lab")["docstring"]
    for step in (line.split("    ")[1] for line in told.splitlines() if line.startswith("    %lab ")):
        notebook.run(step.replace("smollm2", "simulated"))
        if step.endswith("run"):
            wait_until(lambda: not notebook.lab.is_running)
    assert "step 6 of 8" in notebook.printed("%lab back 2")
    assert [output.finish_reason for output in map(notebook.lab.output, (0, 1))] == ["length"] * 2


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%lab ", [*NAMES]),
        ("%lab st", ["start", "step", "status"]),
        ("%lab run ", ["--wait"]),
        ("%lab start --bl", ["--blocks", "--block-size"]),
        ("%lab start --blocks 3 --bl", ["--block-size"]),
        ("%lab start --edition ", [*EDITIONS]),
        ("%lab start --edition na", ["nano-vllm", "nano-vllm+243", "nano-vllm-2025-07"]),
        ("%lab bug ", [*SCENARIOS, "--column", "--model"]),
        ("%lab bug nano-vllm-7", ["nano-vllm-71"]),
        ("%lab bug nano-vllm-71 --m", ["--model"]),
        ("%lab start --model smol", ["smollm2"]),
        ("%lab add hello --ig", ["--ignore-eos"]),
        ("%%prompt --co", ["--copies"]),
        ("%%prompt --ignore-eos --ch", ["--chat"]),
    ],
)
def test_completion_offers_what_may_come_next_and_nothing_else(
    notebook: Notebook, line: str, offered: list[str]
) -> None:
    assert notebook.completions(line) == offered


@pytest.mark.parametrize("line", ["%lab frobnicate --", "%lab start --blocks ", "imp"])
def test_completion_stays_out_where_it_knows_nothing(notebook: Notebook, line: str) -> None:
    assert not set(notebook.completions(line)) & {*NAMES, "--blocks", "--copies"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("  a   b ", ["a", "b"]),
        ("it's Bob's", ["it's", "Bob's"]),
        ("""say "two  words" 'and more'""", ["say", "two  words", "and more"]),
        ('""', [""]),
        ('"open', ['"open']),
        (r"C:\dir\x", [r"C:\dir\x"]),
    ],
)
def test_words(line: str, expected: list[str]) -> None:
    assert words(line) == expected


# -- the real model, and a real kernel ---------------------------------------------------------------------------------


def test_the_whole_walk_on_the_real_model(notebook: Notebook) -> None:
    notebook.value("%lab start --model smollm2 --blocks 16 --block-size 4 --dtype float32 --device cpu")
    notebook.printed("%%prompt --max-tokens 4 --copies 2\nThe capital of France is")
    ran = notebook.run("%lab step")
    assert ran.value.scheduled == {0: 5, 1: 5} and "peak 4 blocks" in ran.printed
    assert notebook.lab.snapshot().num_used_blocks == 3
    notebook.printed("%lab run --wait")
    said = notebook.printed("%lab status")
    assert said.count("Paris") == 2 and "llama, 30 layers" in said and "dtype  float32" in said
    notebook.printed("%%prompt --chat --max-tokens 8\n2+2=?")
    notebook.printed("%lab run --wait")
    assert "<|im_start|>" in "".join(map(notebook.lab.token_text, notebook.lab.snapshot().requests[2].token_ids))
    assert "step 1 of " in notebook.printed("%lab goto 1") and notebook.printed("%lab check") == "all invariants hold\n"


def test_in_a_kernel_cells_run_while_the_engine_runs_and_tab_completes(jupyter_dirs: dict[str, str]) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:

        def run(code: str) -> dict[str, Any]:
            printed: list[str] = []
            reply = client.execute_interactive(
                code, timeout=60, output_hook=lambda m: printed.append(str(m["content"].get("text", "")))
            )
            return {"status": reply["content"]["status"], "printed": "".join(printed)}

        assert run("%load_ext labengine")["status"] == "ok"
        assert run(START.replace("12", "512"))["status"] == "ok"
        assert run("%lab add on and on --max-tokens 2000")["status"] == "ok"
        assert "running" in run("%lab run")["printed"]
        assert "True" in run("print(lab.is_running)")["printed"]
        assert "paused after step" in run("%lab pause")["printed"]
        assert "did you mean step?" in run("%lab stepp")["printed"]
        reply = client.complete("%lab st", reply=True, timeout=60)
        assert reply["content"]["matches"] == ["start", "step", "status"]
        reply = client.complete("x = 1\n%lab start --ed", reply=True, timeout=60)
        assert reply["content"]["matches"] == ["--edition"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
