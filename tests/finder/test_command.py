"""python -m labengine find FILE.py:CLASS, and the page on the finder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkout import ROOT
from labengine.__main__ import main

SOURCE = """
from labengine import BlockPool

class Untouched(BlockPool):
    def touch(self, block_ids):
        raise RuntimeError("no hits here")
"""


@pytest.mark.journey
def test_a_class_of_a_file_is_found_and_written_as_a_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, made = tmp_path / "untouched_parts.py", tmp_path / "test_untouched.py"
    file.write_text(SOURCE)
    notebook = tmp_path / "found.ipynb"
    assert main(["find", f"{file}:Untouched", "--test", str(made), "--notebook", str(notebook)]) == 1
    assert capsys.readouterr().out.startswith("labengine + Untouched raises after ")
    assert "class Untouched(BlockPool):" in made.read_text()
    assert "class Untouched(BlockPool):" in notebook.read_text()


def test_a_notebooks_wrong_name_is_refused_before_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "labengine", "--notebook", "found.txt"]) == 2
    assert ".ipynb, got" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("vlm", "use FILE.py:CLASS"),
        ("missing.py:Class", "no file missing.py"),
        (f"{__file__}:Missing", "does not define Missing"),
    ],
)
def test_what_is_not_there_is_refused(parts: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", parts]) == 2
    assert message in capsys.readouterr().err


def test_the_page_shows_what_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "finder.md").read_text(encoding="utf-8")
    (code, shown), *_ = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "finder.md", "exec"), {"__name__": "page"})
    printed = capsys.readouterr().out
    assert without_numbers(printed.splitlines()[0]) == without_numbers(shown.splitlines()[0])


def without_numbers(text: str) -> str:
    """The length of the workload depends on which searcher is first."""
    return re.sub(r"\d+", "n", text)
