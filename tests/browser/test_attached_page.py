"""The page of `labengine attach --page`: recorded streams of vLLM, replayed through real sockets, in a browser."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page

import gaps
from browser.chromium import new_context
from browser.frames import FRAME
from browser.page_watch import PageWatch
from browser.screenshots import keep
from gaps import cut_run
from labengine.vllm.stream import live
from labengine.vllm.stream.page.server import PageServer
from labengine.vllm.stream.ranks import Ranks, attach_ranks
from replaying import ReplayedTap
from waiting import wait_until

LONG = "chatcmpl-8f3a2b9c1d4e5f60718293a4b5c6d7e8"
HOSTILE = "<img src=x onerror=document.title='broken'>\u202eid"
pytestmark = pytest.mark.browser

SEEDS = (2, 5)

NOTE_PAINTED = """() => {
  const { stage, dataset } = document.querySelector(".labengine");
  window.painted = [];
  stage.on("painted", () => {
    const moment = Number(dataset.moment);
    if (painted.at(-1) !== moment) painted.push(moment);
  });
}"""

ALL_ARE_SLOW = """() => {
  const { painting } = document.querySelector(".labengine").stage;
  for (const { costs } of painting.shows) costs.some = costs.all = 1e9;
  Object.defineProperty(painting, "slowAgainAt", { get: () => Infinity, set() {} });
  return painting.shows.length;
}"""
"""As of a machine on which every view is slow, and pauses for ever while steps come fast. Returns their number."""

SLOWEST = """() => {
  const { shows } = document.querySelector(".labengine").stage;
  return Math.min(...shows.filter((one) => one.isShown()).map(({ from }) => from));
}"""

DEAR = """() => {
  const { painting } = document.querySelector(".labengine").stage,
    entry = painting.shows.find(({ view }) => view.element.matches(".le-pool"));
  Object.assign(entry, { kind: "some", costs: { some: 0, all: 0 }, before: 0 });
  return [0, 1e6, 0, 1e6, 1e6].map((took) => {
    entry.took = took;
    painting.settle(entry);
    return entry.costs.some > 1e5;
  });
}"""
"""After each of these milliseconds that the pool took to paint: is it slow?"""

TAKE = """async (documents) => {
  const { wire } = document.querySelector(".labengine").stage,
    heard = [],
    Original = DecompressionStream;
  let begun = 0;
  window.DecompressionStream = class extends Original {
    constructor(format) {
      super(format);
      begun++;
    }
  };
  wire.hear = (_content, payload) => heard.push(payload);
  for (const bytes of documents) wire.take({ type: "more" }, [new Uint8Array(bytes)]);
  const atOnce = begun;
  await wire.queue;
  return [atOnce, heard];
}"""


class Served:
    """Replayed taps, the server that follows them, and its page."""

    def __init__(self, page: Page, server: PageServer, ranks: Ranks, taps: list[ReplayedTap]) -> None:
        self.page, self.server, self.ranks, self.taps = page, server, ranks, taps
        self.watch = PageWatch(page, server.address)
        page.goto(server.address)
        for number in range(len(taps)):
            self.until(number)

    def dashboard(self, number: int) -> Locator:
        return self.page.locator(".labengine-dashboard").nth(number)

    def data(self, name: str, number: int = 0) -> str:
        self.page.evaluate(FRAME)
        return self.dashboard(number).get_attribute(f"data-{name}") or ""

    def send_one(self, number: int = 0) -> int:
        """Send one message, and wait until the dashboard has it. Returns the newest moment."""
        self.taps[number].send(1)
        self.until(number)
        return self.ranks.streams[number].timeline.end

    def until(self, number: int = 0) -> None:
        """Wait until a dashboard has what its engine has done."""
        stream, tap = self.ranks.streams[number], self.taps[number]

        def has_all() -> bool:
            with stream.held_still():  # else the last message is counted, and its events are still to come
                return stream.reader._next == tap.num_sent

        wait_until(has_all, "the messages that were sent")
        wait_until(lambda: self.data("end", number) == str(stream.timeline.end), "the newest event in the page")


@contextmanager
def served(
    browser: Browser,
    folder: Path,
    seeds: tuple[int, ...],
    names: dict[int, str] | None = None,
    lines: list[dict[str, Any]] | None = None,
    **options: object,
) -> Iterator[Served]:
    with ExitStack() as all_of:
        patch = all_of.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(live, "SECONDS_OF_A_RUN", 1e9)  # after a pause of a slow machine, too, the page follows
        made = (ReplayedTap(folder / "tap", seed, rank, names, lines) for rank, seed in enumerate(seeds))
        taps = [all_of.enter_context(tap) for tap in made]
        ranks = all_of.enter_context(attach_ranks(f"unix:{folder / 'tap'}"))
        server = all_of.enter_context(PageServer(ranks.streams))
        page = all_of.enter_context(new_context(browser, **options)).new_page()
        shown = Served(page, server, ranks, taps)
        yield shown
        assert shown.watch.complaints() == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_it_follows_scrubs_back_and_is_asked(
    scheme: str, width: int, browser: Browser, tmp_path: Path, artifacts: Path
) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with served(browser, tmp_path, SEEDS[:1], **options) as shown:
        shown.taps[0].send(40)
        shown.until()
        newest = shown.data("step")
        assert int(newest) == shown.ranks.streams[0].fold().step > 10 and shown.data("moment") == shown.data("end")
        assert shown.page.title().startswith("labengine: vllm 0.32.0 · rank 0 · no-weights · ")
        assert shown.dashboard(0).locator(".le-title").inner_text() == shown.ranks.streams[0].title
        shown.dashboard(0).press("PageUp")
        wait_until(lambda: shown.data("step") != newest, "an earlier step")
        back = shown.data("moment")
        shown.taps[0].send(10)
        shown.until()
        assert shown.data("moment") == back, "the reader's moment stays while events come"
        shown.dashboard(0).press("End")
        wait_until(lambda: shown.data("moment") == shown.data("end"), "the newest moment")
        shown.page.locator(".le-tables [data-block]").first.click()
        shown.page.get_by_role("tab", name="Why?").click()
        shown.page.locator(".le-why button", has_text="ref count").first.click()
        answer = shown.page.locator(".le-why-answer")
        wait_until(lambda: answer.count() and "table entr" in answer.inner_text(), "the answer")
        assert "BlockPool." in shown.page.locator(".le-why").inner_text(), "vLLM's own method"
        place = shown.page.locator(".le-why-place").first.inner_text()
        assert re.fullmatch(r"vllm/v1/core/block_pool\.py, line \d+, vllm 0\.32\.0", place.strip())
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        keep(shown.page, artifacts / f"attached_{scheme}_{width}.png")


@pytest.mark.journey
def test_each_step_is_painted_and_a_gap_that_comes_is_drawn_while_the_reader_looks_back(
    browser: Browser, tmp_path: Path, artifacts: Path
) -> None:
    lines, num_lost = cut_run()
    with served(browser, tmp_path, (gaps.SEED,), lines=lines, viewport={"width": 1252, "height": 900}) as shown:
        page, stream = shown.page, shown.ranks.streams[0]
        page.evaluate(NOTE_PAINTED)
        shown.taps[0].send(gaps.FIRST - 19)
        shown.until()
        ends = [shown.send_one() for _ in range(12)]
        assert set(ends) <= set(page.evaluate("painted")) and ends == sorted(set(ends)), "each message is painted"
        shown.dashboard(0).press("PageUp")
        shown.dashboard(0).press("PageUp")
        wait_until(lambda: shown.data("moment") != shown.data("end"), "an earlier moment")
        back, newest = shown.data("moment"), shown.data("step")
        for _ in range(6):
            assert shown.send_one() > ends[-1] and (shown.data("moment"), shown.data("step")) == (back, newest)
        page.locator(".le-tables [data-block]").first.click()
        page.get_by_role("tab", name="Why?").click()
        page.locator(".le-why button", has_text="ref count").first.click()
        page.locator(".le-why-answer").wait_for()
        assert "vllm/v1/core/" in page.locator(".le-why-place").first.inner_text()
        assert shown.data("moment") == back and page.locator(".le-gap:visible").count() == 0

        before = stream.fold().step
        shown.send_one()
        gap = stream.timeline.gap_before
        assert gap is not None and (gap.first_step, gap.num_events) == (before + 1, num_lost)
        drawn = page.locator(".le-gap:visible")
        drawn.wait_for()
        words = drawn.get_attribute("title") or ""
        assert words == f"A gap: {gap}." and f"steps {gap.first_step} to {gap.last_step} are not known" in words
        assert "repeating-linear-gradient" in drawn.evaluate("(gap) => getComputedStyle(gap).backgroundImage")
        page.locator(".le-title", has_text="piece 2 of 2").wait_for()
        again = page.locator(".le-why-again")
        wait_until(lambda: "Asked before the recording" in again.inner_text(), "the answer is an old one")
        assert page.locator(".le-why-link").first.is_disabled(), "its moments are not in this recording"
        for _ in range(10):
            shown.send_one()
            assert shown.data("moment") == shown.data("end") and drawn.count() == 1, "it goes on"
        assert int(shown.data("step")) == stream.fold().step > gap.last_step
        again.click()
        wait_until(again.is_hidden, "the answer of this moment")
        assert page.locator(".le-why-link").first.is_enabled()
        keep(page, artifacts / "attached_gap.png")


def test_slow_views_follow_between_two_steps(browser: Browser, tmp_path: Path) -> None:
    with served(browser, tmp_path, SEEDS[:1]) as shown:
        shown.send_one()
        assert shown.page.evaluate(ALL_ARE_SLOW) > 3 and shown.data("running") == "true"
        for _ in range(3):
            end = shown.send_one()
            wait_until(lambda end=end: shown.page.evaluate(SLOWEST) == end, "every view shows the newest moment")


def test_one_dear_painting_leaves_the_pool_in_every_frame(browser: Browser, tmp_path: Path) -> None:
    with served(browser, tmp_path, SEEDS[:1]) as shown:
        assert shown.page.evaluate(DEAR) == [False, False, False, False, True]


def test_messages_are_unpacked_at_once_and_delivered_in_order(browser: Browser, tmp_path: Path) -> None:
    long, damaged, short = gzip.compress(json.dumps(["x"] * 10**5).encode()), b"\x1f\x8bno", gzip.compress(b"7")
    with served(browser, tmp_path, SEEDS[:1]) as shown:
        num_begun, heard = shown.page.evaluate(TAKE, [list(one) for one in (long, damaged, short)])
        assert num_begun == 3 and heard == [["x"] * 10**5, 7]


def test_requests_have_vllms_names_beside_their_letters(browser: Browser, tmp_path: Path, artifacts: Path) -> None:
    names = {number: f"{LONG}-{number}" for number in range(100)} | {1: HOSTILE}
    with served(browser, tmp_path, SEEDS[:1], names, viewport={"width": 1440, "height": 900}) as shown:
        title = shown.page.title()
        shown.taps[0].send(12)
        shown.until()
        page, state = shown.page, shown.ranks.streams[0].fold()
        request = next(i for i in state.requests if i != 1)
        for number in (request, 1):
            row = page.locator(f'.le-tables-head[data-request="{number}"] .le-tables-name')
            assert row.get_attribute("title") == names[number].replace("\u202e", "·")
            assert row.inner_text().startswith(names[number][:13] + "…")
        page.locator(f'.le-tables-head[data-request="{request}"] .le-badge').hover()
        tip = page.locator(".le-tip")
        wait_until(lambda: f"= {names[request]}" in tip.inner_text(), "the tooltip has the id")
        page.get_by_role("tab", name="Log").click()
        page.get_by_label("block or request").fill("B")
        line = page.locator(".le-log-line").first
        wait_until(lambda: line.inner_text().endswith("B = <img src=x on…n'>·id"), "the line of B has its id")
        page.locator(f'.le-tables-head[data-request="{request}"] .le-badge').click()
        page.get_by_role("tab", name="Why?").click()
        page.locator(".le-why-names", has_text=f"= {names[request]}").wait_for()
        keep(page, artifacts / "attached_names.png")
        assert page.title() == title and page.locator("img").count() == 0


def test_two_ranks_are_shown_side_by_side_each_with_its_own_moment(
    browser: Browser, tmp_path: Path, artifacts: Path
) -> None:
    with served(browser, tmp_path, SEEDS, viewport={"width": 1440, "height": 900}) as shown:
        for number, tap in enumerate(shown.taps):
            tap.send(30 + number)
            shown.until(number)
        boxes = [shown.dashboard(number).bounding_box() for number in (0, 1)]
        assert boxes[0] and boxes[1] and boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
        for number in (0, 1):
            stream = shown.ranks.streams[number]
            assert shown.data("step", number) == str(stream.fold().step)
            assert f"rank {number}" in shown.dashboard(number).locator(".le-title").inner_text()
        shown.dashboard(1).press("PageUp")
        wait_until(lambda: shown.data("moment", 1) != shown.data("end", 1), "an earlier moment of rank 1")
        assert shown.data("moment", 0) == shown.data("end", 0)
        keep(shown.page, artifacts / "attached_two_ranks.png")


def test_the_end_of_the_command_is_reported_and_what_came_stays(browser: Browser, tmp_path: Path) -> None:
    with served(browser, tmp_path, SEEDS[:1]) as shown:
        shown.taps[0].send(20)
        shown.until()
        shown.server.close()
        message = shown.page.locator(".le-message", has_text="The command that serves this page has ended")
        message.wait_for()
        end = shown.data("end")
        shown.dashboard(0).press("PageUp")
        wait_until(lambda: shown.data("moment") != end, "an earlier moment")
        assert all("net::ERR_" in complaint for complaint in shown.watch.complaints())
        shown.watch.forget()


def test_a_connection_that_was_cut_is_made_again(browser: Browser, tmp_path: Path) -> None:
    with served(browser, tmp_path, SEEDS[:1]) as shown:
        (name,) = shown.server.pages._open
        shown.server.pages.closed(name)
        shown.taps[0].send(20)
        shown.until()
        assert name not in shown.server.pages._open
