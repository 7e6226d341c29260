"""Sentences of notebooks that no cell of theirs asserts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from checkout import ROOT
from labengine.finder.kind_scopes import kind_scopes, priority_scopes
from labengine.finder.scopes import large_scopes, small_scopes
from labengine.scenarios import bug


def text_of(number: str) -> str:
    """Return all markdown of a notebook."""
    [path] = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_the_finders_own_pools_are_as_small_as_they_are_said_to_be() -> None:
    pairs = (*kind_scopes(), priority_scopes(), (small_scopes(), large_scopes()))
    sizes = [scope.config.num_blocks for pair in pairs for scopes in pair for scope in scopes]
    said = f"pools have {min(sizes)} to {max(sizes)} blocks"
    assert said in text_of("11") and said in (ROOT / "docs" / "finder.md").read_text(encoding="utf-8").lower()


def test_a_preempted_request_goes_wrong_with_a_tier_alone() -> None:
    experiment = bug("vllm-44409").experiments["preempted"]
    assert experiment.measured("interleaved")["blocks in two tables"] == 2
    with experiment.column("interleaved").lab("simulated", experiment.settings) as lab:
        experiment.play(lab)
        found = experiment.measure(lab)
        assert lab.external is None and (found["preemptions"], found["blocks in two tables"], lab.violations) == (
            1,
            0,
            [],
        )


def test_the_end_of_the_pull_request_is_that_of_its_scenario() -> None:
    report = bug("nano-vllm-71").report
    assert report.state == "closed, not merged"
    assert "not merged" in text_of("06") and report.as_of in text_of("06")


def test_the_bars_of_09_stand_on_a_ground_of_their_own() -> None:
    """Grey words of 13 pixels are hard to read where the page is dark."""
    picture = (ROOT / "notebooks" / "pictures" / "cold_and_warm.svg").read_text(encoding="utf-8")
    box = re.findall(r'viewBox="(\S+) (\S+) (\d+) (\d+)"', picture)
    ground = re.findall(
        r'^<svg [^>]*><rect x="(\S+)" y="(\S+)" width="(\d+)" height="(\d+)" rx="4" fill="#fff"/>', picture
    )
    assert box == ground != [] and "fill:#222" in picture and "#787878" not in picture


def test_the_sums_that_09_quotes_are_what_its_lines_print(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of("09")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, "09", "exec"), {})
    one, other = (re.findall(r"-?\d+\.\d+", line) for line in capsys.readouterr().out.splitlines())
    assert f"{one[0]} to {other[0]}" in text and f"{other[1]} to {one[1]}" in text
    assert float(one[0]) > float(other[0]) and float(one[1]) < float(other[1])


def test_the_race_that_16_quotes_is_that_of_the_documentation() -> None:
    [row] = re.findall(
        r"^\| repeats \| 16 \|(.*)\|$", (ROOT / "docs" / "editions.md").read_text(encoding="utf-8"), re.M
    )
    *_, in_map, in_tree = (cell.split(" / ")[0].strip() for cell in row.split("|"))
    assert f"({in_tree} tokens with blocks of 16, the map {in_map})" in text_of("16")
