"""The README is true: its code runs, and its table is what the demo prints."""

from __future__ import annotations

import io
import re

import pytest
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image

from checkout import ROOT
from first_layers import write_first_layers
from labengine import __main__ as command_line
from labengine.lab import Lab
from labengine.scenarios import demo

README = (ROOT / "README.md").read_text(encoding="utf-8")

ROUNDING = r"(?<=max \|d[KV]\| )[\d.e+-]+"
"""The figure behind max |dK| and max |dV|."""


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, fences off."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def _without_rounding(table: str) -> str:
    return re.sub(ROUNDING, "~", table)


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()
    if isinstance(lab := shell.user_ns.get("lab"), Lab):
        lab.close()


def test_the_code_runs_unchanged(shell):
    magics = [block for block in blocks("") if block.startswith("%%")]
    python = blocks("python")
    cells = [python[0], *magics, *python[1:]]
    assert len(cells) == 5 and "%load_ext labengine" in cells[0]
    for cell in cells:
        shell.run_cell(cell).raise_error()
    lab = shell.user_ns["lab"]
    assert {request.num_prompt_tokens for request in lab.snapshot().requests.values()} == {14}
    assert [block.ref_count for block in lab.snapshot().blocks[:4]] == [2, 2, 2, 1], "the step has merged three blocks"
    assert (lab.status()["state"], lab.snapshot().num_used_blocks, len(lab.snapshot().blocks)) == ("paused", 5, 12)
    lab.run()
    assert not lab.hooks.failures
    assert lab.stats().num_finished == len(lab.snapshot().requests) > 0


@pytest.mark.sweep
def test_the_table_is_what_the_demo_prints():
    """To the letter, but for the rounding between two copies, which depends on the machine."""
    printed = io.StringIO()
    demo.main(printed)
    assert _without_rounding(printed.getvalue()) in map(_without_rounding, blocks(""))
    assert all(float(worst) < 1e-3 for worst in re.findall(ROUNDING, printed.getvalue()))


def test_the_first_layers_give_the_same_table(tmp_path):
    """All lines but the first, which names the model."""
    printed = io.StringIO()
    demo.main(printed, str(write_first_layers(tmp_path)))
    first, _, table = _without_rounding(printed.getvalue()).partition("\n")
    title, is_of, _ = first.partition(" on ")
    [shown] = [block for block in blocks("") if block.startswith(title + is_of)]
    assert is_of and table == _without_rounding(shown).partition("\n")[2]
    assert all(float(worst) < 1e-3 for worst in re.findall(ROUNDING, printed.getvalue()))


def test_the_animation_is_small_and_holds_its_end():
    path = ROOT / "docs" / "compare_219.webp"
    with Image.open(path) as animation:
        durations = []
        for number in range(animation.n_frames):
            animation.seek(number)
            animation.load()
            durations.append(animation.info["duration"])
    assert animation.width == 1220 and len(durations) > 20
    assert durations[-1] >= 5000 > max(durations[:-1])
    assert path.stat().st_size < 1_500_000


def test_the_demo_refuses_an_unknown_model_in_one_line(capsys):
    assert command_line.main(["demo", "--model", "smollm3"]) == 2
    assert "smollm2" in capsys.readouterr().err
