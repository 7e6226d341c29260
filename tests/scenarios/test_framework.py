"""The frame around scenarios: columns, tables, verdicts, the first wrong event, and how they read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields

import pytest

from labengine import events as ev
from labengine.__main__ import main
from labengine.config import ConfigError, GroupSpec
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.scenarios import SCENARIOS, bug
from labengine.scenarios.corruption import SideBySide
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.scenarios.report import UNKNOWN
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    Scenario,
    Table,
    Verdict,
    moment_of,
    settings,
    symptom,
    wrong_at,
)


class Tiny(Scenario):
    """One request of five tokens: nothing goes wrong in either column."""

    id = "tiny-1"
    title = "A scenario for the tests"
    claim = "something <b>is</b> wrong"
    question = "How many blocks?"
    columns = (
        Column("nano-vllm", name="one", says="."),
        Column("nano-vllm+243", Parts(name="mine"), name="two", says="."),
    )
    settings = settings(num_blocks=8, block_size=4)
    sentences = ("Look.",)

    def play(self, lab: Lab) -> None:
        lab.add(token_ids=range(5), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        return {"used blocks": lab.snapshot().num_used_blocks}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        return measured["used blocks"] > 2

    def answer(self, table: Table) -> str:
        return f"{table['one']['used blocks']} & no more."


class Breaks(Tiny):
    """The first column merges into a block that is free."""

    columns = (
        Column("nano-vllm+243", NoAliveCheck, name="careless", says="."),
        *Tiny.columns,
    )

    def play(self, lab: Lab) -> None:
        for max_tokens in (1, 3):
            lab.add(token_ids=range(5), max_tokens=max_tokens)
        lab.step()


def test_a_lab_is_empty_and_a_played_one_is_not() -> None:
    with Tiny().lab("two") as lab:
        assert (lab.parts.name, lab.snapshot().requests) == ("mine", {})
    with Tiny().played("one") as lab:
        assert (lab.parts.name, lab.snapshot().step) == ("nano-vllm", 1)


def test_every_column_is_measured() -> None:
    table = Tiny().table()
    assert table.to_dict() == {"one": {"used blocks": 2}, "two": {"used blocks": 2}}
    assert (table["one"]["used blocks"], table.rows) == (2, ("used blocks",))


def test_an_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'three'.*'one', 'two'"):
        Tiny().lab("three")


def test_groups_are_for_the_simulated_model_only() -> None:
    class Grouped(Tiny):
        settings = settings(num_blocks=8, groups=(GroupSpec(4),))

    assert set(Grouped().settings_for("simulated")) == {"num_blocks", "groups"}
    assert set(Grouped().settings_for("smollm2")) == {"num_blocks"}


def test_a_verdict_is_what_the_columns_came_to() -> None:
    verdict = Tiny().verdict()
    assert (verdict.reproduced, verdict.fixed, verdict.claim_holds) == (False, True, False)
    assert (verdict.conclusion, Breaks().verdict().conclusion) == (UNKNOWN, UNKNOWN), (
        "no column says what upstream does"
    )
    assert (verdict.before, verdict.after, verdict.first_wrong_event) == ({"used blocks": 2},) * 2 + (None,)
    assert verdict.findings == ("2 & no more.",)


def test_the_first_wrong_event_is_the_earliest_that_broke_a_rule() -> None:
    with Breaks().broken() as lab:
        first = Breaks().first_wrong(lab)
        assert first is not None and isinstance(first.event, ev.BlockMerged)
        assert first.moment == min(v.first_event for v in lab.violations if v.first_event is not None)
        assert lab.timeline is not None
        before, after = (lab.timeline.state(first.moment + i).snapshot() for i in (0, 1))
        assert before.blocks[0].ref_count == 0 and after.blocks[0].ref_count == 1
        assert 0 in after.free_queue


def test_a_verdict_reads_well_and_is_plain_json() -> None:
    verdict = Breaks().verdict()
    text = str(verdict)
    assert text.startswith("tiny-1  A scenario for the tests\nClaim: something <b>is</b> wrong\n\n")
    assert "First wrong event, number" in text and text.endswith("\n\n* 2 & no more.")
    assert max(map(len, text.splitlines())) <= 100
    plain = verdict.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert [f.name for f in fields(Verdict)][:8] == list(plain)[:8]
    assert list(plain)[8:] == ["claim_answer", "claim_reason", "upstream_runs"]
    assert plain["first_wrong_event"]["event"]["kind"] == "BlockMerged"


def test_html_is_escaped() -> None:
    html = Breaks().verdict()._repr_html_()
    assert "<b>is</b>" not in html and "&lt;b&gt;is&lt;/b&gt;" in html and " &amp; no more." in html
    assert "<script>" not in Table("<script>", {"<script>": {"<script>": 1}})._repr_html_()
    assert "<script>" not in SideBySide(("<script>", "b"), (("a <script>",), ("b",)))._repr_html_()


def test_bytes_in_an_event_are_written_as_hex() -> None:
    event = ev.BlockCached(1, 0, 0, 0, b"\x01\xff", (1,))
    described = FirstWrong(3, event, "so").to_dict()
    assert described["event"]["block_hash"] == "01ff" and described["event"]["mapped"] == [1]


def test_a_moment_that_is_not_recorded_is_refused() -> None:
    with Tiny().played("one") as lab:
        assert lab.timeline is not None
        assert wrong_at(lab, 0, "so").event == lab.timeline.events()[0]
        with pytest.raises(IndexError, match="event "):
            wrong_at(lab, lab.timeline.end, "so")


def test_moments_are_found_by_kind_and_test() -> None:
    with Tiny().played("one") as lab:
        assert lab.timeline is not None
        moment = moment_of(lab, ev.BlockAllocated, lambda event: event.index == 1)
        assert moment is not None
        [event] = lab.timeline.events(moment, moment + 1)
        assert isinstance(event, ev.BlockAllocated) and event.index == 1
        assert moment_of(lab, ev.BlockMerged) is None


def test_a_symptom_is_the_error_in_a_line() -> None:
    assert symptom(lambda: None) == ""
    assert symptom(lambda: {}["x"]) == "KeyError: 'x'"  # type: ignore[index]


def test_tables_with_unequal_rows_show_a_dash() -> None:
    table = Table("", {"a": {"x": 1}, "b": {"y": 22}})
    assert str(table) == "   a   b\nx  1   -\ny  -  22"


def test_side_by_side_finds_the_first_differing_word() -> None:
    both = SideBySide(("broken", "fixed"), (("a b  c", "same", "one"), ("a b d", "same", "one two")))
    assert [both.first_difference(request) for request in range(3)] == [(2, "c", "d"), None, (1, "", "two")]
    assert both.num_differing == 2
    assert "word 3: 'c' instead of 'd'" in str(both)
    assert "word 2: 'the end' instead of 'two'" in str(both)
    assert both._repr_html_().count("<mark>") == 3


# -- the list ----------------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="mean 'nano-vllm-219'"):
        bug("nano-vllm-218")
    with pytest.raises(ConfigError, match=r"'nano-vllm-219'.*mean 'nano-vllm-71'"):
        bug("71")
    with pytest.raises(ConfigError):
        bug(219)  # type: ignore[arg-type]


# -- on the command line -----------------------------------------------------------------------------------------------


def test_the_command_line_lists_and_describes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bug"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SCENARIOS)
    assert main(["bug", "nano-vllm-71"]) == 0
    described = capsys.readouterr().out
    assert described.startswith("nano-vllm-71  The off-by-one that was none\n")
    assert "position 3      7         3" in described and described.endswith(
        "https://github.com/GeeeekExplorer/nano-vllm/pull/71\n"
    )


def test_the_command_line_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bug", "nano-vllm-72"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_public_name_is_lazy() -> None:
    code = "import labengine, sys; labengine.bug; print([m for m in sys.modules if m in ('torch', 'labengine.lab')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
