"""The engine's own ids of the requests that an answer names."""

from __future__ import annotations

from labengine import events as ev
from labengine_widgets.why import Why, answers_along, why
from labengine_widgets.why.past import Past
from labengine_widgets.why.questions import MAX_LENGTH, with_engine_ids
from labengine_widgets.why.subjects import Subject
from recordings import timeline_of
from widgets.why.why_runs import MERGED

TIMELINE = timeline_of(MERGED)
IDS = {0: "cmpl-one", 1: "<b>two</b>\u202e"}


def id_of(request_id: int) -> str:
    return IDS.get(request_id, "")


def test_an_answer_lists_the_ids_of_its_question_and_its_events() -> None:
    answer = why(TIMELINE, {"request": 1}, engine_ids=id_of)
    assert ("B", "<b>two</b>·") in answer.names and "B = <b>two</b>·" in str(answer)
    assert answer.to_dict()["names"] == answer.names_line()
    html = answer._repr_html_()
    assert "B = &lt;b&gt;two&lt;/b&gt;·" in html and "<b>two" not in html


def test_an_engine_without_ids_adds_nothing() -> None:
    plain = why(TIMELINE, {"request": 1})
    assert why(TIMELINE, {"request": 1}, engine_ids=lambda request_id: "") == plain
    assert "names" not in plain.to_dict()


def test_a_letter_in_the_text_is_a_request_and_the_article_is_none() -> None:
    past, asked = Past(TIMELINE), Subject("block", 0, None)
    assert set(past.state.requests) == {0, 1}
    texts = {"A block is held by B.": [("B", "<b>two</b>·")], "A block is free.": [], "HELD by no one.": []}
    for text, names in texts.items():
        assert list(with_engine_ids(past, asked, Why("Why?", text), id_of).names) == names


def test_a_long_id_is_cut() -> None:
    ((letter, name),) = why(TIMELINE, {"request": 0}, engine_ids=lambda i: "x" * 500 if i == 0 else "").names
    assert letter == "A" and name == "x" * (MAX_LENGTH - 1) + "…"


def test_answers_that_a_page_carries_have_them() -> None:
    carried = answers_along(TIMELINE, engine_ids=id_of)
    added = [i for i, event in enumerate(TIMELINE.events()) if isinstance(event, ev.RequestAdded)]
    about = {one["subject"]["id"]: one["answer"] for one in carried if one["subject"]["kind"] == "event"}
    assert [about[number]["names"] for number in added] == ["A = cmpl-one", "B = <b>two</b>·"]
