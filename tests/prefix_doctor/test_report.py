"""A report as text, JSON, notebook HTML and a page: nothing of its texts escapes, and its answer comes first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from checkout import ROOT
from labengine.config import ConfigError
from labengine.prefix_doctor.causes.finding import Example
from labengine.prefix_doctor.look_ups.look_up import CAUSES
from labengine.prefix_doctor.report.columns import WIDTH, width_of
from labengine.prefix_doctor.report.markup import COLOURS
from labengine.prefix_doctor.report.notebook import notebook_html_of
from labengine.prefix_doctor.report.page import page_of
from labengine.prefix_doctor.report.text import MAX_LOOK_UPS, example_lines, text_of
from labengine.prefix_doctor.report.words import duration
from reports import HOSTILE, faultless_report, made_report


class Markup(HTMLParser):
    """Collects the tags, the attributes and the visible text of a page, and checks that tags are closed in order."""

    VOID = ("meta", "input", "option", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set[str](), list[tuple[str, str]](), ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["script"]:
            self.text += data


@pytest.mark.parametrize("render", [page_of, notebook_html_of])
def test_no_text_of_a_prompt_becomes_markup(render: Any) -> None:
    plain, hostile = Markup(render(made_report())), Markup(render(made_report(hostile=HOSTILE)))
    assert hostile.tags == plain.tags and "img" not in hostile.tags
    names = {name for name, _ in hostile.attributes}
    assert {name for name in names if name.startswith("on")} == set() and {"src", "href", "action"} & names == set()
    assert "onerror=alert(1)" in hostile.text, "it is shown as text"
    assert "\u202e" not in hostile.text and "\x1b" not in hostile.text


def test_a_page_has_its_findings_prices_and_cures_and_a_notebook_has_the_same() -> None:
    report = made_report(command="labengine doctor prompts.jsonl")
    page, notebook = Markup(page_of(report)).text, Markup(notebook_html_of(report)).text
    first = report.findings[0]
    assert first.cure is not None
    shown = [
        first.sentence,
        first.where,
        f"{first.num_lost:,} tokens",
        f"{first.cure.after.num_computed:,}",
        "17.8 GiB",
    ]
    shown += [
        "labengine doctor prompts.jsonl --show 2",
        "3.20 EUR",
        "best possible",
        report.clock_note,
        "blue",
        "req-5",
    ]
    assert [one for one in shown if one not in page or one not in notebook] == []
    assert "<script" not in notebook_html_of(report)


def test_every_cause_has_a_colour() -> None:
    assert COLOURS.keys() == CAUSES.keys()


def test_figures_inside_a_page_are_json_and_end_no_script() -> None:
    page = page_of(made_report(hostile=HOSTILE))
    (figures,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    parsed = json.loads(figures)
    assert len(parsed) == page.count('class="plot"') and all(len(one["data"]) in (1, 2) for one in parsed)
    assert "Interrupted" not in page and "Interrupted" in page_of(replace(made_report(), is_partial=True))


def test_a_page_without_plotly_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labengine.system.extras.find_spec", lambda module: None)
    with pytest.raises(ConfigError, match=r"needs plotly: pip install .*\[lab\]"):
        page_of(made_report())


@pytest.mark.parametrize("hostile", ["", HOSTILE, "漢" * 300, "x" * 300])
def test_a_line_of_text_has_at_most_100_columns(hostile: str) -> None:
    lines = text_of(made_report(hostile=hostile, command="labengine doctor " + "x" * 200)).splitlines()
    assert [line for line in lines if width_of(line) > WIDTH] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_answer_is_on_the_first_screen() -> None:
    lines = text_of(made_report(command="labengine doctor prompts.jsonl")).splitlines()
    first = "\n".join(lines[:24])
    for words in ("Hit rate 12.3 %", "1. A clock before the rules", "Cure: Put the time", "55.4 %", "--show 1"):
        assert words in first
    assert "Nothing to mend" in text_of(faultless_report()) and "Causes" not in text_of(faultless_report())


def test_a_setting_without_effect_is_one_line() -> None:
    report = made_report()
    points = tuple(replace(one, figures=report.figures) for one in report.curves[0].points)
    flat = replace(report, curves=(replace(report.curves[0], points=points),))
    for rendered in (text_of(flat), page_of(flat), notebook_html_of(flat)):
        assert "Blocks in the pool: from 1,000 to 16,000 blocks, the hit rate stays the same." in rendered
        assert "best possible" not in rendered
    assert "best possible" in text_of(report)


def test_look_ups_are_printed_while_they_are_few() -> None:
    few, many = (text_of(made_report(num_look_ups=number)) for number in (MAX_LOOK_UPS, MAX_LOOK_UPS + 1))
    assert few.count("hit 24 of 40") == MAX_LOOK_UPS and many.count("hit 24 of 40") == 0
    assert "31 look-ups: too many to print" in many


@pytest.mark.parametrize(
    ("mine", "its", "marks"),
    [("1. ", "0. ", "^^^"), ("", "now ", "^^^^"), ("漢字", "a", "^^^^"), ("", "", "^")],
)
def test_the_divergence_of_an_example_is_marked_below_it(mine: str, its: str, marks: str) -> None:
    example = Example("A", "long name", 7, 9, "before " * 20, mine, its, "the same again")
    *texts, below = example_lines(example, "  ")
    places = [[width_of(line[: one.start()]) for one in re.finditer("│", line)] for line in texts]
    assert [one[0] + 1 for one in places] == [below.index("^")] * 2, "the marks begin behind the first bars"
    assert below.strip() == marks and all("the same again" in line for line in texts)


def test_durations_have_two_digits() -> None:
    shown = {0: "0 s", 0.0004: "0 ms", 0.64: "640 ms", 1.26: "1.3 s", 61.2: "61 s", 125: "2.1 min", 11_520: "3.2 h"}
    assert {seconds: duration(seconds) for seconds in shown} == shown
    assert all(duration(one) != duration(other) for one, other in pairwise([0.5, 0.9994, 1.0, 89.4, 90.0, 5_400.0]))


# The JSON and its page


def sections() -> dict[str, dict[str, str]]:
    """Return the keys of each table in docs/doctor_json.md, with their types."""
    page = (ROOT / "docs" / "doctor_json.md").read_text(encoding="utf-8")
    return {
        part.splitlines()[0]: dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", part, re.MULTILINE))
        for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]
    }


PLAIN: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


def faults(value: Any, kind: str, at: str = "") -> list[str]:
    """Return the places at which a value is not of a documented type, or has other keys than documented."""
    if kind.endswith(" or null"):
        return [] if value is None else faults(value, kind.removesuffix(" or null"), at)
    if kind.startswith("list of "):
        assert value, f"the made report has an example of {at}"
        return [fault for one in value for fault in faults(one, kind.removeprefix("list of "), f"{at}[]")]
    if kind.endswith(" by name"):
        return [fault for name, one in value.items() for fault in faults(one, kind.removesuffix(" by name"), at + name)]
    if link := re.match(r"\[(.*?)\]\(#", kind):
        keys = sections()[link[1]]
        optional = {name for name, one in keys.items() if one.endswith(", if any")}
        wrong = [f"{at}.{name}" for name in (value.keys() ^ keys.keys()) - (optional - value.keys())]
        return wrong + [
            fault for name, one in value.items() if name in keys for fault in faults(one, keys[name], f"{at}.{name}")
        ]
    is_bool = isinstance(value, bool) and kind != "boolean"
    return [] if isinstance(value, PLAIN[kind]) and not is_bool else [f"{at}: {value!r} is no {kind}"]


def test_the_documented_keys_are_those_of_the_json() -> None:
    report = made_report(hostile=HOSTILE)
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    for empty in (finding for finding in document["findings"] if not finding["examples"]):
        empty.update(examples=document["findings"][0]["examples"], shown=[1])
    assert faults(document, "[Report](#report)") == []
    assert faults({**document, "extra": 1}, "[Report](#report)") == [".extra"]
    assert faults({**document, "unit": "16"}, "[Report](#report)") == [".unit: '16' is no integer"]


def test_the_example_on_the_page_fits() -> None:
    page = (ROOT / "docs" / "doctor_json.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert faults(json.loads(example), "[Finding](#finding)") == []
