"""LABENGINE_TAP_TOKENS=0: lengths and hashes in place of token ids, and what views, answers and conform say then."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
import labengine_vllm
from differential import vllm_streams
from fake_vllm import FakeRequest, FakeScheduler
from labengine import events as ev
from labengine.__main__ import main
from labengine.record.fold import Fold
from labengine.session.saved.trace import Trace
from labengine_vllm.tokens import LEFT_OUT, VARIABLE
from labengine_widgets.words.captions import captions_of
from recorded_files import written
from streams import opened, tapped, without_rate_limits

PROMPT = list(range(70_001, 70_014))


def run(folder: Path) -> Trace:
    """Return the recording of four requests.

    b hits what a has cached; c is another prompt, and longer; d hits less, as c has reused a block.
    """
    scheduler, _ = tapped(folder)
    for name, prompt in (("a", PROMPT), ("b", [*PROMPT, 71_000]), ("c", range(72_000, 72_020)), ("d", PROMPT)):
        scheduler.add_request(FakeRequest(name, list(prompt), 3))
        while scheduler.requests:
            scheduler.update_from_output(scheduler.schedule(), None)
    return opened(folder, scheduler)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A recording without token ids, each of its steps checked by a keyframe."""
    without_rate_limits(monkeypatch)
    monkeypatch.setenv(VARIABLE, "0")
    return run(tmp_path / "tap")


def test_no_token_id_is_written_and_all_else_is_the_same(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = (tmp_path / "tap").iterdir()
    assert not [token for token in PROMPT if str(token) in file.read_text()]
    monkeypatch.setenv(VARIABLE, "1")
    known = run(tmp_path / "known")
    assert not trace.violations and trace.facts["stream"]["gaps"] == [""]
    for moment in range(trace.timeline.end):
        ours, theirs = trace.timeline.state(moment), known.timeline.state(moment)
        assert _without_tokens(ours) == _without_tokens(theirs)
    assert {token for one in trace.fold().requests.values() for token in one.token_ids} == {ev.UNKNOWN_TOKEN}


def _without_tokens(fold: Fold) -> list[object]:
    requests = [(len(one.token_ids), one.num_computed_tokens, one.block_tables) for one in fold.requests.values()]
    return [requests, fold.prefix_map, list(fold.free_queue), fold.block_keys, fold.ref_counts]


def test_views_show_lengths_and_say_why(trace: Trace, tmp_path: Path) -> None:
    assert "Token ids were omitted (LABENGINE_TAP_TOKENS=0)" in trace.note
    trace.save(tmp_path / "run.lab")
    again = labengine.open(tmp_path / "run.lab")
    assert again.note == trace.note and again.token_text(LEFT_OUT) == "·" and LEFT_OUT == ev.UNKNOWN_TOKEN
    captions = [text for _, text, *_ in captions_of(trace.timeline, 0, trace.timeline.end, again.token_text)]
    assert any("joins the waiting queue with 13 prompt tokens" in text for text in captions)
    assert any("samples its next token, at position 13" in text for text in captions)
    assert not [text for text in captions if "-1" in text or "·" in text]


def test_answers_use_hashes_and_take_no_unknown_tokens_for_equal_ones(trace: Trace) -> None:
    by_hash, unknown = (str(trace.why(request=name, about="hit")) for name in ("b", "c"))
    assert "12" in by_hash and "is unknown" not in by_hash
    assert "is unknown" in unknown and "are the same" not in unknown
    evicted = trace.why(request="d", about="hit").answer
    assert "which was evicted" in evicted and "needed a block" in evicted


def test_the_doctor_compares_hashes(trace: Trace, tmp_path: Path) -> None:
    """It finds the same hits and evictions; where prompts diverge it knows the block."""
    for place in (trace, tmp_path / "tap"):
        found = labengine.doctor(place)
        assert [one.verdict for one in found.look_ups] == ["new", "hit", "new", "evicted"]
        assert found.look_ups[1].num_hit == 12 and "by c's" in found.look_ups[3].sentence
        assert "no earlier request begins with the same block" in found.look_ups[2].sentence
        assert found.findings[0].kind.startswith("evicted") and "-1" not in repr(found) + found._repr_html_()
        assert any("Nothing was repeated" in one for one in found.report.notes) and not found.report.curves


def test_conform_does_not_judge_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload, items = next(vllm_streams.read())
    assert workload
    header = {**items[0]["header"], "has_tokens": False}
    file = written([{"header": header}, *items[1:]], tmp_path)
    assert main(["conform", str(file)]) == 2
    assert "it has no token ids" in capsys.readouterr().out


def test_another_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    assert labengine_vllm.attach(FakeScheduler(8), f"file:{tmp_path / 'tap'}") is None
    assert "LABENGINE_TAP_TOKENS must be 0 (omit token ids) or 1, got 'no'" in caplog.text
