"""The questions in the text of notebooks, in Chromium: one of each kind is answered rightly and wrongly by clicking."""

from __future__ import annotations

from typing import Any

import pytest

import labengine
from browser.bare_pages import BROWSER, BarePage, BarePages
from labengine.course.predict_exercise import PredictExercise
from labengine.course.progress import VARIABLE
from labengine.course.words import exercise_names
from widgets.browser.stage.dashboard_page import _ticked
from widgets.browser.stage.test_asked import WORDS, ExercisePage

pytestmark = pytest.mark.browser

FIRST = ("first-light/", "continuous-batching/", "prefix-caching/")
REASON, HINT, REFUSAL = ".le-asked-reason", ".le-asked-hint", ".le-asked-refusal"
PARTS = {"request": ".le-tables-panel", "hash": ".le-map-panel", "block": ".le-queue-panel"}


BOXES = """
(selectors) => selectors.map((one) => document.querySelector(one).getBoundingClientRect()).map((r) => [r.top, r.bottom])
"""
SELECTED = "() => document.querySelector('.labengine').stage.selection"
JUDGED = "() => [...document.querySelector('.labengine').stage.sides[0].judged.truth]"


def asked(name: str) -> PredictExercise:
    exercise = labengine.exercise(name)
    assert isinstance(exercise, PredictExercise)
    return exercise


PREDICTED = [name for name in exercise_names() if name.startswith(FIRST)]
GUESSES = [name for name in PREDICTED if isinstance(labengine.exercise(name), PredictExercise)]
OF_EACH_KIND = {asked(name).about: name for name in GUESSES}


class GuessPage(ExercisePage):
    """The picture that a question's `show` draws."""

    def __init__(self, bare: BarePage, exercise: PredictExercise) -> None:
        views = [*exercise._views]
        self.arrangement = {"kind": "view", "views": views} if views else {"kind": "dashboard", "views": []}
        self.exercise = exercise
        bare.page.set_default_timeout(5000)
        super().__init__(bare, exercise)

    def button(self, name: str) -> Any:
        return self.page.locator(".le-asked").get_by_role("button", name=name, exact=True)

    def say(self, prediction: Any) -> None:  # type: ignore[override]
        """Click on the prediction, or write the number."""
        about = self.exercise.about
        if about == "number":
            self.page.locator(".le-asked input").fill(str(prediction))
            self.button("Predict").click()
            self.answer()
        else:
            self.click_on(f"{PARTS[about]} [data-{about}='{prediction}']")

    def reveal(self) -> None:
        """Press the button that takes the step, and skip its play."""
        self.press_button("See what happens")
        self.press("Escape")
        self.painted()

    def press_button(self, name: str) -> None:
        self.button(name).click()
        self.answer()
        self.answer()

    def marked(self, name: str) -> list[str]:
        """Return what carries a mark: "block 3", "request 1" ..."""
        found = self.page.locator(f".le-main .le-{name}").evaluate_all(
            "all => all.map(one => ['hash', 'block', 'request'].filter(kind => kind in one.dataset)"
            ".map(kind => `${kind} ${one.dataset[kind]}`).join(', '))"
        )
        return sorted({*found})


def _wrong(exercise: PredictExercise, right: Any) -> Any:
    snapshot = exercise.lab.snapshot()
    others = {
        "number": [*range(3)],
        "block": snapshot.free_queue,
        "request": snapshot.requests,
        "hash": snapshot.prefix_map,
    }
    return next(one for one in others[exercise.about] if one != right)


@pytest.mark.parametrize("name", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_each_kind_is_answered_wrongly_and_rightly_by_clicking(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "progress.json"))

    def check(page: GuessPage, exercise: PredictExercise) -> None:
        right, *others = exercise._right_answers()
        assert not page.button("Again").is_visible() and not page.button("See what happens").is_visible()
        page.say(said := _wrong(exercise, right))
        page.reveal()
        assert page.text(WORDS).startswith("✗ You said "), page.text(WORDS)
        assert page.text(REASON) == exercise.question.reason != "", "the reason stands there at once"
        if exercise.about != "number":
            assert any(f"{exercise.about} {said}" in one for one in page.marked("said")) or exercise.about == "hash"
            assert page.marked("truth") or page.page.evaluate(JUDGED), "what is right is marked, too"
            assert page.text(".le-asked-legend") == "clickedright"
            assert page.page.evaluate(SELECTED) is None, "the mark is not hidden by a selection"
        page.press_button("Hint")
        assert page.text(HINT).startswith("Hint 1 of ")
        page.press_button("Again")
        assert not page.page.locator(REASON).is_visible() and page.marked("truth") == []
        for answer in (right, *others):
            page.say(answer)
            page.reveal()
            assert page.text(WORDS).startswith("✓ You said "), page.text(WORDS)
        assert labengine.progress()[exercise.name].passed
        page.press_button("Another one")
        assert not page.page.locator(REASON).is_visible() and "✓" not in page.text(WORDS)
        assert exercise.text.task in page.text(WORDS)
        page.say(exercise._right_answers()[0])
        page.reveal()
        assert page.text(WORDS).startswith("✓ You said ")

    def run(pages: BarePages) -> None:
        exercise = asked(name)
        with _ticked(), pages.lent(1200, 900) as bare:
            page = GuessPage(bare, exercise)
            check(page, exercise)
            assert list(page.feed.failures) == []
            page.close()
        exercise.lab.close()

    BROWSER.run(run)


def test_what_is_no_number_is_said_in_the_picture() -> None:
    exercise = asked("first-light/after")

    def run(pages: BarePages) -> None:
        with _ticked(), pages.lent(1200, 900) as bare:
            page = GuessPage(bare, exercise)
            page.button("Predict").click()
            page.painted()
            assert page.text(REFUSAL) == "Enter a number first."
            for number, said in (("-3", "negative"), ("2.5", "whole")):
                page.say(number)
                assert said in page.text(REFUSAL)
            assert exercise.question.prediction is None
            page.say(5)
            assert not page.page.locator(REFUSAL).is_visible() and "You predict 5" in page.text(WORDS)
            page.close()

    BROWSER.run(run)
    exercise.lab.close()


def test_what_the_question_asks_about_is_in_sight() -> None:
    names = [name for name in GUESSES if asked(name).about != "number"]

    def check(page: GuessPage, exercise: PredictExercise) -> None:
        snapshot, about = exercise.lab.snapshot(), exercise.about
        things = {"hash": snapshot.prefix_map, "request": snapshot.requests, "block": snapshot.free_queue[:1]}
        for thing in things[about]:
            [box, frame] = page.page.evaluate(BOXES, [f"{PARTS[about]} [data-{about}='{thing}']", PARTS[about]])
            assert frame[0] <= box[0] and box[1] <= frame[1] + 1, (exercise.name, thing)
        if ".le-queue-panel" in page.page.content() and about == "hash" and exercise._views:
            for block_id in snapshot.free_queue:
                found = f".le-queue-panel [data-block='{block_id}']"
                [box, frame] = page.page.evaluate(BOXES, [found, ".le-queue-panel"])
                assert frame[0] <= box[0] and box[1] <= frame[1] + 1, (exercise.name, block_id)

    def run(pages: BarePages) -> None:
        with _ticked():
            for name in names:
                exercise = asked(name)
                with pages.lent(1024, 900) as bare:
                    page = GuessPage(bare, exercise)
                    page.page.evaluate("document.getElementById('cell').style.width = '824px'")
                    page.settled()
                    check(page, exercise)
                    page.close()
                exercise.lab.close()

    BROWSER.run(run)
