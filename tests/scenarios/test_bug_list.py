"""The list of scenarios: what it holds, and how it reads in a terminal, in a notebook and on the command line."""

from __future__ import annotations

import pytest

import labengine
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.scenarios import SCENARIOS, bug, bugs_named
from labengine.scenarios.bug_list import BugList


def test_all_bugs_are_listed_by_engine_and_number() -> None:
    listed = labengine.bugs()
    assert isinstance(listed, list) and {scenario.id for scenario in listed} == SCENARIOS.keys()
    nano = [scenario.id for scenario in listed if scenario.engine == "nano-vllm"]
    assert nano.index("nano-vllm-71") < nano.index("nano-vllm-219"), "by number, not by letters"


def test_the_text_says_what_breaks_and_how_it_is_seen() -> None:
    seen, unseen = bug("nano-vllm-71"), bug("nano-vllm-219")
    first, second = str(BugList([seen, unseen])).split("\n\n")
    assert [line.strip() for line in first.splitlines()] == [
        f"{seen.id}  {seen.title} ({seen.kind})",
        seen.breaks,
        "The checks report: slot, read, named.",
    ]
    assert unseen.why_unseen in " ".join(second.split()) and max(map(len, second.splitlines())) <= 100
    assert str(BugList()) == "no scenarios"


def test_every_bug_says_how_it_is_seen() -> None:
    for scenario in labengine.bugs():
        assert all(rule in scenario.how_seen for rule in scenario.seen_by) and scenario.why_unseen in scenario.how_seen


def test_a_notebook_shows_a_table_and_escapes_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = bug("nano-vllm-71")
    monkeypatch.setattr(type(scenario), "breaks", "<script>")
    html = BugList([scenario])._repr_html_()
    assert html.count("<tr>") == 2 and f'<a href="{scenario.report.url}">nano-vllm-71</a>' in html
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_an_engine_and_a_kind_select() -> None:
    assert {scenario.engine for scenario in labengine.bugs(engine="NANO-vllm")} == {"nano-vllm"}
    boundary = labengine.bugs(kind="boundary")
    assert "nano-vllm-71" in [scenario.id for scenario in boundary] and {one.kind for one in boundary} == {"boundary"}
    assert "nano-vllm-71" not in [scenario.id for scenario in labengine.bugs("vllm", "boundary")]


def test_words_name_an_engine_a_kind_or_both() -> None:
    def ids(*words: str) -> list[str]:
        return [scenario.id for scenario in bugs_named(words)]

    assert ids() == [scenario.id for scenario in labengine.bugs()]
    assert "vllm-44409" in ids("vllm") and "nano-vllm-71" not in ids("vllm")
    assert "vllm-44409" in ids("double", "allocation") and ids("nano-vllm", "double", "allocation") == []


def test_what_is_unknown_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'vlm'.*'nano-vllm'.*mean 'vllm'"):
        labengine.bugs(engine="vlm")
    with pytest.raises(ConfigError, match=r"'dup'.*'duplicate'"):
        labengine.bugs(kind="dup")
    with pytest.raises(ConfigError, match=r"'vlm'.*\(.*vllm.*\).*\(.*duplicate"):
        bugs_named(["vlm"])


def test_the_command_line_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bugs", "nano-vllm", "duplicate"]) == 0
    assert capsys.readouterr().out == f"{labengine.bugs('nano-vllm', 'duplicate')}\n"
    assert main(["bugs", "nothing", "known"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
