"""The script that looks up quoted lines: in unpacked wheels, and in clones at a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from labengine.scenarios.report import CodePassage
from tools import upstream_facts
from tools.upstream_facts import found, main, passages


def quoted(version: str, line: int, text: str) -> CodePassage:
    return CodePassage(version=version, file="pkg/it.py", line=line, text=text, says="It.")


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Return a wheel of version 1.0, and a clone with a commit."""
    for folder in ("wheels/1.0", "clone"):
        file = tmp_path / folder / "pkg/it.py"
        file.parent.mkdir(parents=True)
        file.write_text("one\ntwo\n")
    clone = str(tmp_path / "clone")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "it"], ["tag", "abc"]):
        who = ["-c", "user.name=it", "-c", "user.email=it@example.org"]
        subprocess.run(["git", "-C", clone, *who, *command], check=True)
    return {"wheel": str(tmp_path / "wheels/{version}"), "clone": clone}


@pytest.mark.parametrize("version", ["wheel 1.0", "clone abc"])
def test_a_line_is_there_or_not(version: str, places: dict[str, str]) -> None:
    assert found(quoted(version, 2, "two"), places) == found(quoted(version, 0, "three"), places) == "as told"
    assert found(quoted(version, 1, "two"), places) == "not there: the text is in lines [2]"
    assert found(quoted(version, 9, "three"), places) == "not there: the text is in no line"
    assert found(quoted(version, 0, "two"), places) == "not there: the text is in the file"


def test_what_is_at_no_place_is_not_looked_up(places: dict[str, str]) -> None:
    for version in ("wheel 2.0", "clone def", "other 1.0"):
        assert found(quoted(version, 2, "two"), places) == "not looked up"


def test_it_exits_with_1_for_a_line_that_is_not_there(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"{name}={place}" for name, place in places.items()]
    for line, status, said in ((2, 0, "1 as told"), (1, 1, "1 not there")):
        monkeypatch.setattr(upstream_facts, "passages", lambda line=line: [("it", quoted("wheel 1.0", line, "two"))])
        assert main(arguments) == status and said in capsys.readouterr().out
    assert main(["--help"]) == 2 and "NAME=PLACE" in capsys.readouterr().out


def test_most_pages_quote_code() -> None:
    assert len({id for id, _ in passages()}) > 35
