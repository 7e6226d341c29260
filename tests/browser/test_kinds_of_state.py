"""Forks, beams, drafts, states and priorities as a person sees them, in exported pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.exported_page import ExportedPage, opened
from browser.frames import FRAME
from browser.screenshots import keep
from checkout import ROOT
from labengine import Lab
from labengine.config import GroupSpec
from labengine.core.proposer import FixedDrafts
from widgets.words.test_kinds_of_state import speculating

pytestmark = pytest.mark.browser

PICTURES = ROOT / ".artifacts" / "kinds"

SHADES = """(canvas, [id, columns, rows]) => {
  const zoom = canvas.width / canvas.clientWidth, context = canvas.getContext("2d");
  const w = Math.min(152, canvas.clientWidth / columns), h = Math.min(126, canvas.clientHeight / rows);
  const left = (id % columns) * w + 20, top = Math.floor(id / columns) * h + 0.4 * h;
  const box = [left, top, w - 40, 1].map((size) => Math.round(size * zoom)), found = new Set();
  const { data } = context.getImageData(...box);
  for (let i = 0; i < data.length; i += 4) found.add(data[i]);
  return found.size;
}"""
"""How many greys a line of pixels through a block's upper slots has."""

CUT = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"


@contextmanager
def shown(browser: Browser, lab: Lab, folder: Path, width: int = 1252) -> Iterator[ExportedPage]:
    """The newest moment of a lab, exported."""
    with lab, opened(browser, lab.export_html(folder / "page.html"), viewport={"width": width, "height": 1000}) as page:
        page.press("End")
        yield page
        keep(page.page.locator(".labengine"), PICTURES / f"{folder.name}-{width}.png")


def at(page: ExportedPage, words: str) -> None:
    """Step back to the caption that has these words."""
    for _ in range(200):
        if words in (page.data("sentence") or ""):
            return
        page.press("ArrowLeft")
    raise AssertionError(f"no caption says {words!r}")


def facts(page: ExportedPage) -> list[str]:
    return page.page.locator(".le-tables-facts").all_text_contents()


def test_a_tail_is_shared_until_a_fork_writes_to_it(browser: Browser, tmp_path: Path) -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), n=3, max_tokens=6)
    lab.step(3)
    tails = ".le-tables-row .le-tables-chip:nth-child(3) .le-bead"
    with shown(browser, lab, tmp_path) as page:
        assert page.page.locator(tails).all_text_contents() == ["#3r", "#4s", "#2t"]
        at(page, "A is about to write to #2, which others share, so A's table[2] now points to #3, a copy of it.")
        assert page.page.locator(tails).all_text_contents() == ["#3", "#2×2", "#2×2"]
        at(page, "#0, #1 and #2 are shared with the fork C: each ref count grows by 1.")
        assert page.page.locator(tails).all_text_contents() == ["#2×3"] * 3


def test_a_beam_has_its_number_and_says_why_it_gave_way(browser: Browser, tmp_path: Path) -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    lab.add(token_ids=range(10, 20), beams=3, max_tokens=8)
    lab.step(2)
    with shown(browser, lab, tmp_path) as page:
        assert page.page.locator(".le-tables-beam").all_text_contents() == ["beam A.1", "beam A.2", "beam A.3"]
        page.page.locator(".le-tables-row [data-request='2']").first.click()
        page.open_tab("Why?")
        page.page.get_by_text("Why was C's beam dropped?").first.click()
        page.page.evaluate(FRAME)
        assert "A had more than one" in page.page.locator(".le-drawer").first.inner_text()


def test_slots_of_rejected_drafts_are_hatched_in_the_table_and_in_the_pool(browser: Browser, tmp_path: Path) -> None:
    with shown(browser, speculating(), tmp_path) as page:
        at(page, "#3 and #5 hold the keys and values of 4 rejected drafts: garbage, to be overwritten.")
        garbage = page.page.locator(".le-tables-body i.le-tok-garbage")
        assert garbage.count() == 3, "in #4 of A, and in #3 and #5 of B"
        pool = page.page.locator("canvas.le-pool")
        hatched, plain = (pool.evaluate(SHADES, [block_id, 4, 4]) for block_id in (5, 15))
        assert hatched > 3 and plain == 1, "stripes through its first two slots"
        assert "2/4 accepted" in facts(page)[0] and "0/4 accepted" in facts(page)[1]
        page.page.locator(".le-tables-row [data-block='5']").first.hover()
        page.page.evaluate(FRAME)
        tip = page.page.locator(".le-tip").inner_text()
        assert "slots 0 to 1 hold KV of rejected guesses: garbage, to be overwritten" in tip


