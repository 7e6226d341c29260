"""Pages for lecturers: minutes add up, and notebooks, headings, exercises and slides that they name are there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from checkout import ROOT
from labengine.course import words

PLAN = (ROOT / "docs" / "lecturers.md").read_text(encoding="utf-8")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "lecturers").glob("*.md"))}
NOTEBOOKS = {path.stem[:2]: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
OPEN_END = "as long as you have"
"""On a page without a fixed sum of minutes."""
WEIGHTS = re.compile(r"smollm2|gemma")
"""In a cell that loads a real model."""

each_page = pytest.mark.parametrize("number", PAGES)


def cells(number: str, kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOKS[number].read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of the plan, without its head."""
    section = PLAN.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ][2:]


def minutes_of(number: str) -> tuple[int, list[int]]:
    """Return a page's minutes: the sum that it names, and its parts."""
    found = re.search(r"\*\*Minutes\.\*\* (\d+): (.*?)\.\s", PAGES[number], re.DOTALL)
    assert found is not None
    return int(found[1]), [int(part) for part in re.findall(r"\s(\d+)(?:,|$)", found[2])]


def sum_of(text: str) -> int:
    """Return the sum of a text such as "35 + 20 of telling + 15"."""
    return sum(int(part.split()[0]) for part in text.split(" + "))


def clock(text: str) -> int:
    hours, minutes = text.split(":")
    return 60 * int(hours) + int(minutes)


def test_there_is_a_page_and_a_row_for_each_notebook() -> None:
    assert [*PAGES] == [*NOTEBOOKS] == [row[0][1:3] for row in rows("The notebooks")]
    assert all(f"`notebooks/{path.name}`" in PAGES[number] for number, path in NOTEBOOKS.items())
    assert "in seventeen notebooks of 20 to 40 minutes" in PLAN and len(NOTEBOOKS) == 17
    assert all(20 <= minutes_of(number)[0] <= 40 for number in PAGES)


@each_page
def test_minutes_add_up(number: str) -> None:
    total, parts = minutes_of(number)
    assert len(parts) > 1
    assert sum(parts) < total if OPEN_END in PAGES[number] else sum(parts) == total
    [row] = [row for row in rows("The notebooks") if row[0][1:3] == number]
    title = PAGES[number].splitlines()[0].removeprefix("# ")
    assert (row[0], int(row[2])) == (f"[{title}](lecturers/{number}.md)", total)


@each_page
def test_a_notebook_begins_with_its_minutes_and_its_model(number: str) -> None:
    _, _, line = cells(number, "markdown")[0].splitlines()[:3]
    [row] = [row for row in rows("The notebooks") if row[0][1:3] == number]
    weights = {"none": "No model", "SmolLM2": "SmolLM2 (98 MB", "Gemma-3-270M": "Gemma-3-270M (240 MB"}
    asked, _, model = row[3].partition(", ")
    assert line.startswith(f"*About {row[2]} minutes, ") and ("One cell " in line) == (asked == "one cell")
    assert weights[model or {"one cell": "SmolLM2"}.get(asked, asked)] in line


@pytest.mark.parametrize("length", [90, 45])
def test_a_lecture_has_no_gap(length: int) -> None:
    times = [[int(part) for part in row[0].split(" to ")] for row in rows(f"One lecture ({length} minutes)")]
    assert times[0][0] == 0 and times[-1][1] == length
    assert [before[1] for before in times[:-1]] == [after[0] for after in times[1:]]


def test_a_day_has_room_for_what_it_holds() -> None:
    parts = rows("One day (seven hours, with breaks)")
    hours = [tuple(map(clock, row[0].split(" to "))) for row in parts]
    assert [end - begin for begin, end in hours] == [sum_of(row[2]) for row in parts]
    assert all(before[1] < after[0] for before, after in pairwise(hours)), "breaks"
    assert (hours[0][0], hours[-1][1]) == (0, 7 * 60)
    minutes = {number: minutes_of(number)[0] for number in PAGES}
    for row, needed in zip(parts[:2], (("00", "01"), ("03", "04")), strict=True):
        assert row[1] == " and ".join(needed)
        assert int(row[2].split()[0]) == sum(minutes[number] for number in needed)


