"""The real model in the page: its loading, told in words; a damaged file refused; and, with the true weights, a lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from browser.chromium import new_context
from browser.page_watch import PageWatch
from browser.static_server import served
from browser.test_live_page import ROWS_OF_THE_HEAD
from labengine.scenarios import bug
from tools.site import live_page, real_model

BUTTON = "Use a real model"
PARTS = (b"A" * 1_000_000, b"B" * 1_000_000, b"C" * 300_000)


def section(number: int, *entries: bytes) -> bytes:
    """A section of a WebAssembly module, of fewer than 128 bytes."""
    content = bytes([len(entries)]) + b"".join(entries)
    return bytes([number, len(content)]) + content


def kernels_of_nothing() -> bytes:
    """A module that gives memory at 64 KiB, and has no layout: Python refuses it."""
    types = (b"\x60\x00\x00", b"\x60\x01\x7f\x01\x7f", b"\x60\x00\x01\x7f", b"\x60\x01\x7f\x00")
    functions = {"_initialize": 0, "take_memory": 1, "layout_numbers": 2, "num_layout_numbers": 2, "give_memory": 3}
    bodies = {0: b"\x02\x00\x0b", 1: b"\x06\x00\x41\x80\x80\x04\x0b", 2: b"\x04\x00\x41\x00\x0b", 3: b"\x02\x00\x0b"}
    exports = [bytes([len(name)]) + name.encode() + bytes([0, at]) for at, name in enumerate(functions)]
    return b"\0asm\1\0\0\0" + b"".join(
        [
            section(1, *types),
            section(3, *(bytes([kind]) for kind in functions.values())),
            section(5, b"\x00\x40"),
            section(7, *exports, b"\x06memory\x02\x00"),
            section(10, *(bodies[kind] for kind in functions.values())),
        ]
    )


def write_small_model(site: Path) -> None:
    real_model.write_files(site, kernels_of_nothing(), PARTS, "0" * 64)


@contextmanager
def opened(context: BrowserContext, address: str) -> Iterator[tuple[Page, PageWatch]]:
    """A live page and its watch; at the end nothing has gone wrong on it, and it has asked only the server."""
    page = context.new_page()
    watch = PageWatch(page, address)
    page.goto(address)
    page.wait_for_selector('#lab:is([data-state="live"], [data-state="opening"])')
    page.wait_for_selector("#scenario:not(:disabled)", state="attached")
    yield page, watch
    assert watch.complaints() == []
    page.close()


def until_live(page: Page) -> None:
    page.wait_for_selector('#lab[data-state="live"]')


def until_said(page: Page, words: str) -> None:
    page.locator("#model-state", has_text=words).wait_for()


HEAR = """() => {
  window.heard = [];
  new MutationObserver(() => heard.push(document.getElementById("model-state").textContent)).observe(
    document.getElementById("model-state"), { childList: true });
}"""


@pytest.mark.journey
def test_loading_is_told_and_files_that_are_damaged_or_missing_leave_the_lab_simulated(
    browser: Browser, tmp_path: Path
) -> None:
    site = live_page.build(tmp_path / "site", [], write_small_model).parent
    files = [site / "model" / f"part{number}" for number in range(3)]
    files[1].write_bytes(PARTS[1][:-1] + b"X")
    with ExitStack() as stack:
        context = stack.enter_context(new_context(browser, service_workers="block"))
        page, watch = stack.enter_context(opened(context, f"{stack.enter_context(served(site))}?prompt=a"))
        button = page.get_by_role("button", name=f"{BUTTON} (2 MB, once)")
        page.set_viewport_size({"width": 1024, "height": 768})
        assert page.evaluate(ROWS_OF_THE_HEAD) == [2, 0], "what can be chosen has one row, the real model with it"
        page.evaluate("() => { window.validate = WebAssembly.validate; WebAssembly.validate = () => false; }")
        button.click()
        until_said(page, "The lab stays simulated: this browser has no WebAssembly SIMD")
        page.evaluate("() => { WebAssembly.validate = window.validate; }")
        page.evaluate(HEAR)
        button.click()
        until_said(page, "the lab stays simulated: part1 did not arrive intact: its SHA-256")
        heard = page.evaluate("() => heard")
        assert heard[0] == "Loading the real model: 0 of 2 MB …" and len(heard) >= 3
        page.get_by_role("button", name="Step", exact=True).click()
        page.wait_for_url("**prompt=a&step=1")

        files[1].write_bytes(PARTS[1])
        files[2].unlink()
        button.click()
        until_said(page, "part2 could not be downloaded: 404")
        watch.forget()
        files[2].write_bytes(PARTS[2])
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        button.click()
        until_said(page, "rebuild the site")
        assert asked == ["files.json", "part2"], "what arrived intact is kept"
        assert "Unpacking the real model …" in page.evaluate("() => heard")


# -- the true weights --------------------------------------------------------------------------------------------------

PROMPT = "Two people ask the very same question at the very same moment. The"
LINK = (
    "model=smollm2&edition=labengine&blocks=24&block_size=8"
    "&chat=Two+people+ask+the+very+same+question+at+the+very+same+moment.+The&copies=2&max_tokens=48"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with one scenario and the real model, which is fetched once: 200 MB."""
    folder = tmp_path_factory.mktemp("real") / "site"
    return live_page.build(folder, [bug("nano-vllm-219")], real_model.write).parent