def test_states_that_saw_a_rejected_guess_are_hatched_until_they_are_written_again(
    browser: Browser, tmp_path: Path
) -> None:
    groups = [GroupSpec(4, "full"), GroupSpec(8, "state")]
    lab = Lab("simulated", num_blocks=24, groups=groups, speculation=FixedDrafts((0,) * 40, 2))
    lab.add(token_ids=range(10, 17), max_tokens=12)
    lab.step(2)
    with shown(browser, lab, tmp_path) as page:
        at(page, "None of A's 2 drafts is accepted.")
        chips = page.page.locator(".le-tables-group:nth-child(2) .le-tables-chip")
        hatched = chips.filter(has=page.page.locator(".le-tok-garbage"))
        assert [one.split()[-1] for one in hatched.all_inner_texts()] == ["9", "10"]
        hatched.first.locator(".le-bead").hover()
        page.page.evaluate(FRAME)
        assert "rejected guess: garbage, to be overwritten" in page.page.locator(".le-tip").inner_text()


def test_a_state_says_after_how_many_tokens_it_is(browser: Browser, tmp_path: Path) -> None:
    lab = Lab("simulated", num_blocks=24, groups=[GroupSpec(4, "full"), GroupSpec(8, "state")])
    lab.add(token_ids=range(10, 30), max_tokens=12)
    lab.step(4)
    with shown(browser, lab, tmp_path) as page:
        states = page.page.locator(".le-tables-group:nth-child(2) .le-tables-chip").all_inner_texts()
        assert [one.split()[-1] for one in states] == ["⊘", "⊘", "22"], states
        bead = page.page.locator(".le-tables-group:nth-child(2) .le-bead").last
        assert "state after 22 tokens" in (bead.get_attribute("aria-label") or "")
        assert (
            page.page.locator(".le-tables-group:nth-child(2) .le-bead").last.evaluate(
                "(bead) => bead.style.getPropertyValue('--le-fill')"
            )
            == "100%"
        ), "a state is complete after any number of tokens"


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_priorities_and_places_in_the_queue_are_not_cut(browser: Browser, tmp_path: Path, width: int) -> None:
    lab = Lab("simulated", num_blocks=10, block_size=4, policy="priority", max_num_seqs=1)
    for priority in (5, 0, 3):
        lab.add(token_ids=range(20 + priority, 26 + priority), priority=priority, max_tokens=4)
    lab.step(2)
    with shown(browser, lab, tmp_path, width) as page:
        said = facts(page)
        assert said[0] == "priority 5 (2nd in the queue) · 0 of 6 computed"
        assert (
            said[1].startswith("priority 0 · 7 of 8 computed")
            and said[2] == "priority 3 (next in the queue) · 0 of 6 computed"
        )
        assert page.page.locator(".le-tables-facts").evaluate_all(CUT) == []


def test_an_image_is_named_at_its_first_placeholder_and_is_another_content(browser: Browser, tmp_path: Path) -> None:
    lab = Lab("simulated", num_blocks=16, block_size=4)
    for name in ("cat.png", "<b>dog</b>"):
        lab.add(token_ids=[1, 2, 3, *[99] * 6, 4, 5, 6], images={3: (name, 6)}, max_tokens=4)
    lab.step(1)
    with shown(browser, lab, tmp_path) as page:
        for fold in page.page.locator(".le-tables-fold").all():
            fold.click()
        page.page.evaluate(FRAME)
        slots = page.page.locator(".le-tables-row:nth-child(2) .le-tok").all_inner_texts()
        assert slots[:12] == ["1", "2", "3", "▦ <b>dog</b>", "▦", "▦", "▦", "▦", "▦", "4", "5", "6"]
        letters = page.page.locator(".le-tables-row .le-bead-letter").all_inner_texts()
        assert letters == ["p", "q", "r", "s", "t", "u"]
