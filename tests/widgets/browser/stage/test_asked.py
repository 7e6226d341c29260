"""A question before a step, in Chromium: a click or a number is the prediction, and the step's end judges it."""

from __future__ import annotations

from typing import Any

import pytest

import labengine
from browser.bare_pages import BROWSER, BarePage, BarePages
from labengine.course.predict_exercise import PredictExercise
from labengine.course.progress import VARIABLE
from labengine_widgets.feed.messages import checked_command
from waiting import PATIENCE
from widgets.browser.stage.dashboard_page import View, _ticked

pytestmark = pytest.mark.browser

WORDS = ".le-asked-words"


class ExercisePage(View):
    """The dashboard of an exercise's lab, whose feed the test ticks."""

    def __init__(self, bare: BarePage, exercise: PredictExercise) -> None:
        super().__init__(bare, [], {})
        super().close()
        self.lab = exercise.lab
        self.feed = self.lab.feed
        self.feed.attach(self)
        self.mount()
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

    def step(self) -> None:
        """Press Step, and skip the play."""
        self.page.get_by_role("button", name="Step", exact=True).click()
        self.answer()
        self.press("Escape")
        self.painted()


def test_a_click_predicts_and_the_step_answers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "progress.json"))
    exercise, numbers = (labengine.exercise(name) for name in ("why-blocks/next-block", "why-blocks/num-free"))
    assert isinstance(exercise, PredictExercise) and isinstance(numbers, PredictExercise)
    [right] = exercise._right_answers()

    def check_click(page: ExercisePage) -> None:
        assert "Which block is taken first?" in page.text(WORDS) and "Click on a block." in page.text(WORDS)
        page.move_to(0)
        page.press("End")
        assert (page.page.locator(".le-queue-is-next").count(), page.text(".le-queue-summary")) == (
            0,
            "8 free, in order",
        )
        assert f"Why is #{right} next" not in page.text(".labengine")
        for block_id in (exercise.lab.snapshot().free_queue[1], right):
            page.page.locator(f".le-queue-panel [data-block='{block_id}']").first.click()
            page.answer()
            assert f"You predict #{block_id}: the next step answers." in page.text(WORDS)
        assert exercise.question.prediction == right
        page.step()
        assert page.page.locator(".le-queue-is-next").count() == 1
        assert page.text(WORDS) == f"✓ You said #{right}: right."
        assert "le-is-right" in (page.page.locator(".le-asked").get_attribute("class") or "")
        assert labengine.progress()["why-blocks/next-block"].passed

    def check_number(page: ExercisePage) -> None:
        form = page.page.locator(".le-asked")
        for said in (99, numbers._right_answers()[1]):
            form.locator("input").fill(str(said))
            form.get_by_role("button", name="Predict").click()
            page.answer()
            assert f"You predict {said}: the next step answers." in page.text(WORDS)
            page.step()
        assert page.text(WORDS).startswith("✓ You said 8: right. 1 of 2 right.")
        assert not form.locator("input").is_visible()
        assert not labengine.progress()["why-blocks/num-free"].passed

    def run(pages: BarePages) -> None:
        with _ticked():
            for one, check in ((exercise, check_click), (numbers, check_number)):
                with pages.lent(1200, 900) as bare:
                    page = ExercisePage(bare, one)
                    check(page)
                    assert list(page.feed.failures) == []
                    page.close()

    BROWSER.run(run)
    exercise.lab.close()
    numbers.lab.close()
