"""The drawers Why? and Code in Chromium: chains that lead to moments, overrides as differences; and no kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from labengine import events as ev
from labengine.core.editions import NANO_VLLM, NANO_VLLM_243
from labengine.core.parts import Parts
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.session.reasons import seams_of
from labengine.timeline import Timeline
from labengine_widgets.why import Link, Why, carried_answers, why
from widgets.story_219 import begin, merging_step, overwriting_step
from widgets.view_recordings import moment_after
from widgets.view_stand import Show, Stand, stands

pytestmark = pytest.mark.browser

MERGED, OVERWRITTEN = [*begin(), *merging_step()], [*begin(), *overwriting_step()]
NO_ALIVE_CHECK = Parts(name="no check", merge_policy=NoAliveCheck).overriding(NANO_VLLM_243)

# python: answers by expose_function; hanging: never answers; failing: a kernel that is gone; none: a page without one.
ARM = """
([code, answers, mode]) => {
  const { stage, side } = window.stand;
  Object.assign(side.recording.header, { code, answers });
  window.asked = [];
  stage.isLive = mode !== "none";
  stage.moveTo = (moment) => window.goTo(moment);
  stage.ask = async (type, fields) => {
    window.asked.push({ type, ...fields });
    if (mode === "hanging") return new Promise((resolve) => (window.answerNow = (answer) => resolve({ answer })));
    if (mode === "failing") throw new Error("The kernel does not answer.");
    if (mode === "none") throw new Error("This page has no Python behind it: nothing can be asked.");
    return { id: "1", answer: await window.askPython(fields.subject, fields.moment) };
  };
}
"""


@pytest.fixture(scope="module")
def show() -> Iterator[Show]:
    with stands() as run:
        yield run


def armed(
    stand: Stand,
    events: Sequence[ev.Event],
    parts: Parts,
    mode: str = "python",
    answers: list[dict[str, Any]] | None = None,
    code: dict[str, Any] | None = None,
) -> Timeline:
    """Gives the page its seams, and somebody to ask."""
    timeline = Timeline()
    for event in events:
        timeline.record(event)
    seams = seams_of(parts)
    if mode == "python":
        stand.page.expose_function("askPython", lambda subject, at: why(timeline, subject, at, seams=seams).to_dict())
    stand.page.evaluate(ARM, [seams if code is None else code, answers or [], mode])
    stand.at(stand.end)
    return timeline


def choose(stand: Stand, kind: str | None, subject: object = None) -> None:
    stand.page.evaluate("(selection) => window.stand.stage.select(selection)", {"kind": kind, "id": subject})


def until(stand: Stand, selector: str, text: str) -> None:
    """Waits for an element to say something."""
    script = "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)"
    stand.page.wait_for_function(script, arg=[selector, text])


# -- why ---------------------------------------------------------------------------------------------------------------


def test_at_rest_it_says_what_can_be_asked(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, OVERWRITTEN, NANO_VLLM)
        assert "Choose a block, a request, a hash or an event" in stand.text(".le-why-answer")
        assert stand.texts(".le-why-ask") == ["Why did the last event happen?", "Why is #8 next in the free queue?"]
        stand.picture("rest")

    show(check, "why", OVERWRITTEN)


def test_a_choice_is_a_question_and_its_links_lead_to_their_moments(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, OVERWRITTEN, NANO_VLLM)
        choose(stand, "block", 0)
        until(stand, ".le-why-question", "Why is #0 lost?")
        assert "A still reads #0, but nobody new can find it" in stand.text(".le-why-answer")
        assert stand.texts(".le-why-number") == ["20", "25"]
        assert stand.texts(".le-why-seam code") == ["MergePolicy.mapped_after"], "a seam is told once"
        assert "Why is #0's ref count 1?" in stand.texts(".le-why-ask")
        stand.picture("lost")
        stand.picture("lost", "dark")
        stand.dress("light")
        stand.page.locator(".le-why-link").nth(0).click()
        assert stand.page.evaluate("() => window.stand.side.moment") == 21
        assert stand.page.locator(".le-why-link").nth(0).get_attribute("aria-current") == "true"
        assert stand.text(".le-why-question") == "Why is #0 lost?", "the chain stays while one walks along it"
        stand.picture("lost-narrow", width=320)
        assert stand.overflow() <= 0

    show(check, "why", OVERWRITTEN)


def test_a_ref_count_shows_what_it_adds_up_from(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243)
        choose(stand, "block", 0)
        until(stand, ".le-why-question", "Why is #0's ref count 2?")
        assert stand.texts(".le-why-change") == ["+1", "+1"]
        assert stand.texts(".le-why-seam code")[1] == "LateMerge.merge_target"
        stand.picture("count")

    show(check, "why", MERGED)


def test_requests_hashes_and_events_have_questions(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, OVERWRITTEN, NANO_VLLM)
        choose(stand, "request", 1)
        until(stand, ".le-why-question", "Why did B hit nothing?")
        key = stand.page.evaluate("() => window.stand.side.scene.block(4).keys[0]")
        choose(stand, "hash", key)
        until(stand, ".le-why-question", "lead to #4?")
        choose(stand, "event", 25)
        until(stand, ".le-why-question", "Why did this happen: #4 is full")
        stand.page.get_by_role("button", name="next in the free queue").click()
        until(stand, ".le-why-question", "Why is #8 next to be allocated?")
        asked = stand.page.evaluate(
            "() => window.asked.map(({ type, subject }) => [type, subject.kind, subject.about])"
        )
        assert [about for _, *about in asked][-1] == ["block", "queue"]
        assert {type_ for type_, *_ in asked} == {"why"}

    show(check, "why", OVERWRITTEN)


def test_by_keyboard_alone(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243)
        stand.page.locator(".le-why-ask").first.focus()
        stand.page.keyboard.press("Enter")
        until(stand, ".le-why-question", "Why did this happen")
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
            stand.page.keyboard.press(key)
        number = int(stand.texts(".le-why-number")[0])
        assert stand.page.evaluate("() => window.stand.side.moment") == number + 1

    show(check, "why", MERGED)


def test_a_busy_kernel_is_told_and_waited_for(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, "hanging")
        choose(stand, "block", 0)
        assert stand.text(".le-why-answer") == "Asking …"
        assert stand.page.locator(".le-why-sheet").get_attribute("aria-busy") == "true"
        until(stand, ".le-why-answer", "The kernel is busy")
        late = Why("Why?", "At last.", (Link(3, 2, "it happened"),)).to_dict()
        stand.page.evaluate("(answer) => window.answerNow(answer)", late)
        until(stand, ".le-why-answer", "At last.")
        assert stand.page.locator(".le-why-sheet").get_attribute("aria-busy") is None

    show(check, "why", MERGED)


def test_a_late_answer_to_an_older_question_is_dropped(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, "hanging")
        choose(stand, "block", 0)
        stand.page.evaluate("() => { window.first = window.answerNow; }")
        choose(stand, "block", 4)
        stand.page.evaluate("(answer) => window.first(answer)", Why("Old?", "Too late.").to_dict())
        stand.page.wait_for_timeout(50)
        assert stand.text(".le-why-question") == "Why is #4 free?" and stand.text(".le-why-answer") == "Asking …"

    show(check, "why", MERGED)


def test_without_a_kernel_it_says_so(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, "failing")
        choose(stand, "block", 0)
        until(stand, ".le-why-answer", "The kernel does not answer.")
        assert stand.count(".le-why-link") == 0

    show(check, "why", MERGED)


def test_an_exported_page_uses_the_answers_it_carries(show: Show) -> None:
    timeline = Timeline()
    for event in OVERWRITTEN:
        timeline.record(event)
    answers = carried_answers(timeline, seams_of(NANO_VLLM))

    def check(stand: Stand) -> None:
        armed(stand, OVERWRITTEN, NANO_VLLM, "none", answers)
        choose(stand, "block", 0)
        until(stand, ".le-why-answer", "A still reads #0")
        assert stand.page.evaluate("() => window.asked.length") == 0
        stand.at(28)
        choose(stand, "request", 1)
        until(stand, ".le-why-answer", f"(As it was at event {len(OVERWRITTEN)}.)")
        choose(stand, "event", 3)
        until(stand, ".le-why-answer", "It was saved with answers to other questions.")

    show(check, "why", OVERWRITTEN)


def test_hostile_words_stay_words(show: Show) -> None:
    evil = "<img src=x onerror='window.pwned=1'>"

    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, "hanging")
        choose(stand, "block", 0)
        answer = Why(evil, evil, (Link(3, 2, evil, evil, evil),)).to_dict()
        stand.page.evaluate("(answer) => window.answerNow(answer)", answer)
        until(stand, ".le-why-answer", "onerror")
        stand.page.wait_for_timeout(50)
        assert stand.count("img") == 0 and stand.page.evaluate("() => window.pwned") is None

    show(check, "why", MERGED)


# -- code --------------------------------------------------------------------------------------------------------------


def test_the_method_that_decided_the_current_event(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243)
        stand.at(moment_after(MERGED, ev.BlockMerged))
        assert stand.text(".le-code-head") == "BlockMerged, event 25, decided by LateMerge.merge_target"
        assert stand.text(".le-code-reason").startswith("Return the first live block of equal content")
        assert "MergePolicy, which it overrides" in stand.text(".le-code-sheet")
        assert "+" in stand.texts(".le-code-sign") and "−" in stand.texts(".le-code-sign")
        assert stand.count(".le-py-word") > 3 and stand.count(".le-py-name") > 0
        stand.picture("merge")
        stand.picture("merge", "dark")
        stand.dress("light")
        stand.page.get_by_role("button", name="whole text").click()
        assert set(stand.texts(".le-code-sign")) == {" "}

    show(check, "code", MERGED)


def test_a_chosen_event_comes_before_the_current_one(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243)
        freed = next(i for i, event in enumerate(MERGED) if isinstance(event, ev.BlockFreed))
        choose(stand, "event", freed)
        assert stand.text(".le-code-head").startswith(f"BlockFreed, event {freed}, decided by LateMerge.merge_target")
        choose(stand, "event", 5)
        assert stand.text(".le-code-head").startswith("BlockAllocated, event 5")
        choose(stand, None)
        assert stand.text(".le-code-head").startswith("StepEnded")

    show(check, "code", MERGED)


def test_what_is_chosen_opens_at_the_last_decision_about_it(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243)
        merged = next(i for i, event in enumerate(MERGED) if isinstance(event, ev.BlockMerged))
        choose(stand, "block", 0)
        head = stand.text(".le-code-head")
        assert head == f"BlockMerged, event {merged}, decided by LateMerge.merge_target", "the last that names #0"
        stand.at(merged)
        assert stand.text(".le-code-head").startswith("BlockCached"), "up to where one stands"
        choose(stand, "block", 11)
        assert stand.text(".le-code-head").startswith(type(MERGED[merged - 1]).__name__), "nobody has used #11"

    show(check, "code", MERGED)


def test_an_override_is_a_difference_from_production(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NO_ALIVE_CHECK)
        stand.at(moment_after(MERGED, ev.BlockMerged))
        assert stand.text(".le-code-head").endswith("decided by NoAliveCheck.is_alive")
        assert stand.text(".le-code-mark") == "override"
        gone, come = stand.texts(".le-code-line.le-code-was"), stand.texts(".le-code-line.le-code-is")
        assert any("return other.ref_count > 0" in line for line in gone)
        assert any("return True" in line for line in come)
        stand.picture("override")
        stand.page.locator(".le-code-tab").first.focus()
        stand.page.keyboard.press("ArrowRight")
        assert stand.text(".le-code-tab[aria-selected=true]") == "LateMerge.merge_target"
        stand.picture("narrow", width=320)
        assert stand.overflow() <= 0

    show(check, "code", MERGED)


def test_a_recording_without_code_says_so(show: Show) -> None:
    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, code={"BlockMerged": seams_of(NANO_VLLM_243)["BlockMerged"]})
        assert "No method is known for StepEnded" in stand.text(".le-code-head")
        stand.page.evaluate("() => { delete window.stand.side.recording.header.code; }")
        stand.at(3)
        assert stand.text(".le-code-head") == "This recording was saved without its code."

    show(check, "code", MERGED)


def test_hostile_source_stays_text(show: Show) -> None:
    code = {"StepEnded": {"seam": "A.b", "class": "<b>", "module": "m", "line": 1, "reason": "<i>", "base": None}}
    code["StepEnded"] |= {"source": '<img src=x onerror=\'window.pwned=1\'>\n"""never\nclosed', "methods": []}

    def check(stand: Stand) -> None:
        armed(stand, MERGED, NANO_VLLM_243, code=code)
        assert "onerror" in stand.text(".le-code-sheet") and stand.count("img") == 0
        assert stand.page.evaluate("() => window.pwned") is None

    show(check, "code", MERGED)
