"""The drawers Why? and Code in Chromium: chains that lead to moments, overrides as differences; and no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from browser.frames import FRAME
from labengine import events as ev
from labengine.core.editions import LABENGINE, NANO_VLLM, NANO_VLLM_243
from labengine.core.parts import Parts
from labengine.lab import Lab
from labengine.record.timeline import Timeline
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.session.reasons import seams_of
from labengine_widgets.why import Link, Why, carried_answers, why
from recordings import timeline_of
from widgets.browser.views.mounted_view import MountedView, show_view
from widgets.browser.views.view_recordings import moment_after
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser

MERGED, OVERWRITTEN = [*begin(), *merging_step()], [*begin(), *overwriting_step()]
NO_ALIVE_CHECK = Parts(name="no check", merge_policy=NoAliveCheck).overriding(NANO_VLLM_243)

# python: answers by expose_function; hanging: never answers; failing: a kernel that is gone; none: a page without one.
ARM = """
([code, answers, mode]) => {
  const { stage, side } = window.mounted;
  Object.assign(side.recording.header, { code, answers });
  window.asked = [];
  stage.isLive = mode !== "none";
  stage.moveTo = (moment) => window.goTo(moment);
  stage.ask = async (type, fields) => {
    window.asked.push({ type, ...fields });
    if (mode === "hanging") return new Promise((resolve) => (window.answerNow = (answer) => resolve({ answer })));
    if (mode === "failing") throw new Error("The kernel does not answer.");
    if (mode === "none") throw new Error("This page has no Python.");
    return { id: "1", answer: await window.askPython(fields.subject, fields.moment) };
  };
}
"""

# At once: after a second and a half the kernel is called busy.
CHOOSE_AND_LOOK = """(selection) => {
  window.mounted.stage.select(selection);
  const [sheet, answer] = [".le-why-sheet", ".le-why-answer"].map((name) => document.querySelector(name));
  return [answer.textContent, sheet.getAttribute("aria-busy")];
}"""

# An image made now has failed to load: so has any that was made before it.
IMAGE_FAILS = "() => new Promise((done) => { Object.assign(new Image(), { onerror: done, src: 'x' }); })"


def armed(
    mounted: MountedView,
    events: Sequence[ev.Event],
    parts: Parts,
    mode: str = "python",
    answers: list[dict[str, Any]] | None = None,
    code: dict[str, Any] | None = None,
) -> Timeline:
    """Give the page its seams, and functions that answer."""
    timeline = timeline_of(events)
    seams = seams_of(parts)
    if mode == "python":
        mounted.bare.is_worn = True  # a page keeps an exposed function
        mounted.page.expose_function("askPython", lambda subject, at: why(timeline, subject, at, seams=seams).to_dict())
    mounted.page.evaluate(ARM, [seams if code is None else code, answers or [], mode])
    mounted.at(mounted.end)
    return timeline


def choose(mounted: MountedView, kind: str | None, subject: object = None) -> None:
    select = "(selection) => window.mounted.stage.select(selection)"
    mounted.page.evaluate(select, kind and {"kind": kind, "id": subject})


def until(mounted: MountedView, selector: str, text: str) -> None:
    """Waits for an element to say something."""
    script = "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)"
    mounted.page.wait_for_function(script, arg=[selector, text])


def answered(mounted: MountedView, question: str) -> None:
    """Waits for the answer to a question: it is shown without one at first."""
    until(mounted, ".le-why-sheet:not([aria-busy]) .le-why-question", question)


# -- why ---------------------------------------------------------------------------------------------------------------


def test_paused_it_says_what_can_be_asked() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, OVERWRITTEN, NANO_VLLM)
        assert "Select a block, a request, a hash or an event" in mounted.text(".le-why-answer")
        assert mounted.texts(".le-why-ask") == ["Why did the last event happen?", "Why is #8 next in the free queue?"]
        mounted.picture("rest")

    show_view(check, "why", OVERWRITTEN)


def test_a_choice_is_a_question_and_its_links_lead_to_their_moments() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, OVERWRITTEN, NANO_VLLM)
        choose(mounted, "block", 0)
        answered(mounted, "Why is #0 lost?")
        assert "A still reads #0, but no new request can find it" in mounted.text(".le-why-answer")
        assert mounted.texts(".le-why-number") == ["20", "25"]
        assert mounted.texts(".le-why-seam code") == ["MergePolicy.mapped_after"], "a seam is told once"
        assert "Why is #0's ref count 1?" in mounted.texts(".le-why-ask")
        mounted.picture("lost")
        mounted.picture("lost", "dark")
        mounted.dress("light")
        mounted.page.locator(".le-why-link").nth(0).click()
        assert mounted.page.evaluate("() => window.mounted.side.moment") == 21
        assert mounted.page.locator(".le-why-link").nth(0).get_attribute("aria-current") == "true"
        assert mounted.text(".le-why-question") == "Why is #0 lost?", "the chain stays while one walks along it"
        mounted.picture("lost-narrow", width=320)
        assert mounted.overflow() <= 0

    show_view(check, "why", OVERWRITTEN)


def test_a_ref_count_shows_what_it_adds_up_from() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        choose(mounted, "block", 0)
        answered(mounted, "Why is #0's ref count 2?")
        assert mounted.texts(".le-why-change") == ["+1", "+1"]
        assert mounted.texts(".le-why-seam code")[1] == "LateMerge.merge_target"
        mounted.picture("count")

    show_view(check, "why", MERGED)


def test_requests_hashes_and_events_have_questions() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, OVERWRITTEN, NANO_VLLM)
        choose(mounted, "request", 1)
        answered(mounted, "Why did B hit nothing?")
        key = mounted.page.evaluate("() => window.mounted.side.scene.block(4).keys[0]")
        choose(mounted, "hash", key)
        answered(mounted, "lead to #4?")
        choose(mounted, "event", 25)
        answered(mounted, "Why did this happen: #4 joins")
        mounted.page.get_by_role("button", name="next in the free queue").click()
        answered(mounted, "Why is #8 next to be allocated?")
        asked = mounted.page.evaluate(
            "() => window.asked.map(({ type, subject }) => [type, subject.kind, subject.about])"
        )
        assert [about for _, *about in asked][-1] == ["block", "queue"]
        assert {type_ for type_, *_ in asked} == {"why"}

    show_view(check, "why", OVERWRITTEN)


def test_by_keyboard_alone() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        mounted.page.locator(".le-why-ask").first.focus()
        mounted.page.keyboard.press("Enter")
        answered(mounted, "Why did this happen")
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
            mounted.page.keyboard.press(key)
        number = int(mounted.texts(".le-why-number")[0])
        assert mounted.page.evaluate("() => window.mounted.side.moment") == number + 1

    show_view(check, "why", MERGED)


def test_a_busy_kernel_is_reported_and_waited_for() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, "hanging")
        assert mounted.page.evaluate(CHOOSE_AND_LOOK, {"kind": "block", "id": 0}) == ["Asking …", "true"]
        until(mounted, ".le-why-answer", "The kernel is busy")
        late = Why("Why?", "At last.", (Link(3, 2, "it happened"),)).to_dict()
        mounted.page.evaluate("(answer) => window.answerNow(answer)", late)
        until(mounted, ".le-why-answer", "At last.")
        assert mounted.page.locator(".le-why-sheet").get_attribute("aria-busy") is None

    show_view(check, "why", MERGED)


def test_a_late_answer_to_an_older_question_is_dropped() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, "hanging")
        choose(mounted, "block", 0)
        mounted.page.evaluate("() => { window.first = window.answerNow; }")
        choose(mounted, "block", 4)
        mounted.page.evaluate("(answer) => window.first(answer)", Why("Old?", "Too late.").to_dict())
        mounted.page.evaluate(FRAME)
        assert mounted.text(".le-why-question") == "Why is #4 free?" and mounted.text(".le-why-answer") != "Too late."
        assert mounted.page.locator(".le-why-sheet").get_attribute("aria-busy") == "true", "its own is still to come"

    show_view(check, "why", MERGED)


def test_without_a_kernel_it_says_so() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, "failing")
        choose(mounted, "block", 0)
        until(mounted, ".le-why-answer", "The kernel does not answer.")
        assert mounted.count(".le-why-link") == 0

    show_view(check, "why", MERGED)


def test_an_exported_page_uses_the_answers_it_carries() -> None:
    timeline = timeline_of(OVERWRITTEN)
    answers = carried_answers(timeline, seams_of(NANO_VLLM))

    def check(mounted: MountedView) -> None:
        armed(mounted, OVERWRITTEN, NANO_VLLM, "none", answers)
        choose(mounted, "block", 0)
        until(mounted, ".le-why-answer", "A still reads #0")
        assert mounted.page.evaluate("() => window.asked.length") == 0
        mounted.at(28)
        choose(mounted, "request", 1)
        until(mounted, ".le-why-answer", f"(As it was at event {len(OVERWRITTEN)}.)")
        choose(mounted, "event", 3)
        until(mounted, ".le-why-answer", "The page was saved with answers to other questions.")

    show_view(check, "why", OVERWRITTEN)


def test_hostile_words_stay_words() -> None:
    evil = "<img src=x onerror='window.pwned=1'>"

    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, "hanging")
        choose(mounted, "block", 0)
        answer = Why(evil, evil, (Link(3, 2, evil, evil, evil),)).to_dict()
        mounted.page.evaluate("(answer) => window.answerNow(answer)", answer)
        until(mounted, ".le-why-answer", "onerror")
        mounted.page.evaluate(IMAGE_FAILS)
        assert mounted.count("img") == 0 and mounted.page.evaluate("() => window.pwned") is None

    show_view(check, "why", MERGED)


# -- code --------------------------------------------------------------------------------------------------------------


def test_the_method_that_decided_the_current_event() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        mounted.at(moment_after(MERGED, ev.BlockMerged))
        assert mounted.text(".le-code-head") == "BlockMerged, event 25, decided by LateMerge.merge_target"
        assert mounted.text(".le-code-reason").startswith("Return the first live block of equal content")
        assert "MergePolicy, which it overrides" in mounted.text(".le-code-sheet")
        assert "+" in mounted.texts(".le-code-sign") and "−" in mounted.texts(".le-code-sign")
        assert mounted.count(".le-py-word") > 3 and mounted.count(".le-py-name") > 0
        mounted.picture("merge")
        mounted.picture("merge", "dark")
        mounted.dress("light")
        mounted.page.get_by_role("button", name="whole text").click()
        assert set(mounted.texts(".le-code-sign")) == {" "}

    show_view(check, "why", MERGED)


def test_a_selected_event_comes_before_the_current_one() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        freed = next(i for i, event in enumerate(MERGED) if isinstance(event, ev.BlockFreed))
        choose(mounted, "event", freed)
        assert mounted.text(".le-code-head").startswith(f"BlockFreed, event {freed}, decided by LateMerge.merge_target")
        choose(mounted, "event", 5)
        assert mounted.text(".le-code-head").startswith("BlockAllocated, event 5")
        choose(mounted, None)
        assert mounted.text(".le-code-head").startswith("StepEnded")

    show_view(check, "why", MERGED)


def test_a_block_that_a_fork_shares_was_found_by_no_hash() -> None:
    with Lab("simulated", num_blocks=8, block_size=4) as lab:
        lab.add(token_ids=range(6), n=2, max_tokens=2)
        lab.step()
        assert lab.timeline is not None
        events = list(lab.timeline.events())

    def check(mounted: MountedView) -> None:
        armed(mounted, events, LABENGINE)
        mounted.at(moment_after(events, ev.BlockTouched))
        assert mounted.text(".le-code-head").endswith("decided by KVCacheGroup.num_shared_tokens")

    show_view(check, "why", events)


def test_what_is_selected_opens_at_the_last_decision_about_it() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        merged = next(i for i, event in enumerate(MERGED) if isinstance(event, ev.BlockMerged))
        choose(mounted, "block", 0)
        head = mounted.text(".le-code-head")
        assert head == f"BlockMerged, event {merged}, decided by LateMerge.merge_target", "the last that names #0"
        mounted.at(merged)
        assert mounted.text(".le-code-head").startswith("BlockCached"), "up to where one stands"
        choose(mounted, "block", 11)
        assert mounted.text(".le-code-head").startswith(type(MERGED[merged - 1]).__name__), "nobody has used #11"

    show_view(check, "why", MERGED)


def test_an_override_is_a_difference_from_production() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NO_ALIVE_CHECK)
        mounted.at(moment_after(MERGED, ev.BlockMerged))
        assert mounted.text(".le-code-head").endswith("decided by NoAliveCheck.is_alive")
        assert mounted.text(".le-code-mark") == "override"
        gone, come = mounted.texts(".le-code-line.le-code-was"), mounted.texts(".le-code-line.le-code-is")
        assert any("return other.ref_count > 0" in line for line in gone)
        assert any("return True" in line for line in come)
        mounted.picture("override")
        mounted.page.locator(".le-code-tab").first.focus()
        mounted.page.keyboard.press("ArrowRight")
        assert mounted.text(".le-code-tab[aria-selected=true]") == "LateMerge.merge_target"
        mounted.picture("narrow", width=320)
        assert mounted.overflow() <= 0

    show_view(check, "why", MERGED)


def test_a_recording_without_code_says_so() -> None:
    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, code={"BlockMerged": seams_of(NANO_VLLM_243)["BlockMerged"]})
        assert "No method is known for StepEnded" in mounted.text(".le-code-head")
        mounted.page.evaluate("() => { delete window.mounted.side.recording.header.code; }")
        mounted.at(3)
        assert mounted.text(".le-code-head") == "This recording was saved without its code."

    show_view(check, "why", MERGED)


def test_hostile_source_stays_text() -> None:
    code = {"StepEnded": {"seam": "A.b", "class": "<b>", "module": "m", "line": 1, "reason": "<i>", "base": None}}
    code["StepEnded"] |= {"source": '<img src=x onerror=\'window.pwned=1\'>\n"""never\nclosed', "methods": []}

    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243, code=code)
        assert "onerror" in mounted.text(".le-code-sheet") and mounted.count("img") == 0
        assert mounted.page.evaluate("() => window.pwned") is None

    show_view(check, "why", MERGED)


def test_the_line_that_emits_is_lit_from_event_to_event() -> None:
    def lit(mounted: MountedView) -> list[str]:
        return mounted.texts(".le-code-lit .le-code-words")

    def check(mounted: MountedView) -> None:
        armed(mounted, MERGED, NANO_VLLM_243)
        mounted.at(moment_after(MERGED, ev.BlockMerged))
        assert lit(mounted) == [], "the method that decides emits nothing"
        mounted.page.get_by_role("tab", name="KVCacheGroup.merge").click()
        (line,) = lit(mounted)
        assert "emit(BlockMerged(" in line
        assert mounted.page.locator(".le-code-lit").get_attribute("aria-current") == "true"
        mounted.picture("code-lit")
        mounted.picture("code-lit", "dark")
        mounted.dress("light")
        mounted.at(moment_after(MERGED, ev.BlockCached))
        assert mounted.text(".le-code-tab[aria-selected='true'] code") == "KVCacheGroup.register_block"
        assert "BlockCached(" in lit(mounted)[0]

    show_view(check, "why", MERGED)
