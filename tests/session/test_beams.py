"""Beam searches in a lab: requested, streamed, repeated, saved, compared and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from driving import difference
from labengine import Lab
from labengine import events as ev
from labengine.config import ConfigError
from labengine.scripts import break_off

PROMPT = [1, 2, 3, 4, 5, 6]


def small(**settings: Any) -> Lab:
    return Lab(**{"model": "simulated", "num_blocks": 24, "block_size": 4} | settings)  # type: ignore[arg-type]


def searched(**settings: Any) -> Lab:
    """A search, an interrupted step, and a request that joins."""
    lab = small(**settings)
    lab.add(token_ids=PROMPT, beams=4, max_tokens=8)
    lab.step(2)
    break_off(lab, "sample")
    lab.step()
    lab.add(token_ids=[9, 9, 9], max_tokens=4)
    lab.step(2)
    return lab


def test_a_search_is_as_many_requests_as_beams_and_the_first_has_the_best_text() -> None:
    with small() as lab:
        assert lab.add(token_ids=PROMPT, beams=3, max_tokens=6) == [0, 1, 2]
        assert lab.add(token_ids=[9], beams=1, max_tokens=1) == 3
        report = lab.step()
        assert report.scheduled == {0: 6, 3: 1} and [*report.sampled] == [3, 0, 1, 2]
        lab.run()
        texts = [lab.output(i).token_ids for i in range(3)]
        assert len(set(texts)) == 3 and {lab.output(i).finish_reason for i in range(3)} == {"length"}
        assert lab.check() == [] and lab.snapshot().num_used_blocks == 0
        assert lab.stats().num_sampled_tokens == 3 * 6 + 1
        assert [one.text for one in lab.generate([PROMPT, [9]], beams=3, max_tokens=6)] == [
            lab.output(i).text for i in (4, 7)
        ]
        assert lab.output(4).token_ids == texts[0]


def test_a_beams_text_comes_when_its_search_has_ended() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, beams=3, max_tokens=6)
        pieces = list(lab.stream("B"))
        assert pieces == [lab.output("B").text] and lab.output("B").finish_reason == "length"


def test_an_abort_of_one_beam_ends_all() -> None:
    with small() as lab:
        ids = lab.add(token_ids=PROMPT, beams=3, max_tokens=6)
        lab.step(2)
        assert lab.abort("C") and not lab.abort("A")
        assert {lab.output(i).finish_reason for i in ids} == {"abort"} and not lab.step()


@pytest.mark.parametrize(
    ("edition", "asked", "why"),
    [
        ("labengine", {"beams": 17}, "beams=17: the beams of a search run together"),
        ("labengine", {"beams": 2, "n": 2}, "beams=2 already gives 2 texts"),
        ("labengine", {"beams": 2, "temperature": 1.0}, "omit temperature"),
        ("labengine", {"beams": "x"}, "beams must be an integer"),
        ("vllm", {"beams": 2}, "edition 'vllm' has no beam search"),
        ("nano-vllm", {"beams": 2}, "this edition has no beam search"),
    ],
)
def test_a_search_is_refused_before_anything_changes(edition: str, asked: dict[str, Any], why: str) -> None:
    with small(edition=edition) as lab:
        with pytest.raises(ConfigError, match=why):
            lab.add(token_ids=PROMPT, max_tokens=2, **asked)
        assert lab.inputs == () and not lab.snapshot().requests


def test_rewind_fork_script_and_file_have_the_search(tmp_path: Path) -> None:
    with searched() as lab, lab.fork() as other, lab.fork(2) as earlier:
        assert difference(other.snapshot(), lab.snapshot()) is None
        names: dict[str, Any] = {}
        exec(lab.to_code(), names)
        assert difference(names["lab"].snapshot(), lab.snapshot()) is None
        assert "beams=4)" in lab.to_code() and "n=" not in lab.to_code()
        lab.save(tmp_path / "run.lab")
        trace = labengine.open(tmp_path / "run.lab")
        assert difference(trace.timeline.state().snapshot(), lab.snapshot()) is None
        after = lab.snapshot()
        lab.rewind(2)
        assert difference(earlier.snapshot(), lab.snapshot()) is None
        lab.rewind(5)
        assert difference(after, lab.snapshot()) is None
        lab.run()
        assert lab.check() == []
        lab.save(tmp_path / "end.lab")
        assert difference(labengine.open(tmp_path / "end.lab").timeline.state().snapshot(), lab.snapshot()) is None


def test_a_rerun_searches_again_on_both_sides() -> None:
    with searched() as lab, lab.rerun(lab.parts.kv_cache_manager) as both:
        for side in (both.left, both.right):
            assert difference(side.snapshot(), lab.snapshot()) is None


def test_a_fork_on_an_edition_without_beams_is_refused() -> None:
    with searched() as lab, pytest.raises(ConfigError, match="has no beam search"):
        lab.fork(edition="vllm")


def test_sliders_search_again_on_the_simulated_model() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, beams=3, max_tokens=6)
        lab.run()
        with labengine.vary(lab).run(num_blocks=4) as tight:
            assert ev.RequestPreempted in map(type, tight.timeline.events())
            assert [tight.output(i).token_ids for i in range(3)] == [lab.output(i).token_ids for i in range(3)]


def test_why_knows_beams_that_do_not_go_on() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, beams=3, max_tokens=7)
        lab.run()
        events = lab.timeline.events()  # type: ignore[union-attr]
        number = next(n for n, event in enumerate(events) if isinstance(event, ev.BeamReplaced))
        texts = [str(link.sentence) for link in lab.why(event=number).links]
        assert any("C continues from A" in text for text in texts)
        assert "BeamSearches.places decided it" in lab.why(event=number).answer
        assert any("beam" in str(link.sentence) for link in lab.why(event=number - 1).links)
        forked = lab.why(event=number + 1)
        assert any("beam" in str(link.sentence) for link in forked.links)
