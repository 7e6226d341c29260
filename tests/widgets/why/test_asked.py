"""How why? is asked and answered: subjects by name, wrong ones refused, answers as text, HTML and JSON."""

from __future__ import annotations

import json

import pytest

from labengine.core.editions import NANO_VLLM
from labengine.session.reasons import seams_of
from labengine_widgets.why import Link, Why, WhyError, answer, carried_answers, why
from recordings import timeline_of
from widgets.why.why_runs import MERGED, OVERWRITTEN


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({}, "got nothing"),
        ({"block": 1, "request": 2}, "got ['block', 'request']"),
        ({"blok": 1}, "'blok'"),
        ({"block": 99}, "blocks 0 to 11"),
        ({"block": -1}, "got -1"),
        ({"block": True}, "got True"),
        ({"block": "3"}, "got '3'"),
        ({"block": 1, "about": "weather"}, "'ref_count', 'lost', 'free', 'queue'"),
        ({"event": 1, "about": "weather"}, "got 'weather'"),
        ({"next_victim": False}, "got False"),
        ({"next_victim": 3}, "next_victim must be True, got 3"),
        ({"request": 9}, "0 (A) and 1 (B)"),
        ({"request": -1}, "got -1"),
        ({"request": "A1"}, "got 'A1'"),
        ({"hash": "xyz"}, "got 'xyz'"),
        ({"hash": "fffffffff"}, "fffffffff"),
        ({"hash": ""}, "got ''"),
        ({"hash": b""}, "got b''"),
        ({"event": 4000}, "events 0 to 32"),
        ({"kind": None, "id": None}, "a None"),
    ],
)
def test_bad_subjects_are_refused_by_name(subject: dict[str, object], message: str) -> None:
    with pytest.raises(WhyError) as error:
        why(timeline_of(MERGED), subject)
    assert message in str(error.value)
    reply = answer(None, timeline_of(MERGED), subject)
    assert reply["is_error"] and message in reply["answer"]


def test_a_moment_that_is_not_kept_is_refused() -> None:
    with pytest.raises(WhyError, match="10000"):
        why(timeline_of(MERGED), {"block": 1}, 10_000)
    assert answer(None, timeline_of(MERGED), {"block": 1}, -3)["is_error"]


def test_an_answer_prints_as_text_and_escapes_as_html() -> None:
    reply = Why("Why <b>?", "Because <script>.", (Link(3, 2, "a & b", "C.m", "x < y", -1),))
    assert repr(reply).splitlines()[0] == "Why <b>?" and "event    2  -1  a & b" in repr(reply)
    html = reply._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "x &lt; y" in html and "a &amp; b" in html
    assert json.loads(json.dumps(reply.to_dict())) == reply.to_dict()
    assert reply.to_dict()["links"][0]["change"] == -1


def test_a_selection_is_a_subject_too() -> None:
    timeline = timeline_of(MERGED)
    assert why(timeline, {"kind": "block", "id": 0}) == why(timeline, {"block": 0})


def test_a_page_takes_answers_along() -> None:
    carried = carried_answers(timeline_of(OVERWRITTEN), seams_of(NANO_VLLM))
    asked = {(one["subject"]["kind"], one["subject"]["id"], one["subject"]["about"]) for one in carried}
    assert {("block", 0, "lost"), ("block", 4, "ref_count"), ("request", 1, "hit"), ("block", 8, "queue")} <= asked
    assert all(one["moment"] == len(OVERWRITTEN) for one in carried)
    assert json.loads(json.dumps(carried)) == carried
