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
        ({}, "a question is about one thing"),
        ({"block": 1, "request": 2}, "a question is about one thing"),
        ({"blok": 1}, "nothing is known about a 'blok'"),
        ({"block": 99}, "there is no block 99: the pool has blocks 0 to 11"),
        ({"block": -1}, "whole number from 0 on"),
        ({"block": True}, "whole number from 0 on"),
        ({"block": "3"}, "whole number from 0 on"),
        ({"block": 1, "about": "weather"}, "about is one of 'ref_count', 'lost', 'free', 'queue'"),
        ({"event": 1, "about": "weather"}, "for an event, there is but one question"),
        ({"next_victim": False}, "next_victim=True asks which block is evicted next; got False"),
        ({"next_victim": 3}, "next_victim=True asks which block is evicted next; got 3: block=3 asks about a block"),
        ({"request": 9}, "there is no request 9; there are requests 0 (A) and 1 (B)"),
        ({"request": -1}, "whole number from 0 on, or a name such as 'A'; got -1: there are requests 0 (A) and 1 (B)"),
        ({"request": "A1"}, "or a name such as 'A'; got 'A1': there are requests 0 (A) and 1 (B)"),
        ({"hash": "xyz"}, "a hash is bytes"),
        ({"hash": "fffffffff"}, "no block was ever registered"),
        ({"hash": ""}, "a hash is bytes"),
        ({"hash": b""}, "a hash is bytes"),
        ({"event": 4000}, "event 4000 is not kept"),
        ({"kind": None, "id": None}, "nothing is known about a None"),
    ],
)
def test_bad_subjects_are_refused_by_name(subject: dict[str, object], message: str) -> None:
    with pytest.raises(WhyError) as error:
        why(timeline_of(MERGED), subject)
    assert message in str(error.value)
    reply = answer(None, timeline_of(MERGED), subject)
    assert reply["is_error"] and message in reply["answer"]


def test_a_moment_that_is_not_kept_is_refused() -> None:
    with pytest.raises(WhyError, match="the recording spans 0 to"):
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
