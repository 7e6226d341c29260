"""%load_ext and %unload_ext, and which lab the magics work on."""

from __future__ import annotations

import pytest

import labengine
from labengine.scenarios.tiny_model import tiny_model
from magic_notebook import NAMES, PROMPT, START, Notebook

# -- loading -----------------------------------------------------------------------------------------------------------


def test_load_ext_brings_the_magics_and_unload_ext_takes_them_away(notebook: Notebook) -> None:
    labengine.unload_ipython_extension(notebook.shell)
    notebook.shell.extension_manager.loaded.discard("labengine")  # %load_ext in an earlier test
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


def test_a_second_start_takes_what_only_a_real_model_has(notebook: Notebook) -> None:
    """And what no lab can have closes nothing."""
    start = f"%lab start --model {tiny_model()} --block-size 4 --blocks auto --attention torch --device cpu"
    notebook.value(start)
    second = notebook.value(start)
    assert second.status()["attention"].startswith("torch") and second.status()["state"] == "paused"
    assert "--max-num-seqs must be" in notebook.refused(start + " --max-num-seqs 0")
    assert second.status()["state"] == "paused"
    second.close()


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


WORDS = {
    "add": " hello",
    "abort": " 0",
    "goto": " 1",
    "rewind": " 1",
    "view": " pool",
    "why": " block 0",
    "save": " run.lab",
    "patch": " touch",
}
"""What a command cannot do without."""


WITHOUT_LAB = ("seams", "seam", "bugs", "bug", "open", "attach", "drive", "exercise")


@pytest.mark.parametrize("name", [name for name in NAMES[1:] if name not in WITHOUT_LAB])
def test_every_command_before_start_says_how_to_start(notebook: Notebook, name: str) -> None:
    word = WORDS.get(name, "")
    assert "no lab yet: start one with %lab start --model smollm2" in notebook.refused(f"%lab {name}{word}")


def test_a_prompt_before_start_says_how_to_start(notebook: Notebook) -> None:
    assert "no lab yet" in notebook.refused(PROMPT)
