"""A question before a step, in Chromium: a click or a number is the prediction, and the step's end judges it."""

from __future__ import annotations

from typing import Any

import pytest

import labengine
from browser.bare_pages import BROWSER, BarePage, BarePages
from labengine.course.predict_exercise import PredictExercise
from labengine.course.progress import VARIABLE
from labengine.record.wording import request_name
from labengine_widgets.feed.browser_link import checked_command
from waiting import PATIENCE
from widgets.browser.stage.dashboard_page import View, _ticked

pytestmark = pytest.mark.browser

WORDS = ".le-asked-words"
NAMES = ("why-blocks/next-block", "why-blocks/num-free", "continuous-batching/preempted", "reading-a-run/evicted")
"""Exercises that ask for a block, a number, a request and a hash."""


def asked_in(name: str) -> PredictExercise:
    exercise = labengine.exercise(name)
    assert isinstance(exercise, PredictExercise)
    return exercise


class ExercisePage(View):
    """The dashboard of an exercise's lab, whose feed the test ticks."""

    def __init__(self, bare: BarePage, exercise: PredictExercise) -> None:
        super().__init__(bare, [], {})
        super().close()
        self.lab = exercise.lab
        self.feed = self.lab.feed
        self.feed.attach(self)
        self.mount()
        self.play_slowly()
        self.settled()
        self.answer()

    def answer(self) -> None:
        """Answer what the page has asked, and have the lab do what it commands."""
        for message in self.page.evaluate("() => window.sent.splice(0)"):
            if message["type"] == "command":
                action, arguments = checked_command(message)
                self.lab.view_source().post(action, **arguments).result(PATIENCE)
            else:
                self.feed.receive(self, 0, message)
        self.feed.tick()
        self.painted()

    def step(self) -> str:
        """Press Step, and skip the play. Returns what the question said while the step was played."""
        self.page.get_by_role("button", name="Step", exact=True).click()
        self.answer()
        played = self.text(WORDS)
        self.press("Escape")
        self.painted()
        return played

    def click_on(self, thing: str) -> None:
        """Click on what stands for a thing, in the first view that has it."""
        self.page.locator(thing).first.click()
        self.answer()


def test_a_click_predicts_and_the_step_answers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "progress.json"))
    exercise, numbers, victims, hashes = map(asked_in, NAMES)
    [right] = exercise._right_answers()

    def check_click(page: ExercisePage) -> None:
        assert "Which block does it take first?" in page.text(WORDS) and "Click a block." in page.text(WORDS)
        page.move_to(0)
        page.press("End")
        assert (page.page.locator(".le-queue-is-next").count(), page.text(".le-queue-summary")) == (
            0,
            "8 free, in order",
        )
        assert f"Why is #{right} next" not in page.text(".labengine")
        for block_id in (exercise.lab.snapshot().free_queue[1], right):
            page.click_on(f".le-queue-panel [data-block='{block_id}']")
            assert f"You predict #{block_id}; the next step gives the answer." in page.text(WORDS)
        assert exercise.question.prediction == right
        assert page.step() == f"You predict #{right}."
        assert page.page.locator(".le-queue-is-next").count() == 1
        assert page.text(WORDS) == f"✓ You said #{right}: right."
        assert "le-is-right" in (page.page.locator(".le-asked").get_attribute("class") or "")
        assert labengine.progress()["why-blocks/next-block"].passed
        exercise.again()
        page.answer()
        assert "Click a block." in page.text(WORDS) and "You" not in page.text(WORDS)
        assert "You predict" not in page.step(), "the prediction of the first time"
        assert page.text(WORDS) == f"✗ You made no prediction: it is #{right}."

    def check_number(page: ExercisePage) -> None:
        form = page.page.locator(".le-asked")
        for said in (99, numbers._right_answers()[1]):
            form.locator("input").fill(str(said))
            form.get_by_role("button", name="Predict").click()
            page.answer()
            assert f"You predict {said}; the next step gives the answer." in page.text(WORDS)
            page.step()
        assert page.text(WORDS).startswith("✓ You said 8: right. 1 of 2 right.")
        assert not form.locator("input").is_visible()
        assert not labengine.progress()["why-blocks/num-free"].passed

    def check_request(page: ExercisePage) -> None:
        [victim] = victims._right_answers()
        assert "Click a request." in page.text(WORDS)
        page.click_on(f".le-tables-panel [data-request='{victim}']")
        assert f"You predict {request_name(victim)}; the next step gives the answer." in page.text(WORDS)
        page.step()
        assert page.text(WORDS) == f"✓ You said {request_name(victim)}: right."

    def check_hash(page: ExercisePage) -> None:
        [key] = hashes._right_answers()
        assert "Click an entry in the prefix map." in page.text(WORDS)
        page.click_on(f".le-map-panel [data-hash='{key}']")
        assert hashes.question.prediction == key and "You predict s; the next step gives the answer." in page.text(
            WORDS
        )
        page.step()
        assert (
            page.text(WORDS) == f"✓ You said s ({key[:10]}): right."
            and labengine.progress()["reading-a-run/evicted"].passed
        )

    def run(pages: BarePages) -> None:
        with _ticked():
            checks = (check_click, check_number, check_request, check_hash)
            for one, check in zip((exercise, numbers, victims, hashes), checks, strict=True):
                with pages.lent(1200, 900) as bare:
                    page = ExercisePage(bare, one)
                    check(page)
                    assert list(page.feed.failures) == []
                    page.close()

    BROWSER.run(run)
    for one in (exercise, numbers, victims, hashes):
        one.lab.close()
