"""A page and its kernel: commands, errors and silence, missed messages, a kernel that is gone, the end."""

from __future__ import annotations

import pytest

from labengine import events as ev
from waiting import wait_until
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser


def test_who_misses_a_message_asks_for_everything() -> None:
    def check(view: View) -> None:
        view.answer()
        view.is_deaf = True
        view.say(merging_step())
        view.is_deaf = False
        view.say([ev.StepStarted(2), ev.StepEnded(2)])
        assert view.data("used") == "0"
        assert len(view.sent("resync")) == 1
        view.answer()
        assert (view.data("used"), view.data("step"), view.data("moment")) == ("5", "2", "35")
        view.say([ev.StepStarted(3), ev.StepEnded(3)])
        assert view.sent("resync") == [] and view.data("end") == "37"

    show_dashboard(check)


def test_keys_send_commands_and_stay_out_of_the_prompt() -> None:
    def check(view: View) -> None:
        view.press("s", "p", " ", "?")
        assert view.page.locator(".le-keys").is_visible()
        view.press("Escape")
        assert view.page.locator(".le-keys").is_hidden()
        view.page.locator(".le-prompt").fill("so, s p ?")
        view.page.locator(".le-prompt").press("Enter")
        actions = [
            (command["action"], command.get("prompt"), command.get("copies")) for command in view.sent("command")
        ]
        assert actions == [("step", None, None), ("phase", None, None), ("start", None, None), ("add", "so, s p ?", 1)]

    show_dashboard(check)


def test_the_form_has_a_field_for_what_the_engine_takes_and_for_nothing_else() -> None:
    def check(view: View) -> None:
        fields = view.page.locator(".le-form .le-option")
        assert fields.count() == 3 and not any(one.is_visible() for one in fields.all())
        view.view_source.request_options = ("n", "priority")
        view.say([ev.StepStarted(1), ev.StepEnded(1)])
        assert [one.is_visible() for one in fields.all()] == [True, False, True]
        view.page.locator(".le-prompt").fill("Once upon a time")
        view.page.get_by_label("n", exact=True).fill("3")
        view.page.get_by_label("priority").fill("-2")
        view.page.get_by_role("button", name="Add", exact=True).click()
        [command] = view.sent("command")
        assert [command[name] for name in ("n", "beams", "priority")] == [3, 1, -2]

    show_dashboard(check)


def test_a_prompt_that_is_only_typed_is_added_before_the_step() -> None:
    def check(view: View) -> None:
        view.page.locator(".le-prompt").fill("Once upon a time")
        view.page.get_by_role("button", name="Step", exact=True).click()
        view.page.get_by_role("button", name="Step", exact=True).click()
        assert [command["action"] for command in view.sent("command")] == ["add", "step", "step"]
        view.page.locator(".le-prompt").fill("  ")
        view.page.get_by_role("button", name="Run", exact=True).click()
        assert [command["action"] for command in view.sent("command")][3:] == ["start"], "an empty prompt is none"

    show_dashboard(check)


def test_a_running_lab_can_be_paused_and_not_stepped() -> None:
    def check(view: View) -> None:
        view.view_source.is_running = True
        view.say(merging_step())
        assert (view.data("running"), view.data("used"), view.data("moment")) == ("true", "5", "33")
        assert view.page.get_by_role("button", name="Step", exact=True).is_disabled()
        view.page.get_by_role("button", name="Pause").click()
        assert view.sent("command")[-1]["action"] == "pause"

    show_dashboard(check)


def test_the_error_of_a_command_is_beside_the_controls() -> None:
    def check(view: View) -> None:
        view.press("s")
        answer = {
            "type": "answer",
            "action": "step",
            "view": view.sent("command")[0]["view"],
            "error": "<b>no room</b>",
        }
        view.emit(answer | {"view": "another view"})
        assert "no room" not in view.text(".le-message")
        view.answer()
        view.emit(answer)
        assert view.text(".le-message") == "step: <b>no room</b>"
        assert view.page.locator(".le-message b").count() == 0

    show_dashboard(check)


def test_a_long_error_is_shown_whole() -> None:
    def check(view: View) -> None:
        view.press("s")
        asked = view.sent("command")[0]["view"]
        view.answer()
        view.emit({"type": "answer", "action": "add", "view": asked, "error": "max_tokens must be at least 1. " * 14})
        message = view.page.locator(".le-message")
        assert message.evaluate("(one) => one.scrollWidth <= one.clientWidth && one.scrollHeight <= one.clientHeight")

    show_dashboard(check)


def test_a_step_without_any_request_asks_for_a_prompt() -> None:
    def check(view: View) -> None:
        assert "prompt first" not in view.text(".le-message")
        view.press("s")
        command = view.sent("command")[0]
        view.answer()
        view.emit({"type": "answer", "action": "step", "view": command["view"]})
        assert "prompt first" not in view.text(".le-message"), "two requests wait"
        view.say([ev.RequestFinished(0, "aborted"), ev.RequestFinished(1, "aborted")])
        view.press("Home", "s")
        view.emit({"type": "answer", "action": "step", "view": command["view"]})
        assert view.text(".le-message").startswith("Add a prompt first")
        view.page.locator(".le-prompt").fill("Once")
        assert "prompt first" not in view.text(".le-message")

    show_dashboard(check)


def test_a_lost_kernel_is_reported_and_nothing_waits_for_it() -> None:
    def check(view: View) -> None:
        assert view.page.get_by_role("button", name="Step", exact=True).is_enabled()
        view.page.evaluate("() => window.loseKernel()")
        view.painted()
        assert view.text(".le-message").startswith("This lab's kernel is gone")
        for name in ("Step", "Add"):
            assert view.page.get_by_role("button", name=name, exact=True).is_disabled()
        view.press("Home")
        assert view.data("used") == "0", "what was seen can still be replayed"

    show_dashboard(check, merging_step())


def test_silence_is_reported_until_an_answer_comes() -> None:
    def check(view: View) -> None:
        silence = "No answer yet"
        wait_until(lambda: view.text(".le-message").startswith(silence), "the message", between=view.painted)
        view.answer()
        assert view.text(".le-message") == ""

    show_dashboard(check)


def test_the_view_leaves_nothing_behind() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => window.unmount()")
        assert view.page.locator(".labengine").count() == 0
        assert view.page.evaluate("() => window.numListeners()") == 0
        view.say([ev.StepStarted(2), ev.StepEnded(2)])

    show_dashboard(check, merging_step())
