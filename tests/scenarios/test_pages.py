"""A scenario as a page, and the gallery of all pages: what they say and link to, and that all text is escaped."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from gzip import decompress
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.core.merge_policy import LateMerge
from labengine.core.parts import Parts
from labengine.record.violation import RULES
from labengine.scenarios import bug, bugs
from labengine.scenarios.bug_page import prose
from labengine.scenarios.gallery import index_page, write_gallery
from labengine.scenarios.nano_vllm_219_duplicate_blocks import DuplicateBlocks
from labengine.scenarios.report import Conclusion, ThreadPassage, UpstreamRun
from labengine.scenarios.scenario import Column

HOSTILE = "</title><script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of #71."""
    path = bug("nano-vllm-71").export(tmp_path_factory.mktemp("pages") / "71.html")
    return path.read_text(encoding="utf-8")


def markup(page: str) -> str:
    """The page without scripts, styles and recordings."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


def recordings(page: str) -> list[Any]:
    """Left, right, and the comparison."""
    found = re.findall(r'class="recording">(.*?)</script>', page)
    return [json.loads(decompress(b64decode(text))) for text in found]


def test_a_page_has_the_report_the_story_the_verdict_and_the_code(page: str) -> None:
    scenario, text = bug("nano-vllm-71"), markup(page)
    verdict = scenario.verdict()
    assert f"<h1>{escape(scenario.title)}</h1>" in text and f'<a href="{scenario.report.url}">' in text
    said = [scenario.claim, scenario.breaks, *verdict.findings]
    said += ["Here the left engine goes wrong, the right one does not.", scenario.conclusion.sentence]
    said += [sentence for _, sentence in (*scenario.report.facts(), *verdict.conclusion.facts())]
    said += [stop.sentence for stop in scenario.guide] + [column.says for column in scenario.columns[:2]]
    said += [RULES[rule] for rule in scenario.seen_by] + [one.question for one in scenario.experiments.values()]
    assert [sentence for sentence in said if escape(sentence) not in text] == []
    assert "class AppendsWhenFull(OwnTokensGroup):" in text, "the override"
    assert "original: KVCacheGroup in labengine.core.kv_cache_group" in text, "and what it overrides"
    assert "%lab bug nano-vllm-71" in text and text.count("<h1>") == 1


def test_the_engines_in_it_are_played_to_the_end_of_the_story(page: str) -> None:
    scenario = bug("nano-vllm-71")
    left, right, pair = recordings(page)
    assert pair["guide"] == [stop.sentence for stop in scenario.guide]
    reached = [row[6] for row in pair["captions"] if row[6] is not None]
    assert reached == list(range(len(scenario.guide))), "the follow-up, too"
    assert left["header"]["is_live"] is right["header"]["is_live"] is pair["is_live"] is False


def test_a_side_that_is_an_edition_shows_where_the_other_one_differs(tmp_path: Path) -> None:
    text = bug("nano-vllm-219").export(tmp_path / "219.html").read_text(encoding="utf-8")
    code = markup(text).partition("<h2>The code</h2>")[2]
    assert "nano-vllm+243: labengine.core.merge_policy" in code and "class LateMerge(MergePolicy):" in code
    assert "nano-vllm: MergePolicy in labengine.core.merge_policy" in code


def test_a_runner_shows_the_method_in_which_it_differs(tmp_path: Path) -> None:
    page = bug("vllm-43810").export(tmp_path / "runner.html").read_text(encoding="utf-8")
    code = page[page.index("<h2>The code</h2>") :]
    assert "class IndexesFromTheEnd(StaticTorch)" in code and "skips: StaticTorch in labengine" in code


def test_a_page_alone_has_no_link_to_a_list(page: str) -> None:
    assert "All bugs" not in page and 'href="index.html"' not in page


class Hostile(DuplicateBlocks):
    """Every text is an attack."""

    id, title, claim, question, breaks, why_unseen = ("hostile-1", *(HOSTILE,) * 5)
    report = replace(DuplicateBlocks.report, title=HOSTILE, seen_in=HOSTILE, mended_in=HOSTILE, needs=(HOSTILE,))
    conclusion = Conclusion(
        answer="holds",
        reason=HOSTILE,
        runs=(UpstreamRun(version=HOSTILE, part=HOSTILE, command=HOSTILE, rows={HOSTILE: {HOSTILE: 1}}),),
        passages=(ThreadPassage(source=HOSTILE, says=HOSTILE),),
    )
    roles, follow_up_question = (HOSTILE, HOSTILE), HOSTILE
    columns = (
        Column("nano-vllm", name=HOSTILE, says=HOSTILE),
        Column("nano-vllm+243", Parts(name=HOSTILE, merge_policy=LateMerge), name=f"{HOSTILE}2", says=HOSTILE),
    )
    experiments = MappingProxyType({})

    def answer(self, table: Any) -> str:
        return HOSTILE


def test_all_text_is_escaped(tmp_path: Path) -> None:
    for path in (Hostile().export(tmp_path / "page.html"), write_gallery([Hostile()], tmp_path / "all")):
        text = path.read_text(encoding="utf-8")
        assert "alert(1)" in text and "<script>alert" not in text and "</title><script>" not in text


# -- the gallery -------------------------------------------------------------------------------------------------------


def test_the_gallery_has_a_page_for_each_and_links_both_ways(tmp_path: Path) -> None:
    written: list[Path] = []
    scenarios = [bug("nano-vllm-71"), bug("vllm-44409")]
    index = write_gallery(scenarios, tmp_path / "new" / "folder", written.append)
    text = index.read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)"', text)
    assert [index.parent / link for link in links] == written and all(path.exists() for path in written)
    for path in written:
        assert '<a href="index.html">All bugs</a>' in path.read_text(encoding="utf-8")
    assert text.index("boundary") < text.index("double allocation") and "2 upstream reports" in text


def test_the_list_names_every_scenario_once() -> None:
    text = index_page(bugs())
    assert sorted(re.findall(r'href="([^"]+)\.html"', text)) == sorted(scenario.id for scenario in bugs())
    reports = [scenario.report for scenario in bugs()]
    assert [fact for one in reports if one for _, fact in one.facts() if escape(fact) not in text] == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        write_gallery([], tmp_path / "file")


# -- on the command line -----------------------------------------------------------------------------------------------


def test_the_command_line_writes_a_page_and_a_gallery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "71.html"
    assert main(["bug", "nano-vllm-71", "--page", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n" and target.exists()
    assert main(["bugs", "nano-vllm", "duplicate", "--pages", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "all" / "index.html")
    assert (tmp_path / "all" / "nano-vllm-219.html").exists()


def test_a_page_of_no_report_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bug", "--page", str(tmp_path / "x.html")]) == 2
    assert "name it" in capsys.readouterr().err and not (tmp_path / "x.html").exists()
    assert main(["bug", "nano-vllm-71", "--page", str(tmp_path / "missing" / "x.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_code_in_a_sentence_is_marked_and_nothing_else_is() -> None:
    assert prose("`a < b` & <b>") == "<code>a &lt; b</code> &amp; &lt;b&gt;"
    assert prose("one ` alone") == "one ` alone"
