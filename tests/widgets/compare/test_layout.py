"""Texts of a comparison do not overlap: equal rows on both sides, no cut without a sign, no label over another."""

from __future__ import annotations

from itertools import pairwise

import pytest

import labengine
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison
from widgets.compare.compare_page import ComparePage, show_comparison

pytestmark = pytest.mark.browser

CUT = """() => [...document.querySelectorAll(
  ".le-column-head, .le-pair-score, .le-tables-target, .le-tables-none, .le-tables-index, .le-map-bead"
)].filter((one) => one.clientHeight && one.scrollWidth > one.clientWidth + 1)
  .map((one) => one.className + ": " + one.textContent)"""
CUT_LEFT = """() => {
  const left = (one) => one.getBoundingClientRect().left;
  return [...document.querySelectorAll(".le-column .le-tables-target")]
    .filter((one) => one.clientHeight)
    .map((one) => [one, [...one.children].filter((child) => child.getClientRects().length)])
    .filter(([one, shown]) => shown.some((child) => left(child) < left(one) - 1))
    .map(([one, shown]) => `${one.textContent} by ${left(one) - left(shown[0])}`);
}"""
SCORES = """() => [...document.querySelectorAll(".le-pair-score")].map((score) => {
  const spans = [...score.children].map((one) => one.getBoundingClientRect()), frame = score.getBoundingClientRect();
  return [spans.map(({ left, right, bottom }) => [left, right, bottom]), frame.right];
})"""
BADGES = """() => [0, 1].map((side) => {
  const badges = document.querySelectorAll(`.le-column[data-side="${side}"] .le-tables-row .le-badge`);
  return [...badges].map((one) => one.textContent);
})"""
GROUPS = """() => [0, 1].map((side) => {
  const tops = {};
  const rows = document.querySelectorAll(`.le-column[data-side="${side}"] .le-map-row`);
  for (const row of rows) tops[row.dataset.group] ??= row.offsetTop;
  return tops;
})"""
FRAMES = """() => [0, 1].flatMap((side) => ["tables", "map", "queue"].map((name) => {
  const panel = document.querySelector(`.le-column[data-side="${side}"] .le-${name}-panel`);
  const sign = panel.querySelector(".le-beyond"), places = [...panel.querySelectorAll(".le-queue-seat")];
  const view = panel.querySelector(".le-panel-body > *"), frame = view.getBoundingClientRect();
  const seats = places.map((one) => one.getBoundingClientRect()).filter(({ height }) => height);
  return {
    name, sign: sign.hidden ? "" : sign.textContent,
    seats: seats.length, seen: seats.filter(({ bottom }) => bottom <= frame.bottom + 3).length,
    isCut: view.scrollHeight > view.clientHeight + 3 || view.scrollWidth > view.clientWidth + 3,
  };
}))"""
RESIZE_TABLES = """async () => {
  const root = document.querySelector(".labengine");
  root.style.height = `${root.clientHeight}px`; // its own size stays
  for (const view of root.querySelectorAll(".le-tables")) view.style.height = "30px";
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); // in that frame, not in the next
}"""
TABS = """() => {
  const heads = document.querySelector(".le-column-heads").getBoundingClientRect();
  const bottom = (is) => document.querySelector(`.le-column-head[aria-selected=${is}]`).getBoundingClientRect().bottom;
  return [bottom(false), heads.bottom, bottom(true)];
}"""
GAPS = """() => [...document.querySelectorAll(".le-column:not(.le-is-shut)")].map((column) => {
  const { top } = column.querySelector(".le-pool-panel").getBoundingClientRect();
  return top - column.querySelector(".le-tables-list").getBoundingClientRect().bottom;
})"""
SIGNS = """() => {
  const time = document.querySelector(".labengine").stage.parts.find((part) => part.stepNames);
  return time.signs().map(([, , x]) => x);
}"""
NAMES = "() => document.querySelector('.labengine').stage.parts.find((part) => part.stepNames).stepNames"


def sizes() -> Comparison:
    """A pool of 12 blocks beside one of 24: on the left requests are preempted, and end later."""
    sides = [labengine.Lab("simulated", num_blocks=size, block_size=4) for size in (12, 24)]
    comparison = labengine.compare(*sides)
    for _ in range(3):
        comparison.add(token_ids=list(range(14)), max_tokens=20)
    comparison.run()
    return comparison


def follow_up(page: ComparePage) -> None:
    page.press("End")
    page.click("What does it cost later?")
    page.until("what comes later", lambda: page.data("stop") == "4" and page.data("playing") == "false")


def nothing_is_cut_in_silence(page: ComparePage) -> None:
    assert page.page.evaluate(CUT) == [] and page.page.evaluate(CUT_LEFT) == []
    for spans, end in page.page.evaluate(SCORES):
        assert all(left[1] <= right[0] - 3 for left, right in pairwise(spans) if abs(left[2] - right[2]) < 12), spans
        assert all(right <= end + 1 for _, right, _ in spans)
    for frame in page.page.evaluate(FRAMES):
        assert bool(frame["sign"]) == frame["isCut"], frame
        if frame["name"] == "queue" and frame["isCut"]:
            hidden = frame["seats"] - frame["seen"]
            assert frame["sign"] == f"+{hidden} block{'s' if hidden > 1 else ''} ↓"
    names = page.page.evaluate(NAMES)
    assert all(one[1] < other[0] for one, other in pairwise(sorted(names)))


