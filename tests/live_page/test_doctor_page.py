"""The Python half of the doctor's page, without a browser: a file in, a report or a sentence out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labengine.live_page.doctor_page import DoctorPage

RULES = "You are the assistant of a city library. Answer in one or two sentences, and name the shelf. " * 4


def posted(place: Path, **asked: str) -> list[tuple[str, dict[str, Any]]]:
    """What the page posts for a file."""
    found: list[tuple[str, dict[str, Any]]] = []
    page = DoctorPage(lambda kind, content, _: found.append((kind, json.loads(content))))
    page.receive(json.dumps({"place": str(place), "asked": {"--blocks": "", "--clock": "", **asked}}))
    return found


def clocks(folder: Path, name: str = "prompts.jsonl") -> Path:
    file = folder / name
    lines = [
        json.dumps({"prompt": f"It is 12:00:{second:02d} <img src=x>. {RULES}Who wrote book {second}?"})
        for second in range(20)
    ]
    file.write_text("\n".join(lines))
    return file


def test_a_file_becomes_a_report_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    asked = {"--blocks": "512", "--replicas": "1", "--clock": "8000,0.02"}
    *progress, (kind, content) = posted(clocks(tmp_path, "two words.jsonl"), **asked)
    assert kind == "report" and {name for name, _ in progress} == {"progress"}
    html = content["html"]
    assert "Costliest cause: a clock before" in html and "512 blocks of 16" in html
    assert "labengine doctor &#x27;two words.jsonl&#x27; --blocks 512 --clock 8000,0.02 --replicas 1 --show 1" in html
    assert "<img" not in html


def test_curves_are_played_if_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "ids.jsonl"
    file.write_text('{"prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}\n' * 2)
    without, with_curves = (posted(file, **asked)[-1][1]["html"] for asked in ({}, {"curves": "on"}))
    assert "Block size" not in without and "Block size" in with_curves


@pytest.mark.parametrize(
    "text, asked, words",
    [
        ("no json", {}, "notes.txt is not a file of prompts: its only line cannot be used"),
        ('{"prompt": [1, 2]}', {"--blocks": "1e3"}, "--blocks must be a whole number, got '1e3'"),
        ('{"prompt": [1, 2]}', {"--block-size": "-1"}, "--block-size must be"),
        ('{"prompt": [1, 2]}', {"--clock": "0,1"}, "tokens per second of prefill must be above 0"),
        ('{"format": "labengine trace"}', {}, "notes.txt"),
    ],
)
def test_what_cannot_be_examined_is_a_sentence(tmp_path: Path, text: str, asked: dict[str, str], words: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)
    ((kind, content),) = [one for one in posted(file, **asked) if one[0] != "progress"]
    assert kind == "refused"
    assert words in content["message"] and str(tmp_path) not in content["message"]
