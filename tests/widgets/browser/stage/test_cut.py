"""No sentence is cut, wide or narrow: what has no room for its size is set smaller; rows that say more take a line."""

from __future__ import annotations

from contextlib import closing
from itertools import filterfalse
from pathlib import Path
from typing import Any

import pytest

from browser.bare_pages import BROWSER, BarePages
from labengine import Drafts, FixedDrafts, Lab, Parts
from labengine import events as ev
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison
from tools.site.notebook_runs import Run, executed, has_weights, kept_path, loaded, notebooks
from widgets.browser.stage.dashboard_page import View, _ticked
from widgets.compare.compare_page import ComparePage, show_comparison

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning"),
]

PROMPT = [11, 12, 13, 14, 15, 16]
WIDTHS = [1260, 844]
"""JupyterLab's cells at 1440 pixels without its side bar, and at 1024."""

CUT = """() => {
  const root = document.querySelector(".labengine"), range = document.createRange(), cut = [];
  const words = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let at = words.nextNode(); at; at = words.nextNode()) {
    range.selectNodeContents(at);
    const text = range.getBoundingClientRect(),
      isNoSentence = at.parentElement.closest(".le-tables-words, .le-tables-brief, .le-layer"),
      isOptional = at.parentElement.matches(".le-explained");
    if (!at.textContent.trim() || !text.width || isNoSentence) continue;
    for (let frame = at.parentElement; frame !== root.parentElement; frame = frame.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(frame), box = frame.getBoundingClientRect();
      const isLeftOut = isOptional && overflowY === "hidden" && text.top > box.bottom - 4;
      if (overflowY === "auto" || isLeftOut) break;
      const isWide = overflowX === "hidden" && (text.left < box.left - 2 || text.right > box.right + 2);
      const isHigh = overflowY === "hidden" && text.bottom > box.bottom + 4;
      if (isWide || isHigh) cut.push(at.textContent);
    }
  }
  return cut;
}"""
"""A request's text is not a sentence: a long one begins or ends with an ellipsis."""

CUT_IN_VIEW = f"""async ([recordings, arrangement, widths]) => {{
  const cell = document.getElementById("cell"), found = new Set(), cutNow = {CUT};
  const frame = () => new Promise(requestAnimationFrame);
  const {{ mount }} = await import("/widget.js");
  const stage = await mount(cell, recordings.map((one) => JSON.stringify(one)), arrangement);
  const {{ track }} = stage, stops = track.guided?.map(([, position]) => position) ?? [];
  for (const width of widths) {{
    cell.style.width = `${{width}}px`;
    await frame();
    await frame();
    for (const position of [stage.position, ...stops, track.end]) {{
      stage.moveTo(position);
      await frame();
      for (const text of cutNow()) found.add(`${{text}} (${{width}} pixels, position ${{position}})`);
    }}
  }}
  stage.close();
  return [...found];
}}"""
"""What is cut where a recording opens, at the stops of its guide, and at its end."""


class AcceptsAll(Drafts):
    def num_accepted(self, drafts: Any, sampled: Any) -> int:
        return len(drafts)


def check_run(run: Run) -> None:
    """Look at all views of a notebook, one after the other, in one page."""

    def run_in(pages: BarePages) -> None:
        with pages.lent(max(WIDTHS) + 40, 900) as bare:
            bare.show('<body data-jp-theme-light="true"><div id="cell"></div></body>')
            for view in run.views.values():
                if "recordings" in view:
                    shown = [view["recordings"], view["arrangement"], WIDTHS]
                    assert bare.page.evaluate(CUT_IN_VIEW, shown) == []

    BROWSER.run(run_in)


@pytest.mark.parametrize("path", [*filter(has_weights, notebooks())], ids=lambda path: path.stem)
def test_no_sentence_of_a_recorded_notebook_is_cut(path: Path) -> None:
    """The recordings behind the site's pages open, too."""
    check_run(loaded(kept_path(path)))


