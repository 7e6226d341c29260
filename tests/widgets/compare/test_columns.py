"""The compare view in Chromium, on a bare page: what it marks, that it keeps its places, and what it shows when."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from browser.frames import FRAME
from labengine.scenarios import bug
from widgets.compare.compare_page import ComparePage, show_comparison

pytestmark = pytest.mark.browser

PROMPT = list(range(100, 114))
EVIL = "<img src=x onerror='window.pwned=1'>"


def test_why_is_asked_of_what_was_selected_before() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        page.page.locator(".le-column[data-side='0'] [data-block='0']").first.click()
        page.press("w")
        question = page.page.locator(".le-why-question").first
        page.until("the answer", lambda: page.page.locator(".le-why-item").count())
        assert "#0" in (question.text_content() or "")
        again = page.page.locator(".le-why-again").first
        assert not again.is_visible()
        page.press("ArrowLeft")
        page.until("its age", lambda: again.is_visible() and (again.text_content() or "").startswith("Asked at event"))
        again.click()
        page.until("the newer answer", lambda: not again.is_visible())

    show_comparison(check, bug("nano-vllm-219").compare())


def test_what_a_look_up_still_finds_is_unlike_what_it_does_not() -> None:
    unlike = """(side) => {
      const { shows } = document.querySelector(".labengine").stage;
      return [...shows.find((one) => one.side === side && one.view.outlines).view.outlines.different];
    }"""

    def check(page: ComparePage) -> None:
        page.press("End")
        page.page.get_by_role("button", name="What does it cost later?").click()
        page.until("B's end", lambda: page.data("stop") == "6" and page.data("playing") == "false")
        kept_left = {4, 5, 6}  # freed with B, on the left only they are in the map
        assert kept_left <= set(page.page.evaluate(unlike, 0)) and kept_left <= set(page.page.evaluate(unlike, 1))

    show_comparison(check, bug("nano-vllm-219").compare())


def test_nothing_moves_within_the_step() -> None:
    def check(page: ComparePage) -> None:
        for _ in range(2):
            page.next_stop()
        places = [page.places()]
        while page.data("position") != page.data("end"):
            page.press("ArrowRight")
            places.append(page.places())
        assert len(places) > 10 and all(place == places[0] for place in places)
        left, right = ({name[1:]: at for name, at in places[0].items() if name[0] == side} for side in "01")
        anchors = [name for name in left if name.startswith("row:")]
        assert len(anchors) == 8 and all(left[name][1] == right[name][1] for name in anchors)

    show_comparison(check, bug("nano-vllm-219").compare())


def test_the_place_where_they_part_is_ruled_and_explained() -> None:
    def check(page: ComparePage) -> None:
        assert page.data("differsAt") == "17"
        slider = page.page.get_by_role("slider", name="Time of both sides")
        assert "first difference at caption 17" in (slider.get_attribute("aria-valuetext") or "")
        page.press("End")
        page.page.get_by_role("tab", name="Why?").first.click()
        question = "Why do nano-vllm and nano-vllm+243 differ here?"
        page.until("the question", lambda: question in page.text(".le-why-question"))
        page.until("an answer", lambda: page.page.locator(".le-why-answer").first.is_visible())
        assert page.page.locator(".le-why-link").count() >= 2
        page.page.locator(".le-why-link").first.click()
        assert page.data("position") == "17"

    show_comparison(check, bug("nano-vllm-219").compare())


def test_an_event_of_one_side_marks_nothing_on_the_other() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        page.page.get_by_role("tab", name="Log").first.click()
        page.page.locator(".le-log-kinds").first.select_option("BlockCached")
        page.page.locator(".le-log-line").first.click()
        page.page.evaluate(FRAME)
        related = [page.page.locator(f".le-column[data-side='{side}'] .le-related") for side in "01"]
        assert related[0].count() and not related[1].count()

    show_comparison(check, bug("nano-vllm-219").compare())


def test_why_they_part_can_be_asked_again_after_another_question() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        page.page.locator(".le-column[data-side='0'] [data-block='0']").first.click()
        page.press("w")
        page.until("the answer", lambda: "#0" in page.text(".le-why-question"))
        for side in (0, 1):
            page.page.locator(".le-drawer-side .le-tab").nth(side).click()
            page.page.locator(".le-why:visible").get_by_role("button", name="Why do the two runs differ?").click()
            asked = page.page.locator(".le-why-question:visible").text_content() or ""
            assert asked.startswith("Why do nano-vllm and nano-vllm+243 differ")
            assert page.page.locator(".le-why-link:visible").count() >= 2
        page.picture("why-they-part")
        page.picture("why-they-part", "dark")

    show_comparison(check, bug("nano-vllm-219").compare())


def test_differences_are_marked_on_both_sides() -> None:
    def check(page: ComparePage) -> None:
        page.next_stop()
        assert page.page.locator(".le-differs").count() == 0
        page.press("End")
        for side in "01":
            marked = page.page.locator(f".le-column[data-side='{side}'] [data-anchor^='row:'].le-differs")
            assert sorted(one.get_attribute("data-anchor") or "" for one in marked.all()) == [
                f"row:{request}:0:{index}" for request in (0, 1) for index in (0, 1, 2)
            ]
        assert page.texts(".le-column-head b.le-differs") == ["8", "3", "5", "0"]

    show_comparison(check, bug("nano-vllm-219").compare())


def test_one_choice_is_marked_on_both_sides() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        page.page.locator(".le-column[data-side='0'] .le-tables [data-block='0']").first.click()
        sides = [page.page.locator(f".le-column[data-side='{side}'] .le-selected") for side in "01"]
        assert all(side.count() for side in sides)
        page.press("Escape")
        assert page.page.locator(".le-selected").count() == 0

    show_comparison(check, bug("nano-vllm-219").compare())


def test_escape_ends_a_play_at_its_guided_sentence() -> None:
    def check(page: ComparePage) -> None:
        stage = "document.querySelector('.labengine').stage"
        stop, end = page.page.evaluate(f"() => [{stage}.track.nextStop({stage}.position), {stage}.track.end]")
        page.page.evaluate(f"() => {{ {stage}.player.speed = 1e-3 }}")
        page.press("n")
        page.page.wait_for_function(f"() => {stage}.isPlaying")
        page.press("Escape")
        assert page.page.evaluate(f"() => [{stage}.position, {stage}.isPlaying]") == [stop, False] != [end, False]

    show_comparison(check, bug("nano-vllm-219").compare())


def test_a_narrow_cell_has_tabs_and_both_numbers() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        tabs = page.page.locator(".le-column-head[role='tab']")
        assert tabs.count() == 2 and all(tab.locator(".le-pair-used").is_visible() for tab in tabs.all())
        shown = [column.is_visible() for column in page.page.locator(".le-column").all()]
        assert shown == [True, False]
        page.picture("219-narrow")
        page.picture("219-narrow", "dark")
        tabs.nth(1).click()
        page.data("used")
        assert [column.is_visible() for column in page.page.locator(".le-column").all()] == [False, True]
        script = "() => { const r = document.querySelector('.labengine'); return r.scrollWidth - r.clientWidth; }"
        assert page.page.evaluate(script) == 0

    show_comparison(check, bug("nano-vllm-219").compare(), width=800)


def test_steps_by_hand_are_played_on_both_sides() -> None:
    comparison = labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4)
    for _ in range(2):
        comparison.add(token_ids=PROMPT, max_tokens=3)

    def check(page: ComparePage) -> None:
        assert not page.page.locator(".le-guide").is_visible()

        def rests(step: str, **data: str) -> bool:
            """Whether nothing is played after what these say; a step that takes long comes in pieces."""
            wanted = {"step": step, "playing": "false", **data}
            return {name: page.data(name) for name in wanted} == wanted

        page.click("Step both")
        page.until("the step's end", lambda: rests("1 1", used="8 5") and "8 blocks used" in (page.data("left") or ""))
        page.click("Phase")
        page.until("a phase", lambda: rests("2 2", phase="schedule"))
        page.click("Run")
        page.until("the end of the run", lambda: page.data("used") == "0 0" and not comparison.is_running)
        comparison.reset()
        page.until("a new start", lambda: page.data("step") == "0 0" and page.data("differsAt") == "")

    show_comparison(check, comparison)


def test_a_side_that_was_interrupted_is_not_shown_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4)
    comparison.add(token_ids=PROMPT, max_tokens=3)

    def check(page: ComparePage) -> None:
        right = comparison.sides[1].session.model.runner  # type: ignore[attr-defined]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(right, "forward", interrupted)
            comparison.step()
        for _ in range(10):
            page.carry()
        assert page.data("step") == "0 0"
        comparison.step()
        page.until("both", lambda: page.data("step") == "1 1" and page.data("playing") == "false")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    show_comparison(check, comparison)


def test_a_saved_notebook_shows_it_without_a_kernel() -> None:
    def check(page: ComparePage) -> None:
        assert sum(map(len, page.widget.saved)) < 150_000
        page.press("End")
        assert page.data("used") == "8 5"
        assert not page.page.get_by_role("button", name="Step both").is_visible()

    show_comparison(check, bug("nano-vllm-219").compare(), has_kernel=False)


def test_the_view_shows_the_event_for_which_a_run_has_stopped() -> None:
    comparison = labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4)
    for _ in range(2):
        comparison.add(token_ids=PROMPT, max_tokens=3)
    comparison.right.break_on("BlockMerged")  # type: ignore[union-attr]

    def check(page: ComparePage) -> None:
        comparison.run()
        page.until("the first merge", lambda: page.data("used") == "8 7" and page.data("position") != page.data("end"))
        assert page.data("step") == "1 1" and page.data("differsAt") == page.data("position")
        page.press("ArrowLeft")
        assert page.data("used") == "8 8"

    show_comparison(check, comparison)


def test_what_is_said_while_the_saved_state_is_unpacked_is_the_newer() -> None:
    comparison = labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4)
    comparison.add(token_ids=PROMPT, max_tokens=3)

    def check(page: ComparePage) -> None:
        saved = page.widget.saved
        comparison.step()
        page.until("the step", lambda: page.data("step") == "1 1" and page.data("playing") == "false")
        for kept in (saved, [saved[0], b"\x1f\x8b damaged", saved[2]]):
            page.mount(kept, page.carried)
            page.until("the step's end", lambda: (page.data("sentence") or "").startswith("Step 1 ends"))
            for _ in range(10):
                page.carry()
            assert page.data("step") == "1 1" and page.data("position") == page.data("end")

    show_comparison(check, comparison)


def test_text_stays_text() -> None:
    comparison = labengine.compare(
        "nano-vllm", "nano-vllm+243", num_blocks=64, block_size=4, title=EVIL, names=(EVIL, "b")
    )
    comparison.add(EVIL, max_tokens=2)

    def check(page: ComparePage) -> None:
        comparison.step()
        page.until("the step", lambda: page.data("step") == "1 1")
        assert page.text(".le-compare-title") == EVIL and page.text(".le-column-name") == EVIL
        assert page.page.locator(".labengine img").count() == 0 and page.page.evaluate("() => window.pwned") is None

    show_comparison(check, comparison)


def test_the_exported_page_shows_it_with_no_python_and_no_network(tmp_path: Path) -> None:
    comparison = bug("nano-vllm-219").compare()
    comparison.follow_up()
    path = comparison.export_html(tmp_path / "219.html")

    def check(page: ComparePage) -> None:
        page.page.goto(path.as_uri())
        page.has_kernel = False
        page.until("the comparison", lambda: page.data("position") is not None)
        assert page.data("stop") == "0" and not page.page.get_by_role("button", name="Step both").is_visible()
        page.press("End")
        assert page.data("used") == "8 5" and page.data("step") == "4 4"
        page.press("b")
        assert "finds nothing" in (page.data("left") or "")

    show_comparison(check, comparison)
