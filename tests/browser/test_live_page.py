"""The site's front page from a local static server, with every other host refused: Python runs in the page itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from browser.chromium import ARGS, chromium_path, new_context
from browser.frames import FRAME
from browser.page_watch import PageWatch
from browser.static_server import served
from browser.steady_clock import STEADY_CLOCK, WATCH_PLAYS
from labengine.scenarios import bug
from tools.site import live_page as site
from tools.site.opening import QUESTION

BUG = "?bug=nano-vllm-219"
PROMPT = "Two people ask the very same question at the very same moment. The"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, with one scenario recorded."""
    index = site.build(tmp_path_factory.mktemp("site") / "site", [bug("nano-vllm-219")])
    with served(index.parent) as address:
        yield address


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """A page with touch, in its own profile; at the end nothing has gone wrong, and it has asked only the server."""
    size = {"width": 1252, "height": 1000}
    with new_context(browser, viewport=size, has_touch=True, service_workers="block") as context:
        page = context.new_page()
        watch = PageWatch(page, address)
        page.goto(address)
        yield page
        assert watch.complaints() == []


def until_live(page: Page) -> None:
    page.wait_for_selector('#lab[data-state="live"]')


def until(page: Page, **data: str) -> None:
    """Wait for data attributes of the lab."""
    page.wait_for_selector(".labengine" + "".join(f'[data-{name}="{value}"]' for name, value in data.items()))


def facts(page: Page) -> dict[str, str]:
    names = ("used", "peak", "lost", "step", "end")
    return {name: page.locator(".labengine").get_attribute(f"data-{name}") or "" for name in names}


CLICK_WHEN_THERE = """() => new MutationObserver((_, observer) => {
  const [...all] = document.querySelectorAll(".labengine-dashboard button"),
    run = all.find((one) => one.textContent === "Run");
  if (run) [observer.disconnect(), run.click()];
}).observe(document.body, { childList: true, subtree: true })"""
"""Click Run as soon as there is such a button: before the engine has said anything."""

UNFIT = """async () => {
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  const shown = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()),
    wide = shown.filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".le-layer, svg")),
    small = shown.filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return one.matches("button, select, input, a, [role=tab]") && Math.min(width, height) < 39.5;
    });
  return [...wide, ...small].map((one) => one.outerHTML.slice(0, 90));
}"""


