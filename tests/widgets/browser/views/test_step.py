"""The step's batch as a reader sees it: tokens per request, slot by slot, and what each attention read finds."""

from __future__ import annotations

import pytest

from labengine import events as ev
from widgets import story_44409
from widgets.browser.views.mounted_view import MountedView, boxes_of, show_view
from widgets.browser.views.view_recordings import crowd, hybrid, misplaced, moment_after
from widgets.story_219 import begin, merging_step

pytestmark = pytest.mark.browser
EVIL = "<img src=x onerror='window.pwned=1'>"


def squares(mounted: MountedView, request: int, index: int) -> list[str]:
    """The state of every slot of a block of a request's context."""
    selector = f".le-step-request >> nth={request} >> .le-step-block >> nth={index} >> .le-slot"
    script = "(found) => found.map((one) => one.className.split('le-slot-')[1])"
    found: list[str] = mounted.page.locator(selector).evaluate_all(script)
    return found


def test_tokens_get_their_slots_and_are_read_from_there() -> None:
    events = [*begin(), *merging_step()]

    def check(mounted: MountedView) -> None:
        mounted.at(3)
        assert mounted.text(".le-step-summary") == "No step yet."
        mounted.at(moment_after(events, ev.RequestScheduled, 2))
        assert mounted.text(".le-step-summary") == "Step 1: 2 requests, 28 tokens · not computed yet"
        assert mounted.count(".le-step-planned") == 28
        mounted.at(moment_after(events, ev.ForwardRan))
        assert "KV written" in mounted.text(".le-step-summary") and mounted.count(".le-step-planned") == 0
        tokens = mounted.texts(".le-step-token")
        assert tokens[5] == "5105#1 +15" and tokens[14 + 13] == "13113#7 +129"
        assert mounted.texts(".le-step-range") == ["14 tokens, positions 0 to 13"] * 2
        assert squares(mounted, 1, 3) == ["fresh", "fresh", "free", "free"]
        mounted.at(mounted.end)
        assert mounted.texts(".le-step-block .le-bead-id")[4:] == ["#4", "#5", "#6", "#7"], (
            "what the read saw, merged or not"
        )
        for theme in ("light", "dark"):
            mounted.picture("219", theme)

    show_view(check, "step", events)


def test_a_selected_query_reads_what_is_before_it() -> None:
    def check(mounted: MountedView) -> None:
        mounted.page.locator(".le-step-token").nth(5).click()
        assert mounted.texts(".le-step-label")[1] == "the query at 5 reads 6 tokens"
        assert squares(mounted, 0, 1) == ["fresh", "fresh", "ahead", "ahead"]
        assert mounted.count(".le-step-block") == 2 + 4

    show_view(check, "step", [*begin(), *merging_step()])


def test_a_misplaced_slot_glares() -> None:
    """nano-vLLM PR 71."""
    events = misplaced()

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.ForwardRan, 2))
        assert mounted.text(".le-step-summary").endswith("✗ 1 to the wrong slot")
        assert mounted.texts(".le-step-misplaced .le-step-slot") == ["✗ 7"]
        assert mounted.texts(".le-step-wanted") == ["read from 3"]
        assert mounted.text(".le-step-faults") == "✗ position 3: nothing was ever written there"
        assert squares(mounted, 0, 0) == ["read", "read", "read", "hole"]
        for theme in ("light", "dark"):
            mounted.picture("misplaced", theme)
        mounted.at(moment_after(events, ev.ForwardRan, 1))
        assert mounted.count(".le-step-misplaced") == 0 and mounted.count(".le-step-faults:visible") == 0

    show_view(check, "step", events)


def test_a_window_cuts_what_is_read() -> None:
    events = hybrid()

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.ForwardRan, 4))
        names, reads = mounted.texts(".le-step-name"), mounted.texts(".le-step-label")[1::2]
        assert names[:2] == ["full group", "window group, window 8"]
        assert reads[0] == "its query reads 28 tokens" and reads[1] == "its query reads 8 tokens, 20 to 27"
        assert mounted.texts(".le-step-absent")[0] == "⊘ ×5" and mounted.count(".le-slot-hole") == 1, (
            "only the legend's"
        )
        mounted.picture("hybrid")
        mounted.dress("light", 300)
        assert mounted.overflow() <= 0
        mounted.picture("hybrid-300", width=300)

    show_view(check, "step", events)


def test_blocks_in_two_groups_tables_are_described() -> None:
    def check(mounted: MountedView) -> None:
        assert "#5, #4 are in two groups' tables" in mounted.text(".le-step-faults")

    show_view(check, "step", [*story_44409.before(), *story_44409.interleaved()])


def test_places_stay_within_a_step() -> None:
    events = [*begin(), *merging_step()]

    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(events, ev.RequestScheduled, 2))
        places = mounted.boxes(".le-step-token")
        moments = range(moment_after(events, ev.RequestScheduled, 2), mounted.end + 1)
        assert all(boxes == [places] for _, boxes in mounted.walk(moments, boxes_of(".le-step-token")))

    show_view(check, "step", events)


def test_a_crowd_is_capped_and_counted() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.text(".le-step-summary").startswith("Step 2: 70 requests, 70 tokens")
        assert "and 6 more requests" in mounted.text(".le-step-list > p") and mounted.count("#root *") < 9000
        for width in (300, 1400):
            mounted.dress("light", width)
            assert mounted.overflow() <= 0
            mounted.picture(f"crowd-{width}")

    show_view(check, "step", crowd(70, 8192, 2, 900))


def test_a_long_prompt_shows_its_ends() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.count(".le-step-token") <= 320 and "more …" in mounted.text(".le-step-left-out")

    show_view(check, "step", crowd(1, 1024, 1, 8000))


def test_token_texts_stay_text() -> None:
    def check(mounted: MountedView) -> None:
        assert "<img" in mounted.text(".le-step-text") and mounted.count("img") == 0
        assert mounted.page.evaluate("() => window.pwned") is None

    show_view(check, "step", [*begin(), *merging_step()], words=dict.fromkeys(range(200), EVIL))


def test_forced_colours_keep_borders() -> None:
    def check(mounted: MountedView) -> None:
        mounted.at(moment_after(misplaced(), ev.ForwardRan, 2))
        style = mounted.page.locator(".le-step-misplaced").evaluate("(one) => getComputedStyle(one).borderTopStyle")
        assert style == "double"
        mounted.picture("misplaced-forced")

    show_view(check, "step", misplaced(), forced_colors="active")