@pytest.mark.parametrize("width", [1220, 950])
def test_of_two_sizes_the_rows_are_in_one_order(width: int) -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        left, right = page.page.evaluate(BADGES)
        assert left == right == ["A", "B", "C"]
        nothing_is_cut_in_silence(page)
        page.picture(f"sizes-{width}")
        for _ in range(12):
            page.press("PageUp")
            left, right = page.page.evaluate(BADGES)
            assert left == right
            nothing_is_cut_in_silence(page)

    show_comparison(check, sizes(), width=width)


@pytest.mark.parametrize("width", [940, 860, 640, 500, 372, 320])
def test_in_a_narrow_cell_the_numbers_stand_apart_and_the_open_tab_has_no_line_below(width: int) -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        assert page.page.evaluate(CUT) == []
        for spans, end in page.page.evaluate(SCORES):
            assert all(left[1] <= right[0] - 3 for left, right in pairwise(spans) if abs(left[2] - right[2]) < 12)
            assert all(right <= end + 1 for _, right, _ in spans)
        if width < 900:
            shut, body, opened = page.page.evaluate(TABS)
            assert shut < opened == body, "it is one piece with what is below it"

    show_comparison(check, bug("nano-vllm-219").compare(), width=width)


def test_on_a_phone_the_signs_of_the_story_stand_apart() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        xs = page.page.evaluate(SIGNS)
        assert len(xs) == 10 and all(right - left >= 20 for left, right in pairwise(xs)), xs

    comparison = bug("nano-vllm-219").compare()
    comparison.follow_up()
    show_comparison(check, comparison, width=356)


@pytest.mark.parametrize("width", [1220, 372])
def test_the_pool_has_the_room_that_the_tables_leave(width: int) -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        page.until("the tables' height", lambda: all(0 <= gap < 30 for gap in page.page.evaluate(GAPS)))

    show_comparison(check, bug("nano-vllm-219").compare(), width=width)


def test_a_frame_that_shrinks_says_at_once_what_it_hides() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        before = page.page.evaluate(FRAMES)
        page.page.evaluate(RESIZE_TABLES)
        after = page.page.evaluate(FRAMES)
        assert [bool(frame["sign"]) for frame in before if frame["name"] == "tables"] == [False, False]
        assert [bool(frame["sign"]) for frame in after if frame["name"] == "tables"] == [True, True]

    show_comparison(check, sizes())


def test_in_the_follow_up_of_44409_no_word_is_cut_and_the_groups_are_aligned() -> None:
    def check(page: ComparePage) -> None:
        follow_up(page)
        for _ in range(30):
            nothing_is_cut_in_silence(page)
            left, right = page.page.evaluate(GROUPS)
            assert all(left[group] == right[group] for group in left.keys() & right.keys())
            page.press("ArrowLeft")
        page.picture("44409-later")
        page.picture("44409-later", "dark")

    show_comparison(check, bug("vllm-44409").compare())


def test_page_up_goes_to_the_end_of_the_step_before_and_page_down_back() -> None:
    def check(page: ComparePage) -> None:
        follow_up(page)
        page.press("End")
        seen = []
        for key in ("PageUp", "PageUp", "PageUp", "PageDown", "PageDown", "PageDown"):
            page.press(key)
            seen.append((page.data("step"), page.data("position"), page.data("sentence")))
        assert [step for step, _, _ in seen] == ["4 4", "3 3", "2 2", "3 3", "4 4", "5 5"]
        assert seen[0] == seen[4] and seen[1] == seen[3] and page.data("position") == page.data("end")
        for step, _, sentence in seen:
            assert sentence == "" or f"Step {str(step).split()[0]} ends" in str(sentence)
        page.press("PageUp", "ArrowRight", "ArrowRight")
        inside = int(page.data("position") or 0)
        page.press("PageUp")
        assert page.data("step") == "4 4" and int(page.data("position") or 0) < inside, (
            "within a step, to where it began"
        )

    show_comparison(check, bug("vllm-44409").compare())


def test_the_sign_leads_to_what_is_cut() -> None:
    def check(page: ComparePage) -> None:
        follow_up(page)
        page.press("End")
        sign = page.page.locator(".le-column[data-side='0'] .le-map-panel .le-beyond")
        said = sign.inner_text()
        assert said.startswith("+") and "chain" in said
        click = lambda: sign.evaluate("(sign) => sign.click()")  # noqa: E731
        page.until("the end of the list", lambda: sign.inner_text().startswith("more ↑") or click())
        click()
        page.until("its beginning", lambda: sign.inner_text() == said)

    show_comparison(check, bug("vllm-44409").compare())