DROP = """(line) => {
  const lines = Array.from({ length: 10 }, (_, number) => line.replaceAll("%d", number)).join("\\n"),
    dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([lines], "prompts.jsonl"));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
"""Drop a file with the line ten times; %d is its number."""

ROWS_OF_THE_HEAD = """() => {
  const boxOf = (one) => one.getBoundingClientRect(),
    middle = (one) => Math.round((boxOf(one).top + boxOf(one).bottom) / 2),
    all = [...document.querySelectorAll(".live-row > *")].filter((one) => one.checkVisibility() && one.clientHeight),
    room = document.querySelector(".live-row");
  return [new Set(all.map(middle)).size, room.scrollWidth - room.clientWidth];
}"""


def unfit_on_a_phone(page: Page) -> list[str]:
    """Elements too wide for a window of 390 pixels, and elements too small for a thumb."""
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".labengine.le-is-phone").wait_for()
    page.evaluate(FRAME)
    found: list[str] = page.evaluate(UNFIT)
    page.set_viewport_size(size)
    page.locator(".labengine:not(.le-is-phone)").wait_for()
    return found


def test_the_front_asks_a_question_and_nothing_plays_over_it(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        ask(page)
        words = page.locator(".le-texts-row").all_inner_texts()
        assert [row.split() for row in words] == [["A", *QUESTION.split()], ["B", *QUESTION.split()]]
        assert bottom_of_the_pool(page, 1440, 900) <= 900 and is_beside_the_question(page)
        assert bottom_of_the_pool(page, 1024, 768) <= 768 and is_beside_the_question(page)
        assert bottom_of_the_pool(page, 390, 844) <= 844
        page.set_viewport_size({"width": 1252, "height": 1000})
        assert unfit_on_a_phone(page) == []
        page.evaluate("() => { document.querySelector('.labengine').stage.player.speed = 20; }")
        page.get_by_role("button", name="8", exact=True).click()
        page.locator("#opening-after").wait_for()
        until(page, used="5", peak="8", playing="false")
        assert page.locator("#opening-in-use").inner_text() == "5 in use"
        assert page.locator(".le-scrub button:visible").all_inner_texts() == ["‹", "Replay", "›"]
        assert page.locator("#opening-verdict").inner_text() == "You said 8: 8 at first, 5 once shared."
        marked = page.locator(".live-answers button").evaluate_all("(all) => all.map((one) => one.className)")
        assert marked == ["", "live-right", "live-other"]
        assert unfit_on_a_phone(page) == []
        page.get_by_label("Now your own question:").fill("What does a cat dream of when it sleeps in the sun?")
        page.get_by_role("button", name="Ask").click()
        until_live(page)
        page.wait_for_url("**/?edition=labengine&prompt=What+does+a+cat+**&copies=2&step=1")
        page.locator(".labengine-dashboard").press("End")
        until(page, step="1", peak="6", used="3")
        assert not page.locator("#opening, #opening-after").first.is_visible()


def bottom_of_the_pool(page: Page, width: int, height: int) -> float:
    """Where the pool ends in a window of this size."""
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate(FRAME)
    bottom: float = page.locator("canvas.le-pool").evaluate("(canvas) => canvas.getBoundingClientRect().bottom")
    return bottom


def is_beside_the_question(page: Page) -> bool:
    """True if the picture has more than half of the width, with the question on its left."""
    lab, question = page.locator("#lab").bounding_box(), page.locator("#opening").bounding_box()
    assert lab is not None and question is not None and page.viewport_size is not None
    return lab["x"] >= question["x"] + question["width"] and lab["width"] > page.viewport_size["width"] / 2


def ask(page: Page) -> None:
    """Wait until the question stands, and Python is there: no one who thinks for a while is disturbed."""
    page.get_by_role("heading", name="how many of these 12 blocks are in use?").wait_for()
    page.wait_for_selector("#scenario:not(:disabled)", state="attached")
    until(page, used="0", moment="3", playing="false")


@pytest.mark.sweep
def test_a_front_without_its_picture_and_a_question_of_blanks_say_so(browser: Browser, address: str) -> None:
    with new_context(browser) as context:
        page = context.new_page()
        page.route("**/opening.bin", lambda route: route.fulfill(status=404))
        page.goto(address)
        page.locator("#opening-verdict", has_text="this question could not be loaded.").wait_for()
        page.get_by_label("Now your own question:").fill("  ")
        page.get_by_role("button", name="Ask").click()
        page.locator("#own-state", has_text="a prompt in a link must not be empty").wait_for()
        page.get_by_label("Now your own question:").fill("And now?")
        page.get_by_role("button", name="Ask").click()
        until_live(page)


@pytest.mark.sweep
def test_the_question_is_answered_rightly_and_skipped(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        ask(page)
        page.get_by_role("button", name="5", exact=True).click()
        page.locator(".labengine").press("Escape")
        page.locator("#opening-after").wait_for()
        assert page.locator("#opening-verdict").inner_text() == "Right: 8 at first, 5 once shared."
        page.get_by_role("button", name="Replay").click()
        until(page, playing="true")


@pytest.mark.journey
def test_a_recorded_bug_becomes_live_and_a_session_of_ones_own_has_a_link(browser: Browser, address: str) -> None:
    with opened(browser, address + BUG) as page:
        root = page.wait_for_selector("#lab .labengine-compare")
        assert root is not None
        page.set_viewport_size({"width": 1440, "height": 900})
        place = root.bounding_box()
        assert page.evaluate(ROWS_OF_THE_HEAD) == [1, 0], "one row, of which nothing sticks out"
        assert page.locator(".le-guide-words").inner_text() == bug("nano-vllm-219").sentences[0]
        until_live(page)
        assert root.bounding_box() == place, "the picture itself has become live, and nothing has moved it"
        assert page.locator(".labengine").count() == 1
        assert page.locator(".le-guide-words").inner_text() == bug("nano-vllm-219").sentences[0], "nothing has played"
        page.locator(".labengine").press("End")
        until(page, used="8 5", step="1 1")
        assert unfit_on_a_phone(page) == []
        page.get_by_label("Edition").select_option("nano-vllm+243")
        page.get_by_role("button", name="Reset", exact=True).click()
        page.wait_for_url("**/?edition=nano-vllm%2B243")
        add_step_and_ask(page)
        page.wait_for_url("**copies=2&step=1")
        seen = facts_before_the_merge(page)
        page.wait_for_url("**copies=2&step=1&moment=*")
        link = page.evaluate("() => location.href")  # page.url may still be the one before
    with opened(browser, link) as other:
        until_live(other)
        until(other, step="1", used="8")
        assert facts(other) == seen and other.url == link, "the moment that was looked at"
        other.locator(".labengine").press("End")
        until(other, step="1", used="5")
        assert unfit_on_a_phone(other) == []


def facts_before_the_merge(page: Page) -> dict[str, str]:
    """Go back to before the first merge; return the facts of that moment."""
    while facts(page)["used"] != "8":
        page.locator(".labengine").press("ArrowLeft")
        page.evaluate(FRAME)
    return facts(page)


def add_step_and_ask(page: Page) -> None:
    """Add a prompt twice, step, see the merge, ask why."""
    for number in (1, 2):
        page.get_by_label("Prompt", exact=True).fill(PROMPT)
        page.get_by_role("button", name="Add", exact=True).click()
        page.locator(".le-badge").nth(number - 1).wait_for()
    page.evaluate(STEADY_CLOCK)
    page.locator(".labengine").evaluate(WATCH_PLAYS)
    page.get_by_role("button", name="Step", exact=True).click()
    page.wait_for_function("() => window.plays.some(([isPlaying]) => isPlaying === 'true')")
    page.locator(".labengine").press("End")
    until(page, step="1", used="5", peak="8", playing="false")
    page.locator('.le-tables [data-block="0"]').first.click()
    page.get_by_role("tab", name="Why?").click()
    page.get_by_role("button", name="Why is #0's ref count 2?").click()
    page.locator(".le-why-answer", has_text="2 table entries point to #0").wait_for()
    assert "LateMerge.merge_target" in page.locator(".le-why-seam").last.inner_text()


@pytest.mark.sweep  # Python starts in the page three times: half a minute
def test_a_link_names_the_moment_that_is_looked_at_and_python_can_be_restarted(browser: Browser, address: str) -> None:
    link = f"{address}?edition=nano-vllm%2B243&prompt=Once+upon+a+time&step=2"
    with opened(browser, link) as page:
        until_live(page)
        until(page, step="2")
        page.locator(".labengine").press("PageUp")
        page.wait_for_url("**&step=2&moment=*")
        until(page, step="1")
        seen, moment = facts(page), page.url
    with opened(browser, moment) as other:
        until_live(other)
        until(other, step="1")
        assert facts(other) == seen and other.url == moment
        other.evaluate("() => { document.getElementById('restart').hidden = false }")
        other.get_by_role("button", name="Restart Python").click()
        other.wait_for_selector('#lab[data-state="loading"]')
        until_live(other)
        until(other, step="1")
        other.get_by_role("button", name="Step", exact=True).click()
        other.wait_for_url("**&step=3*")


@pytest.mark.sweep
def test_where_python_cannot_start_the_recording_stays(browser: Browser, address: str) -> None:
    with new_context(browser) as context:
        page = context.new_page()
        page.route("**/labengine.zip", lambda route: route.fulfill(body="no archive"))
        page.goto(address + BUG)
        page.wait_for_selector('#lab[data-state="failed"]')
        page.get_by_role("button", name="Next").wait_for()
        assert page.get_by_role("status").first.inner_text().startswith("Python cannot run here (")
        assert page.get_by_label("Scenario").is_disabled()


@pytest.mark.sweep
def test_without_webassembly_the_front_is_played_and_says_what_is_not(browser: Browser, address: str) -> None:
    args = [*ARGS, "--js-flags=--jitless"]
    with browser.browser_type.launch(executable_path=chromium_path(), args=args) as jitless:
        page = jitless.new_page()
        page.goto(address)
        page.wait_for_selector('#lab[data-state="failed"]')
        page.evaluate("() => { document.querySelector('.labengine').stage.player.speed = 20; }")
        page.get_by_role("button", name="5", exact=True).click()
        page.locator("#opening-verdict", has_text="Right: 8 at first, 5 once shared.").wait_for()
        page.get_by_label("Now your own question:").fill("And now?")
        page.get_by_role("button", name="Ask").click()
        why = "Python cannot run here (this browser has no WebAssembly)"
        page.locator("#own-state", has_text=why).wait_for()
        assert page.locator("#opening").is_visible()


@pytest.mark.sweep
def test_without_a_network_the_page_is_as_it_was_at_the_visit_before(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = site.build(tmp_path_factory.mktemp("site") / "site", [bug("nano-vllm-219")])
    with new_context(browser) as context:
        page = context.new_page()
        with served(index.parent) as address:
            page.goto(address)
            ask(page)
            page.evaluate("async () => (await navigator.serviceWorker.ready).active.state")
        page.goto(address)
        ask(page)
        page.goto(f"{address}?edition=vllm&prompt=And+now")
        until_live(page)


@pytest.mark.sweep
def test_a_link_that_cannot_be_opened_says_why_and_the_front_is_shown(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}?edition=<b>vlm") as page:
        ask(page)
        assert "vllm" in page.get_by_role("alert").inner_text()


@pytest.mark.sweep
def test_scenario_and_edition_are_selected_in_the_page(browser: Browser, address: str) -> None:
    with opened(browser, address + BUG) as page:
        until_live(page)
        page.get_by_role("button", name="Step both").click()
        page.wait_for_url("**/?bug=nano-vllm-219&step=1")
        page.evaluate(CLICK_WHEN_THERE)
        page.get_by_label("Edition").select_option("vllm")
        page.wait_for_url("**/?edition=vllm&**&step=16")
        page.get_by_label("Edition").select_option("nano-vllm")
        until(page, step="16")
        page.wait_for_url("**/?edition=nano-vllm&**&step=16")
        page.get_by_label("beside").select_option("nano-vllm+243")
        page.locator(".labengine-compare").wait_for()
        page.wait_for_url("**/?compare=nano-vllm%2Cnano-vllm%2B243&**&step=16")
        page.get_by_label("Prompt for both").fill(PROMPT)
        page.get_by_label("copies", exact=True).fill("2")
        page.get_by_role("button", name="Add to both").click()
        page.get_by_role("button", name="Step both").click()
        page.wait_for_url("**/?compare=nano-vllm%2Cnano-vllm%2B243&**&step=16&prompt=**&copies=2&step=1")
        page.get_by_label("Scenario").select_option("nano-vllm-219")
        page.wait_for_url("**/?bug=nano-vllm-219")
        page.get_by_role("button", name="Next").wait_for()


@pytest.mark.sweep
def test_a_form_has_what_the_engines_take_and_the_link_carries_it(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}?edition=labengine&prompt=a") as page:
        until_live(page)
        page.get_by_label("Prompt", exact=True).fill(PROMPT)
        page.get_by_label("beams", exact=True).fill("3")
        page.get_by_label("n", exact=True).fill("2")
        page.get_by_role("button", name="Add", exact=True).click()
        page.locator(".le-message", has_text="add: beams=3").wait_for()
        page.get_by_label("n", exact=True).fill("1")
        page.get_by_role("button", name="Add", exact=True).click()
        page.wait_for_url("**/?edition=labengine&prompt=a&prompt=Two+**&beams=3")
        assert not page.get_by_label("priority").is_visible() and unfit_on_a_phone(page) == []
    with opened(browser, f"{address}?compare=labengine,vllm&policy=priority&prompt=a") as page:
        until_live(page)
        form = page.locator("#add-to-both")
        form.get_by_label("priority").fill("-2")
        form.get_by_label("n", exact=True).fill("2")
        assert not form.get_by_label("beams").is_visible()
        page.get_by_label("Prompt for both").fill(PROMPT)
        page.get_by_role("button", name="Add to both").click()
        page.wait_for_url("**&policy=priority&prompt=a&prompt=Two+**&n=2&priority=-2")
        assert unfit_on_a_phone(page) == []


def slide(page: Page, label: str, value: int) -> None:
    """Put a slider to a figure, as a drag does that ends there."""
    page.get_by_label(label).evaluate(
        "(range, value) => { range.value = value; range.dispatchEvent(new Event('input')); }", value
    )


def test_sliders_run_the_same_workload_with_other_figures(browser: Browser, address: str) -> None:
    """One engine, then a scenario beside its fix; the picture follows, and so does the address."""
    with opened(browser, f"{address}?edition=labengine&prompt=What+do+cats+dream+of&copies=2&step=1") as page:
        until_live(page)
        until(page, used="3")
        page.evaluate("() => { document.querySelector('.labengine').isTheSame = true; }")
        slide(page, "copies of A", 3)
        until(page, used="4")
        slide(page, "tokens in a block", 2)
        until(page, used="5")
        assert page.evaluate("() => document.querySelector('.labengine').isTheSame"), "the same picture"
        page.wait_for_function("() => location.search.includes('block_size=2')")
        assert "copies=3" in page.url
        slide(page, "blocks in the pool", 1)
        page.wait_for_function("() => document.querySelector('.le-vary-message').textContent.includes('needs')")
        assert facts(page)["used"] == "5"
        assert unfit_on_a_phone(page) == []
        page.get_by_role("button", name="Step", exact=True).click()
        until(page, step="2")
        page.goto(f"{address}{BUG}")
        until_live(page)
        slide(page, "blocks in the pool", 20)
        page.wait_for_function("() => location.search.includes('blocks=20')")
        page.wait_for_function("() => document.querySelector('.le-pair-used').textContent.includes('of 20')")


def test_a_dropped_file_of_prompts_is_examined_in_the_page(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}doctor.html") as page:
        asked = list[Request]()
        page.locator("#state", has_text="Ready").wait_for()
        page.on("request", lambda request: asked.append(request))
        text = f"It is 12:00:0%d. <img src=x onerror=alert()> {'the same rules ' * 30} Who wrote book %d?"
        page.evaluate(DROP, json.dumps({"prompt": text}))
        report = page.locator("#report .answer")
        expect(report).to_contain_text("Costliest cause: a clock before")
        expect(page.locator("#report")).to_contain_text("<img src=x")
        page.get_by_label("Prefill").fill("8000")
        page.get_by_role("button", name="Examine").click()
        assert page.evaluate("document.activeElement.id") == "decode", "the clock is two numbers"
        page.get_by_label("Decode").fill("0.02")
        page.get_by_label("Block size", exact=True).fill("8")
        page.keyboard.press("Enter")
        expect(page.locator("#report")).to_contain_text("--block-size 8 --clock 8000,0.02 --show 1")
        assert asked == [], "nothing leaves the browser"
        page.set_viewport_size({"width": 390, "height": 844})
        unfit = [one for one in page.evaluate(UNFIT) if "checkbox" not in one]
        assert unfit == [], "a thumb can press all of a checkbox's label"
        page.evaluate(DROP, "no prompt")
        expect(page.get_by_role("alert")).to_contain_text("is not a file of prompts")
        expect(report).to_have_count(0)
