"""Block tables and groups as a reader sees them: which block, which state of every token, and that nothing jumps."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine import events as ev
from widgets import story_44409
from widgets.browser.views.mounted_view import MountedView, places_of, show_view, texts_of
from widgets.browser.views.view_recordings import crowd, hybrid, misplaced, moment_after, preempting
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser

SENTENCE = "The capital of France is the city that we call by its"
WORDS = {100 + i: f" {word}" for i, word in enumerate(SENTENCE.split(" "))}
EVIL = "<img src=x onerror='window.pwned=1'>"
CELL = "[data-anchor='row:{}:{}:{}']"


def cell(request: int, index: int, group: int = 0) -> str:
    return CELL.format(request, group, index)


def states(mounted: MountedView, request: int, index: int, group: int = 0) -> list[str]:
    """The state of every token in a cell."""
    script = (
        "(found) => found.map((one) => [...one.classList].find((name) => /^le-tok-(?!generated)/.test(name)).slice(7))"
    )
    selector = f"{cell(request, index, group)} .le-tok"
    found: list[str] = mounted.page.eval_on_selector_all(selector, script)
    return found


def test_219_shown_by_the_tables() -> None:
    events = [*begin(), *merging_step()]

    def check(mounted: MountedView) -> None:
        mounted.unfold()
        mounted.at(3)
        assert mounted.texts(".le-tables-status") == ["… waiting", "… waiting"]
        assert "no block yet" in mounted.text(cell(0, 0))
        mounted.at(moment_after(events, ev.RequestScheduled, 2))
        assert "#0" in mounted.text(cell(0, 0)) and "#4" in mounted.text(cell(1, 0))
        assert states(mounted, 1, 3) == ["plan", "plan", "none", "none"]
        mounted.at(moment_after(events, ev.SlotsWritten, 2))
        assert states(mounted, 0, 0) == ["now"] * 4 and mounted.texts(".le-tables-doing") == ["prefill 14"] * 2
        mounted.at(moment_after(events, ev.BlockMerged, 1))
        assert mounted.text(f"{cell(1, 0)} s") == "#4" and mounted.text(f"{cell(1, 0)} .le-bead-id") == "#0"
        assert mounted.text(f"{cell(1, 0)} .le-bead-count") == "×2"
        mounted.at(mounted.end)
        assert mounted.texts(".le-tables-fresh") == [" t7"] * 2
        assert mounted.texts(".le-tables-facts") == ["14 of 15 computed"] * 2
        mounted.picture("219-merged")
        mounted.picture("219-merged", "dark")

    show_view(check, "tables", events, words=WORDS | {7: " t7"})


def test_a_character_of_two_tokens_is_whole_as_soon_as_its_last_bytes_are_there() -> None:
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        request = lab.add("hello", max_tokens=2, ignore_eos=True)
        lab.step()
        half = lab.timeline.end
        lab.step()
        events, (first, second) = list(lab.timeline.events()), lab.output(request).token_ids
    assert first != second

    def check(mounted: MountedView) -> None:
        mounted.at(half)
        assert mounted.texts(".le-tables-words") == [r"ok \xf0\x9f"]
        mounted.at(mounted.end)
        assert mounted.texts(".le-tables-words") == ["ok 😀!"] and mounted.texts(".le-tables-fresh") == ["😀!"]

    show_view(check, "tables", events, words={first: r"ok \xf0\x9f", second: r"\x98\x80!"})


def test_a_request_is_one_row_until_it_is_unfolded() -> None:
    events = [*begin(), *merging_step()]

    def check(mounted: MountedView) -> None:
        mounted.dress("light", 475)
        rows = mounted.boxes(".le-tables-row")
        assert len(rows) == 2 and rows[-1][1] + rows[-1][3] < 200, "both are seen at once"
        assert mounted.count(".le-tables-chip") == 8 and mounted.count(".le-tok") == 0
        assert mounted.texts(f"{cell(1, 0)} .le-bead-id, {cell(1, 3)} .le-bead-id") == ["#0", "#7"]
        folds = mounted.page.locator(".le-tables-fold")
        folds.nth(1).click()
        assert [folds.nth(i).get_attribute("aria-expanded") for i in (0, 1)] == ["false", "true"]
        assert states(mounted, 1, 0) == ["now"] * 4 and mounted.count(f"{cell(0, 0)} .le-tok") == 0
        assert mounted.page.evaluate("() => window.mounted.stage.selection") is None, "to unfold is not to choose"
        mounted.at(mounted.end - 3)
        assert states(mounted, 1, 0) == ["now"] * 4, "it stays unfolded"
        folds.nth(1).click()
        assert mounted.count(".le-tok") == 0

    show_view(check, "tables", events, words=WORDS)


def test_a_prompt_of_hundreds_of_words_is_no_wall_of_boxes() -> None:
    with Lab("simulated", num_blocks=128, block_size=16) as lab:
        lab.add(token_ids=[i % 50 for i in range(600)], max_tokens=2)
        before = lab.timeline.end
        lab.step()
        events = list(lab.timeline.events())

    def check(mounted: MountedView) -> None:
        mounted.at(before)
        assert mounted.text(".le-tables-gap") == "0–37: no block yet" and mounted.count(".le-tables-unplaced") == 0
        waiting = mounted.boxes(".le-tables-row")[0][3]
        mounted.unfold()
        assert mounted.count(".le-tables-unplaced") == 0
        mounted.at(mounted.end)
        mounted.page.locator(".le-tables-fold").click()
        assert "more" in mounted.text(".le-tables-left-out") and mounted.count(".le-tables-chip") == 10
        assert waiting < 70 and mounted.boxes(".le-tables-row")[0][3] < 150
        mounted.picture("600-words")

    show_view(check, "tables", events, width=475)


def test_a_chip_of_a_large_pool_has_room_for_number_letter_and_count() -> None:
    with Lab("simulated", num_blocks=256, block_size=4, seed=1) as lab:
        for _ in range(2):
            lab.add(token_ids=range(600), max_tokens=4)
            lab.step()
        events = list(lab.timeline.events())
    overlapping = """(all) => all.filter(
      (one) => one.getBoundingClientRect().right > one.closest(".le-tables-chip").getBoundingClientRect().right
    ).map((one) => one.textContent)"""

    def check(mounted: MountedView) -> None:
        assert "×2" in mounted.texts(".le-bead")[-2]
        assert mounted.page.eval_on_selector_all(".le-tables-chip:not(.le-tables-moved) .le-bead", overlapping) == []

    show_view(check, "tables", events)


def test_an_empty_place_of_a_short_table_is_a_thin_pale_box() -> None:
    style = "(all) => all.map((one) => { const { borderTopStyle, borderTopWidth } = getComputedStyle(one);"
    style += " return [borderTopStyle, borderTopWidth]; })"

    def check(mounted: MountedView) -> None:
        mounted.at(3)
        assert mounted.page.eval_on_selector_all(".le-tables-unplaced", style) == [["dotted", "1px"]] * 8

    show_view(check, "tables", [*begin(), *merging_step()])


def test_the_numbers_that_are_compared_are_never_cut() -> None:
    """Also in 567 pixels: what a dashboard of 1,220 has for the tables."""
    cut = texts_of(".le-tables-facts", "one.scrollWidth > one.clientWidth")

    def check(mounted: MountedView) -> None:
        seen, asked = set(), (texts_of(".le-tables-facts"), cut)
        for width in (460, 567):
            mounted.dress("light", width + 16)
            for moment, (texts, texts_cut) in mounted.walk(range(0, mounted.end + 1, 5), *asked):
                assert texts_cut == [], (width, moment)
                seen |= set(texts)
        assert any("cached" in words and "new of" in words for words in seen), seen
        title = mounted.page.locator(".le-tables-facts").first.get_attribute("title") or ""
        assert title.startswith("of ") and "computed" in title
        mounted.picture("numbers")
        mounted.picture("numbers", "dark")

    for events in (preempting(), hybrid()):
        show_view(check, "tables", events)


def test_lost_blocks_are_hatched_and_named() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.count(".le-is-lost-bead .le-cut") == 3
        assert mounted.text(".le-is-lost-bead").startswith("#0")
        assert "lost" in str(mounted.page.locator(".le-is-lost-bead").first.get_attribute("aria-label"))
        mounted.picture("219-lost")

    show_view(check, "tables", [*begin(), *overwriting_step()], words=WORDS)


@pytest.mark.parametrize("step", [merging_step, overwriting_step])
def test_nothing_moves_from_event_to_event(step: object) -> None:
    events = [*begin(), *step()]  # type: ignore[operator]

    def check(mounted: MountedView) -> None:
        mounted.at(4)
        first = mounted.places("[data-anchor], .le-tables-head")
        assert len(first) == 10
        moments = [*range(4, mounted.end + 1), *range(mounted.end, 3, -1)]
        for moment, (places,) in mounted.walk(moments, places_of("[data-anchor], .le-tables-head")):
            assert places == first, moment

    show_view(check, "tables", events)


def test_found_loaded_and_scheduled_differ_in_each_group() -> None:
    events = [*story_44409.before(), *story_44409.interleaved()]

    def check(mounted: MountedView) -> None:
        mounted.unfold()
        assert states(mounted, 1, 0) == ["hit"] * 4 and states(mounted, 1, 3, 1) == ["loaded"] * 4
        assert states(mounted, 1, 4)[0] == "plan"
        assert mounted.texts(".le-tables-facts")[0] == "8 cached + 8 loaded of 17"
        assert mounted.texts(".le-tables-label:visible") == ["full", "window, last 16"]
        assert mounted.count(".le-bead-twofold") == 4, "#4 and #5 stand in two groups' tables"
        assert mounted.text(".le-tables-brief:visible") != "", "who has finished is one line"
        mounted.picture("44409")

    show_view(check, "tables", events, words=WORDS)


def test_a_window_leaves_its_places() -> None:
    events = hybrid()

    def check(mounted: MountedView) -> None:
        mounted.unfold()
        mounted.at(moment_after(events, ev.ForwardRan, 4))
        assert "outside window" in mounted.text(cell(0, 0, 1)) and "#" in mounted.text(cell(0, 0, 0))

    show_view(check, "tables", events)


def test_a_preempted_request_says_so_and_keeps_its_words() -> None:
    events = preempting()

    def check(mounted: MountedView) -> None:
        mounted.unfold()
        moment = moment_after(events, ev.RequestPreempted)
        mounted.at(moment - 1)
        before = mounted.places(".le-tables-head, [data-anchor]")
        mounted.at(moment)
        assert mounted.places(".le-tables-head, [data-anchor]") == before
        assert mounted.texts(".le-tables-status")[2] == "↺ preempted"
        assert "↺1×" in mounted.texts(".le-tables-facts")[2]
        assert mounted.texts(".le-tables-words")[2] != "" and "freed" in mounted.text(cell(2, 0))
        mounted.picture("preempted")
        mounted.picture("preempted", "dark")

    show_view(check, "tables", events)


CUT_RINGS = """(beads) => beads.filter((bead) => {
  const line = bead.parentElement.getBoundingClientRect(), { top, bottom } = bead.getBoundingClientRect();
  const { boxShadow } = getComputedStyle(bead), ring = /inset|none/.test(boxShadow) ? 0 : 1;
  return top - ring < line.top || bottom + ring > line.bottom;
}).map((bead) => bead.textContent)"""


def test_the_ring_of_a_merged_block_is_not_cut_by_its_line() -> None:
    def check(mounted: MountedView) -> None:
        mounted.at(mounted.end)
        beads = ".le-tables-moved .le-bead"
        assert mounted.count(beads) == 3 and mounted.page.eval_on_selector_all(beads, CUT_RINGS) == []

    show_view(check, "tables", [*begin(), *merging_step()])


CUT_AT_A_WORD = "[...document.querySelectorAll('.le-tables-words')].every((one) => one.textContent.startsWith('… '))"
"""True once the lines have heard how wide they are: a frame later than they are painted."""

FREE_BESIDE_WORDS = """(words) => words.map((one) => {
  const facts = document.createRange();
  facts.selectNodeContents(one.closest(".le-tables-row").querySelector(".le-tables-facts"));
  const says = one.previousElementSibling.getBoundingClientRect();
  const room = one.scrollWidth > one.clientWidth ? 0 : says.left - facts.getBoundingClientRect().right;
  return [one.title, one.textContent, room];
})"""


def test_what_a_request_says_has_the_room_beside_its_numbers() -> None:
    def check(mounted: MountedView) -> None:
        mounted.at(mounted.end)
        mounted.page.wait_for_function(CUT_AT_A_WORD)
        places = mounted.page.eval_on_selector_all(".le-tables-words", FREE_BESIDE_WORDS)
        for said, shown, free in places:
            assert shown.startswith("… ") and f" {said}".endswith(shown[1:]), "cut between two words"
            assert 0 < free < 100
        assert places

    show_view(check, "tables", crowd(2, 64, 30, 60), width=660)


def test_a_hole_and_a_stray_are_drawn_as_they_lie() -> None:
    """nano-vLLM PR 71: position 3 went to the last slot of the next block."""
    events = misplaced()

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.ForwardRan, 2))
        assert states(mounted, 0, 0) == ["done", "done", "done", "hole"]
        assert mounted.texts(f"{cell(0, 0)} .le-tok")[3] == "3–", "a story about slots has their numbers"
        assert mounted.texts(".le-tok-slot")[:6] == ["0", "1", "2", "3", "4", "5"]
        mounted.picture("misplaced")

    show_view(check, "tables", events)


def test_whatever_a_model_writes_stays_text() -> None:
    def check(mounted: MountedView) -> None:
        mounted.unfold()
        assert "<img" in mounted.text(".le-tok") and "<img" in mounted.text(".le-tables-words")
        assert mounted.count("img") == 0 and mounted.page.evaluate("() => window.pwned") is None
        assert mounted.count("script") == 0

    words = dict.fromkeys(range(200), EVIL) | {101: "\u202egnp.exe", 102: "\n\x00\x1b[31m"}
    show_view(check, "tables", [*begin(), *merging_step()], words=words)


def test_a_crowd_fits_any_width() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.count(".le-tables-row") == 64 and "more requests" in mounted.text(".le-tables-more")
        assert mounted.count("#root *") < 9000
        for width in (300, 1400):
            mounted.dress("light", width)
            assert mounted.overflow() <= 0
            mounted.picture(f"crowd-{width}")

    show_view(check, "tables", crowd(70, 8192, 2, 900))


def test_groups_are_side_by_side() -> None:
    events = hybrid()

    def check(mounted: MountedView) -> None:
        mounted.page.get_by_role("button", name="by group").click()
        mounted.at(moment_after(events, ev.ForwardRan, 4))
        assert not mounted.page.locator(".le-tables-row").first.is_visible()
        assert mounted.texts(".le-groups-name") == ["full attention", "window attention"]
        assert "window 8 = 2 blocks" in mounted.texts(".le-groups-rule")[1]
        (left, _), (right, _) = mounted.places(".le-groups-name").values()
        assert right > left + 200
        assert "next reads" in mounted.texts(".le-groups-range")[-1]
        assert mounted.count(".le-groups-ahead:visible") > 0, "null entries are counted, not drawn"
        for theme in ("light", "dark"):
            mounted.picture("hybrid", theme)
        mounted.dress("light", 300)
        assert mounted.overflow() <= 0
        mounted.page.get_by_role("button", name="by request").click()
        assert mounted.page.locator(".le-tables-row").first.is_visible() and not mounted.count(".le-groups:visible")

    show_view(check, "tables", events)


def test_a_groups_blocks_are_counted_as_they_come_and_go() -> None:
    events = hybrid()

    def check(mounted: MountedView) -> None:
        mounted.page.get_by_role("button", name="by group").click()
        figures = texts_of(".le-groups-figure b")
        for moment, (counted, expected) in mounted.walk(range(1, mounted.end, 7), figures, COUNT_HELD):
            assert [int(text) for text in counted] == expected, moment

    show_view(check, "tables", events)


COUNT_HELD = """
() => {
  const { scene } = window.mounted.side;
  return scene.groups.flatMap((_, group) => {
    const held = new Set([...scene.requests.values()].flatMap(({ tables }) => tables[group]));
    held.delete(scene.nullBlock);
    return [held.size, [...scene.map.keys()].filter((key) => key.startsWith(`${group}:`)).length];
  });
}
"""


def test_the_keyboard_goes_from_thing_to_thing() -> None:
    def check(mounted: MountedView) -> None:
        mounted.page.locator(".le-tables").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
            mounted.page.keyboard.press(key)
        selected = mounted.page.evaluate("() => window.mounted.stage.selection")
        assert selected == {"kind": "block", "id": 1}, selected
        assert mounted.count(".le-selected[data-block='1']") == 2, "the merged block stands in both tables"
        mounted.page.keyboard.press("Escape")
        assert mounted.count(".le-at") == 0

    show_view(check, "tables", [*begin(), *merging_step()])