def used(page: Page, number: str) -> None:
    page.wait_for_selector(f'.labengine[data-used="{number}"]')


@pytest.mark.sweep  # Python starts in the page four times, and computes with the weights
def test_a_lab_of_real_words_merges_runs_and_has_a_link(browser: Browser, site: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(served(site))
        context = stack.enter_context(
            new_context(browser, viewport={"width": 1252, "height": 1000}, service_workers="block")
        )
        page, _ = stack.enter_context(opened(context, address))
        page.get_by_role("button", name="5", exact=True).click()
        page.locator(".labengine").press("Escape")
        page.get_by_label("Now your own question:").fill(PROMPT)
        page.get_by_label("a real model answers (a download of 98 MB, once)").check()
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator("#own-state", has_text="Loading the real model").wait_for()
        page.wait_for_url(f"**/?{LINK}&step=1")
        page.get_by_text("smollm2 · edition labengine").wait_for()
        page.locator(".labengine").press("End")
        used(page, "7")
        page.get_by_role("button", name="Run", exact=True).click()
        page.wait_for_url("**copies=2&max_tokens=48&step=20*")
        link = page.evaluate("() => location.href")

        other, _ = stack.enter_context(opened(context, link))
        other.get_by_text("smollm2 · edition labengine").wait_for()
        assert other.evaluate("() => location.href") == link, "the weights were kept, and nobody was asked"
        other.get_by_role("button", name="Use the simulated model").click()
        other.get_by_text("simulated · edition labengine").wait_for()
        other.get_by_role("button", name="Use the real model").click()
        other.get_by_text("smollm2 · edition labengine").wait_for()
        other.get_by_label("beside").select_option("vllm")
        other.wait_for_url("**/?model=smollm2&compare=labengine%2Cvllm&*")
        other.evaluate("() => { document.getElementById('restart').hidden = false; }")
        other.get_by_role("button", name="Restart Python").click()
        other.wait_for_selector('#lab[data-state="loading"]')
        until_live(other)
        assert "model=smollm2&compare=labengine%2Cvllm&" in other.evaluate("() => location.search"), (
            "a new Python has it"
        )

        stranger = stack.enter_context(new_context(browser, service_workers="block"))
        third, _ = stack.enter_context(opened(stranger, link))
        until_said(third, "This link runs a real model.")
        third.get_by_role("heading", name="how many of these 12 blocks").wait_for()
        third.get_by_role("button", name=f"{BUTTON} (98 MB, once)").click()
        third.get_by_text("smollm2 · edition labengine").wait_for()
        third.wait_for_url(f"**/?{LINK}&step=20*")


TOKENS = """() => {
  const [{ scene }] = document.querySelector(".labengine").stage.sides;
  return [...scene.requests.values()].map(({ tokens }) => [...tokens]);
}"""
REPEATING = "prompt=one+two+three+one+two+three+one+two+three+one&max_tokens=24"


@pytest.mark.sweep  # Python starts in the page four times, and computes with the weights
def test_answers_beams_and_drafts_are_of_the_real_model(browser: Browser, site: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(served(site))
        context = stack.enter_context(new_context(browser, service_workers="block"))

        def tokens(query: str) -> list[list[int]]:
            page, _ = stack.enter_context(opened(context, f"{address}?model=smollm2&edition=labengine&{query}"))
            if page.locator("#opening").is_visible():
                page.get_by_role("button", name=f"{BUTTON} (98 MB, once)").click()
            page.get_by_text("smollm2 · edition labengine").wait_for()
            page.locator(".labengine").press("End")
            page.locator(".le-tables-row.le-is-over").first.wait_for()
            found: list[list[int]] = page.evaluate(TOKENS)
            return found

        [plain] = tokens(f"{REPEATING}&step=24")
        assert tokens(f"drafts=4&{REPEATING}&step=15") == [plain], "in fifteen steps the same tokens"
        assert tokens(f"{REPEATING}&n=3&step=24") == [plain] * 3
        beams = tokens("prompt=The+capital+of+France+is&max_tokens=12&beams=3&step=12")
        assert len(beams) == len(set(map(tuple, beams))) == 3 and len({tuple(beam[:7]) for beam in beams}) == 1