def test_a_term_has_room_for_every_notebook() -> None:
    weeks = rows("One course (a term, 13 weeks)")
    assert [int(week) for week, *_ in weeks] == [*range(1, 14)]
    held = [numbers.split(", ") for _, numbers, _ in weeks]
    assert [number for numbers in held for number in numbers] == [*NOTEBOOKS]
    minutes = [sum(minutes_of(number)[0] for number in numbers) for numbers in held]
    assert f"Each week has {min(minutes)} to {max(minutes)} minutes of notebooks" in PLAN


def test_the_weights_that_notebooks_need() -> None:
    needed = {row[0][1:3]: row[3] for row in rows("The notebooks")}
    num_cells = {number: sum(bool(WEIGHTS.search(cell)) for cell in cells(number, "code")) for number in NOTEBOOKS}
    without = [number for number, weights in needed.items() if weights == "none"]
    with_one = [number for number, weights in needed.items() if weights.startswith("one cell")]
    assert [number for number in NOTEBOOKS if not num_cells[number]] == without
    assert all(num_cells[number] == 1 for number in with_one)
    listed = [f"{', '.join(numbers[:-1])} and {numbers[-1]}" for numbers in (without, with_one)]
    assert f"Without *models* run {listed[0]}, and all of {listed[1]} but one cell each" in " ".join(PLAN.split())
    words = {5: "five", 8: "Eight"}
    claim = f"{words[len(without)]} notebooks need no model, and {words[len(with_one)]} need one for a single cell."
    assert claim in " ".join(PLAN.split())


def test_every_exercise_that_is_named_exists() -> None:
    for name, text in {"the plan": PLAN, **PAGES}.items():
        named = [one for one in re.findall(r"`([a-z-]+/[a-z-]+)`", text) if one.partition("/")[0] in words.NOTEBOOKS]
        assert [one for one in named if one not in words.exercise_names()] == [], name
    for number, text in PAGES.items():
        places = [int(place) for cell in cells(number, "markdown") for place in re.findall(r"^\*\*(\d)\.\*\*", cell)]
        assert {int(place) for place in re.findall(r"[Ee]xercise (\d)", text)} <= set(places), number


def test_every_part_of_a_notebook_that_is_named_is_there() -> None:
    named = [(number, f"## {title}") for number, title in re.findall(r"(\d\d) (?:from|up to) \*([^*]+)\*", PLAN)]
    for number, text in PAGES.items():
        named += [(number, f"## {title}") for title in re.findall(r"begin at \*([^*]+)\*", text)]
        named += [(number, title) for title in re.findall(r"(?:the cell|breaks no rule:) \*([^*]+)\*", text)]
    assert {number for number, _ in named} == {"00", "10", "11", "12"}
    texts = {number: "\n".join(cells(number, "markdown")) for number in NOTEBOOKS}
    assert [(number, title) for number, title in named if title not in texts[number]] == []


def test_slides_are_called_as_they_are() -> None:
    slides = (ROOT / "docs" / "slides.md").read_text(encoding="utf-8").split("\n---\n")
    headings = [heading for slide in slides for heading in re.findall(r"^#+ (.+)$", slide, re.MULTILINE)[:1]]
    for slide, numbers, *_ in rows("The slides"):
        place, _, title = slide.partition(" ")
        assert headings[int(place) - 1].startswith(title.rstrip("?")), slide
        assert set(numbers.split(", ")) <= NOTEBOOKS.keys()
    assert {number for _, numbers, *_ in rows("The slides") for number in numbers.split(", ")} == NOTEBOOKS.keys()


def test_its_commands_work_as_they_are_printed(tmp_path: Path) -> None:
    """In the root folder of a clone: make's targets exist, and the environment's scripts are called by their paths."""
    spans = re.findall(r"`([^`\n]+)`", PLAN)
    printed = [span for span in spans if re.match(r"(\.venv/bin/|make |labengine |python |pip )", span)]
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets is not None
    made = {span.split()[1] for span in printed if span.startswith("make ")}
    assert {"setup", "slides", "lab", "model"} <= made <= set(targets[1].split())
    called = [span for span in printed if span.startswith(".venv/bin/")]
    assert sorted({*printed} - {*called}) == [*sorted(f"make {name}" for name in made), "pip install '.[models,lab]'"]
    for number, span in enumerate(called):
        script, *arguments = span.removeprefix(".venv/bin/").split()
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [Path(sys.executable).parent / script, *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        assert [path.name for path in folder.iterdir()] == [
            argument for argument in arguments[1:] if argument[0] != "-"
        ]
