"""The table of a race: the best figure of each column is marked, and none where all are alike."""

from __future__ import annotations

from labengine.course.race_table import RaceTable

RUNS = {
    "as it is": {"tokens": 574, "found": 20, "peak": 9},
    "<b>Mine</b>": {"tokens": 514, "found": 80, "peak": 9},
    "Yours": {"tokens": 514, "found": 60, "peak": 9},
}
TABLE = RaceTable(("tokens", "found", "peak"), RUNS, more_is_better={"found"})


def test_the_best_is_the_least_or_the_most_and_equals_share_it() -> None:
    assert [TABLE.best(column) for column in TABLE.columns] == [514, 80, None]
    rows = [line.split()[-3:] for line in repr(TABLE).splitlines()]
    assert rows[0] == ["tokens", "found", "peak"] and rows[1] == ["less", "more", "less"]
    assert rows[2:5] == [["574", "20", "9"], ["514*", "80*", "9"], ["514*", "60", "9"]]


def test_names_are_no_markup_and_colours_are_the_pages() -> None:
    html = TABLE._repr_html_()
    assert html.count("<b>514</b>") == 2 and html.count("<b>80</b>") == 1 and "<b>9</b>" not in html
    assert "&lt;b&gt;Mine" in html and "color:inherit" in html


def test_a_single_run_has_no_best() -> None:
    one = RaceTable(("tokens",), {"as it is": {"tokens": 1}})
    assert one.best("tokens") is None and "*" not in repr(one) + one._repr_html_()
