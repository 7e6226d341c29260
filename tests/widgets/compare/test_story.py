"""A guided story in the compare view: from sentence to sentence, with a prediction, to what it costs later."""

from __future__ import annotations

import pytest

from labengine.scenarios import bug
from widgets.compare.compare_page import ComparePage, numbers, show_comparison

pytestmark = pytest.mark.browser


@pytest.mark.journey
def test_the_story_of_219_from_sentence_to_sentence() -> None:
    def check(page: ComparePage) -> None:
        assert page.text(".le-compare-title").startswith("nano-vllm-219")
        assert page.texts(".le-column-name") == ["nano-vllm", "nano-vllm+243"]
        assert "are in the waiting queue" in page.text(".le-guide-words") and page.data("used") == "0 0"
        page.picture("219-1")
        seen = [(page.next_stop(), page.data("used"), page.data("lost")) for _ in range(5)]
        assert [(used, lost) for _, used, lost in seen] == [
            ("8 8", "0 0"), ("8 8", "0 0"), ("8 8", "0 0"), ("8 7", "1 0"), ("8 5", "3 0"),
        ]  # fmt: skip
        assert "both miss" in seen[0][0] and "twice" in seen[1][0] and "the first difference" in seen[3][0]
        left, right = numbers(page)
        assert left == {"used": "8", "peak": "8", "findable": "3", "lost": "3", "computed": "28"}
        assert right == {"used": "5", "peak": "8", "findable": "3", "lost": "0", "computed": "28"}
        end = seen[4][0]
        assert "3 of them lost" in end and "28 tokens" in end
        page.picture("219-6")
        page.picture("219-6", "dark")

    show_comparison(check, bug("nano-vllm-219").compare())


def test_the_follow_up() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        follow_up = page.page.get_by_role("button", name="What does it cost later?")
        assert follow_up.is_visible()
        follow_up.click()
        page.until("what comes later", lambda: page.data("stop") == "6" and page.data("playing") == "false")
        assert not follow_up.is_visible()
        assert page.text(".le-guide-words").startswith("A step later")
        said = [page.next_stop() for _ in range(3)]
        assert "takes all 8 free blocks" in said[0]
        assert "finds 3 blocks" in said[1] and "14 tokens" in said[2] and "74 tokens" in said[2]
        page.press("b")
        assert "finds nothing" in (page.data("left") or "") and "finds its first 12 tokens" in (
            page.data("right") or ""
        )
        page.picture("219-9")
        page.press("End")
        left, right = numbers(page)
        assert (left["used"], right["used"]) == ("8", "5")
        assert (left["computed"], right["computed"]) == ("74", "62")

    show_comparison(check, bug("nano-vllm-219").compare())


def test_a_prediction_is_asked_for_and_judged() -> None:
    def check(page: ComparePage) -> None:
        form = page.page.locator(".le-predict")
        assert not form.is_visible()
        for _ in range(3):
            page.next_stop()
        assert "after this step?" in page.text(".le-predict-words") and form.is_visible()
        for field, number in zip(form.locator("input").all(), ("8", "6"), strict=True):
            field.fill(number)
        form.get_by_role("button", name="Predict").click()
        page.until("the parting", lambda: page.data("stop") == "4" and page.data("playing") == "false")
        assert page.data("position") == page.data("differsAt")
        assert page.text(".le-predict-words") == "You predict 8 and 6 blocks."
        page.next_stop()
        page.until("the end of the step", lambda: page.data("used") == "8 5" and page.data("stop") == "5")
        assert page.text(".le-predict-words") == "You said 8 and 6: it is 8 and 5."
        assert not form.locator("input").first.is_visible()

    show_comparison(check, bug("nano-vllm-219").compare())


def test_no_more_blocks_can_be_predicted_than_there_are() -> None:
    def check(page: ComparePage) -> None:
        for _ in range(3):
            page.next_stop()
        form = page.page.locator(".le-predict")
        for field, number in zip(form.locator("input").all(), ("13", "5"), strict=True):
            field.fill(number)
        form.get_by_role("button", name="Predict").click()
        assert page.data("stop") == "3" and page.data("playing") == "false" and form.is_visible()

    show_comparison(check, bug("nano-vllm-219").compare())


def test_a_play_rests_where_the_guide_speaks() -> None:
    pace = """(position) => {
      const { player } = document.querySelector('.labengine').stage;
      player.told.clear();
      return player.pace(position) * player.speed;
    }"""

    def check(page: ComparePage) -> None:
        page.next_stop()
        at = int(page.data("position") or 0)
        assert not page.page.locator(".le-guide.le-is-past").count()
        assert page.page.evaluate(pace, at) >= 60 * len(page.text(".le-guide-words"))
        page.press("ArrowRight")
        assert page.page.locator(".le-guide.le-is-past").count(), "the sentence is about what was before"

    show_comparison(check, bug("nano-vllm-219").compare())


@pytest.mark.parametrize("id", ["nano-vllm-71", "vllm-44409"])
def test_the_other_stories_are_shown_to_their_ends(id: str) -> None:
    scenario = bug(id)

    def check(page: ComparePage) -> None:
        page.until("the first sentence", lambda: page.text(".le-guide-words") != "")
        said = [page.text(".le-guide-words")]
        while len(said) < len(scenario.sentences):
            said.append(page.next_stop())
        assert said == list(scenario.sentences)
        page.picture(id)

    show_comparison(check, scenario.compare())