@pytest.mark.sweep  # runs the notebook
@pytest.mark.parametrize("path", [*filterfalse(has_weights, notebooks())], ids=lambda path: path.stem)
def test_no_sentence_of_a_notebook_that_is_run_is_cut(path: Path) -> None:
    check_run(executed(path))


def guessing(**settings: Any) -> Lab:
    """Return a lab whose first guess for position 9 is wrong."""
    guesses = [*PROMPT, 28122, 32809, 37496, 99, 46870, 1536, 6223, 10910, 15597, 20284, 24971, 29658]
    lab = Lab("simulated", num_blocks=16, block_size=4, speculation=FixedDrafts(guesses, 4), **settings)
    lab.add(token_ids=PROMPT, max_tokens=12)
    return lab


def check_view(lab: Lab, at: int, width: int, check: Any) -> None:
    """Run a check on the tables and the pool of a lab at a step."""

    def run(pages: BarePages) -> None:
        with lab, _ticked(), pages.lent(width + 40, 900) as bare:
            picture: Any = lab.view("tables", "pool", at=at)
            with closing(View(bare, [], {})) as page:
                page.feed.detach(page)
                page.feed, page.arrangement = picture.feeds[0], picture.arrangement  # type: ignore[misc]
                page.page.evaluate("(w) => (document.getElementById('cell').style.width = w + 'px')", width)
                page.feed.attach(page)
                page.mount()
                page.settled()
                page.answer()
                check(page)

    BROWSER.run(run)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_with_guesses_and_a_violation_is_whole(width: int) -> None:
    def check(page: View) -> None:
        assert "accepted" in page.text(".le-tables-facts")
        assert page.page.evaluate(CUT) == []

    good = guessing()
    good.step(2)
    check_view(good, 2, width, check)
    wrong = guessing(parts=Parts(drafts=AcceptsAll))
    wrong.run()
    check_view(wrong, 3, width, check)


def test_the_end_of_a_step_counts_its_violations_and_shows_the_token_that_was_computed() -> None:
    wrong = guessing(parts=Parts(drafts=AcceptsAll))
    wrong.run()
    assert [one.step for one in wrong.violations] == [3, 3]
    assert isinstance(list(wrong.timeline.events())[wrong.goto(3).moment - 1], ev.ViolationFound)  # type: ignore[union-attr]

    def check(page: View) -> None:
        assert page.text(".le-alarm-number") == "2"
        assert page.page.locator(".le-tok-wrong").all_text_contents() == ["999"], "slot 9, and token 99"

    check_view(wrong, 3, 1260, check)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_sentence_of_a_comparison_is_cut(width: int) -> None:
    long = "A waits for 12 blocks, but the pool has 3 of them. " * 5

    def check(page: ComparePage) -> None:
        page.page.evaluate(
            """(text) => {
              const { stage } = document.querySelector(".labengine"), { track } = stage;
              track.guide[0] = text;
              const [row] = track.rows.slice(track.guided[0][1] - 1);
              Object.assign(row, { 4: [text], 5: [text] });
              stage.repaint();
            }""",
            long[:200],
        )
        page.places()
        assert page.page.evaluate(CUT) == []
        assert page.page.locator(".le-is-long").count() > 0, "it has been set smaller"

    show_comparison(check, bug("tokenspeed-976").compare(), width=width)


def test_a_comparison_without_a_story_opens_at_the_first_broken_rule() -> None:
    both = Comparison(guessing(parts=Parts(drafts=AcceptsAll)), guessing(), names=("yours", "labengine"))
    with pytest.warns(UserWarning, match="breaks the rule"):
        both.run()

    def check(page: ComparePage) -> None:
        assert page.text(".le-column-head .le-alarm-number") == "2"
        assert (page.data("left") or "").startswith("Rule read is broken")

    show_comparison(check, both)
