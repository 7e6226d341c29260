"""Lines as they are typed: their errors, the help, and completion."""

from __future__ import annotations

from pathlib import Path

import pytest

from labengine.commands import LAB
from labengine.core.editions import EDITIONS
from labengine.magics.table import reader_of, words
from labengine.scenarios import SCENARIOS
from magic_notebook import NAMES, START, Notebook
from waiting import wait_until

# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%lab stepp", "mean step?"),
        ("%lab stat", "mean status?"),
        ("%lab frobnicate", "start, drive, add, step"),
        ("%lab step x", "\nusage: %lab step [N]"),
        ("%lab step 0", "'0'"),
        (f"%lab step {'9' * 5_000}", "18 digits"),
        (f"%lab goto {'9' * 5_000}", "9'"),
        (f"%lab show --at 1:{'9' * 5_000}", "2:5"),
        (f"%lab why request {'9' * 5_000}", "request 999"),
        ("%lab step 1 2", "\nusage: %lab step [N]"),
        ("%lab run --wiat", "mean --wait?"),
        ("%lab pause --now", "--now"),
        ("%lab add", "TEXT"),
        ("%lab add hi --copys 2", "mean --copies?"),
        ("%lab add hi --copies 0", "--copies: must be a positive integer, got '0'"),
        ("%lab add hi --max-tokens -3", "got -3"),
        ("%lab add hi --temperature nan", "temperature"),
        ("%lab add hi --max-tokens 99", "25 blocks"),
        ("%lab add --max-tokens", "expected one argument"),
        ("%lab goto", "STEP"),
        ("%lab goto 1 2 3", "'3'"),
        ("%lab forward 0", "'0'"),
        ("%lab rewind", "STEP"),
        ("%lab rewind 3", "0 steps), got 3"),
        ("%lab fork 3", "got 3"),
        ("%lab fork --edition vlm", "'vlm'"),
        ("%lab fork --name lab", "'lab'"),
        ("%lab fork --name 1x", "'1x'"),
        ("%lab break BlockEvict", "'BlockEvicted'"),
        ("%lab break BlockEvicted blok_id=3", "'block_id'"),
        ("%lab break BlockEvicted 3", "'3'"),
        ("%lab break blok_id=3", "'blok_id'"),
        ("%lab break --off 3", "breakpoint 3"),
        ("%lab view pool --at x", "'x'"),
        ("%lab view pol", "'pool'"),
        ("%lab view", "NAME"),
        ("%lab why", "next-victim"),
        ("%lab why blok 3", "mean block?"),
        ("%lab why block", "block 3"),
        ("%lab why request C", "A, B"),
        ("%lab select block x", "'x'"),
        ("%lab select request", "request A"),
        ("%lab open nowhere.lab", "nowhere.lab"),
        ("%lab save", "FILE"),
        ("%lab goto one", "'one'"),
        ("%%prompt --top-q 1\nhello", "mean --top-p?"),
    ],
)
def test_bad_lines_are_refused_with_a_word_on_what_to_do(started: Notebook, cell: str, said: str) -> None:
    before = started.lab.snapshot()
    assert said in started.refused(cell)
    assert started.lab.snapshot() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--edition nano-vlm", "got 'nano-vlm'. Did you mean 'nano-vllm'?"),
        ("--block-size 0", "--block-size must be at least 1, got 0"),
        ("--blocks many", "argument --blocks: must be a number or auto, got 'many'"),
        ("--model smolm2", "no model 'smolm2', did you mean 'smollm2'?"),
        ("--bloks 3", "no option --bloks; did you mean --blocks?"),
    ],
)
def test_a_start_that_cannot_work_says_why(notebook: Notebook, options: str, said: str) -> None:
    assert said in notebook.refused(f"{START} {options}")
    assert "lab" not in notebook.shell.user_ns


@pytest.mark.parametrize(
    "options",
    [
        "--block-size 0",
        "--model smolm2",
        "--edition nano-vlm",
        "--edition nano-vllm --speculation layers=2",
        "--speculation smolm2",
    ],
)
def test_a_start_that_cannot_work_leaves_the_lab_as_it_is(started: Notebook, options: str) -> None:
    lab = started.lab
    started.refused(f"%lab start {options}")
    assert started.lab is lab and lab.step()


def test_an_interrupt_stays_an_interrupt(started: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(plan: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(started.lab.session.model.runner, "forward", interrupt)
    assert isinstance(started.run("%lab step").error, KeyboardInterrupt)
    assert started.lab.snapshot().step == 0


# -- help and completion -----------------------------------------------------------------------------------------------


def test_the_help_walks_through_and_lists_every_command(started: Notebook) -> None:
    text = started.shell.object_inspect("%lab")["docstring"]
    steps = [line for line in text.splitlines() if line.startswith("    %lab ")]
    assert tuple(LAB) == NAMES
    assert [step.split()[1] for step in steps] == [
        "start",
        "add",
        "step",
        "run",
        "back",
        "why",
        "rewind",
        "break",
        "run",
        "save",
        "bug",
        "seam",
    ]
    for name, command in LAB.items():
        assert f"\n{command.call}" in text and command.call.endswith(f"%lab {name}")
        assert command.summary.endswith(".") and command.summary in text
    assert "--copies" in started.shell.object_inspect("%%prompt")["docstring"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_a_word_on_each_argument(notebook: Notebook, name: str) -> None:
    text = notebook.printed(f"%lab {name} --help")
    assert LAB[name].summary in text and "lab" not in notebook.shell.user_ns, "and does nothing else"
    assert notebook.printed(f"%lab help {name}") == text
    reader = reader_of(name)
    for option, action in reader._actions_by_name.items():
        assert action.help, option
        assert f"  {option if option.startswith('-') else action.metavar}" in text


def test_the_walk_through_of_the_help_works(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = notebook.shell.object_inspect("%lab")["docstring"]
    for step in (line.split("    ")[1] for line in text.splitlines() if line.startswith("    %lab ")):
        ran = notebook.run(step.replace("smollm2", "simulated"))
        assert ran.error is None, ran.error
        if step.endswith("run"):
            wait_until(lambda: not notebook.lab.is_running)
        if step.endswith("back 2"):
            assert "step 6 of 8" in ran.printed
        if step.endswith("run --wait"):
            assert ran.printed.startswith("done after step 8") or "stopped after step" in ran.printed
            notebook.printed("%lab run --wait")
            assert [output.finish_reason for output in map(notebook.lab.output, (0, 1))] == ["length"] * 2
    assert (tmp_path / "run.lab").is_file()
    assert notebook.lab is not notebook.shell.user_ns["comparison"].left, "%lab bug leaves `lab` alone"


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
        ("%lab break BlockMe", ["BlockMerged"]),
        ("%lab break v", ["violation"]),
        ("%lab break BlockFreed que", ["queue_end="]),
        ("%lab break violation ru", ["rule="]),
        ("%lab view po", ["pool"]),
        ("%lab view pool tab", ["tables"]),
        ("%lab why next", ["next-victim"]),
        ("%lab why block 3 --about los", ["lost"]),
        ("%lab select ", ["block", "request", "hash", "node", "event", "nothing"]),
        ("%lab fork 3 --edition vl", ["vllm"]),
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


OURS = {*NAMES} - {"break", "open"}
"""The names that are not Python's own."""


@pytest.mark.parametrize("line", ["%lab frobnicate --", "%lab start --blocks ", "imp"])
def test_completion_stays_out_where_it_knows_nothing(notebook: Notebook, line: str) -> None:
    assert not set(notebook.completions(line)) & {*OURS, "--blocks", "--copies"}


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
