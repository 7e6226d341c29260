"""The pool in plain terms: it fills the width, draws words and users, and asks for no counting."""

from __future__ import annotations

import pytest

from browser.frames import FRAME
from browser.screenshots import keep
from checkout import ROOT
from labengine import events as ev
from labengine.config import ConfigError
from labengine.lab import Lab
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

PICTURES = ROOT / ".artifacts" / "views"

GRID = """() => {
  const { columns, cellWidth } = document.querySelector(".labengine").stage.shows[0].view.grid;
  return columns * cellWidth;
}"""


POOL_WORDS = """() => {
  const { stage } = document.querySelector(".labengine"), { scene } = stage.sides[0],
    pool = stage.shows.find(({ view }) => view.grid).view;
  return [...Array(scene.numBlocks).keys()].map((id) => scene.block(id)).filter((one) => one.isHashed).map((block) => {
    const { text } = pool.textOf(scene, block.id, block);
    return block.tokens.map((token, slot) => text(token, slot)).join("").trim();
  });
}"""


def test_python_asks_for_it_by_name() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        plain, other = lab.view("pool", plain=True), lab.view("pool")
        assert plain.arrangement == {"kind": "view", "views": ["pool"], "is_plain": True}  # type: ignore[attr-defined]
        assert other.arrangement == {"kind": "view", "views": ["pool"]}  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="plain"):
            lab.view("tables", plain=True)
        with pytest.raises(ConfigError, match="plain"):
            lab.view("pool", plain="yes")


@pytest.mark.browser
def test_it_fills_the_width_and_leaves_out_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "arrangement", {"kind": "view", "views": ["pool"], "is_plain": True})

    def check(view: View) -> None:
        width = view.page.locator("canvas.le-pool").evaluate("(canvas) => canvas.clientWidth")
        assert view.page.evaluate(GRID) >= width - 1
        keep(view.page.locator("#cell"), PICTURES / "pool-plain.png")
        assert view.page.locator(".le-scrub input").first.is_hidden()
        view.press("ArrowLeft")
        assert int(view.data("moment")) < int(view.data("end"))

    show_dashboard(check, merging_step())


SENTENCES = """() => {
  const { stage } = document.querySelector(".labengine"), said = [];
  for (stage.moveTo(stage.track.first); stage.position < stage.track.end; ) {
    stage.forward();
    const words = stage.caption.sentence.map((part) => (typeof part === "string" ? part : part.join(" ")));
    said.push(words.join(""));
  }
  return said;
}"""
WORDS = """() => [...document.querySelectorAll(".le-texts-row")].map((row) =>
  [...row.querySelectorAll(".le-texts-word")].map((one) => one.textContent + (one.dataset.block ?? "")).join(" "))"""


@pytest.mark.browser
def test_it_is_told_in_everyday_words_and_the_texts_stand_above_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with captions of the kernel at hand, which are for readers who know the terms."""
    monkeypatch.setattr(View, "arrangement", {"kind": "view", "views": ["pool"], "is_plain": True})
    prompts = (("one two three four five", 2), ("one two three four six", 2), ("seven", 1))
    events, words = played(*prompts, num_blocks=6)

    def check(view: View) -> None:
        assert view.page.evaluate(SENTENCES) == [
            "request 0, request 1 and request 2 are waiting to be read.",
            "block 0 and block 1 are reserved for request 0.",
            "block 2 and block 3 are reserved for request 1.",
            "block 4 is reserved for request 2.",
            "request 0, request 1 and request 2 are read into block 0, block 1, block 2, block 3 and block 4.",
            "block 2 holds the same words as block 0: request 1 now uses block 0 too, and block 2 is free.",
            "request 2 is done: block 4 is free.",
            "request 0 and request 1 get one more word each.",
            "request 0 is done: block 1 is free.",
            "request 1 is done: block 0 and block 3 are free.",
        ]
        assert view.page.evaluate(WORDS) == [
            "one two three four five answer answer",
            "one two three four six answer answer",
            "seven answer",
        ]
        view.page.evaluate("() => document.querySelector('.labengine').stage.moveTo(4)")
        view.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
        assert view.page.evaluate(WORDS)[1] == "one2 two2 three2 four2 six3"

    show_dashboard(check, events, words)


def played(*prompts: tuple[str, int], num_blocks: int, block_size: int = 4) -> tuple[list[ev.Event], dict[int, str]]:
    """Return the events of a lab that has done these prompts, and the texts of its tokens."""
    with Lab("simulated", num_blocks=num_blocks, block_size=block_size) as lab:
        for text, max_tokens in prompts:
            lab.add(text, max_tokens=max_tokens)
        lab.run()
        assert lab.timeline is not None
        tokens = {token for request in lab.snapshot().requests.values() for token in request.token_ids}
        return list(lab.timeline.events(0)), {token: lab.token_text(token) for token in tokens}


@pytest.mark.browser
def test_a_dashboard_has_the_panels_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        monkeypatch.setattr(View, "arrangement", lab.show("pool", "queue", "log").arrangement)
        assert lab.show("pool") is lab.show("pool") is not lab.show()
        with pytest.raises(ConfigError, match="did you mean 'pool'"):
            lab.show("pol")

    def check(view: View) -> None:
        assert view.page.locator(".le-panel").evaluate_all("(all) => all.map((one) => one.ariaLabel)") == [
            "Block pool",
            "Free queue",
        ]
        assert view.page.locator("[role=tab]").all_inner_texts() == ["Log"]

    show_dashboard(check, merging_step())


@pytest.mark.browser
def test_a_chat_template_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the rows of the tables and in the pool, of freed blocks too: one word where its run begins."""
    template = "<|im_start|> system Be kind <|im_end|> <|im_start|> user ⏎ {} <|im_end|> <|im_start|> assi stant ⏎"
    events, words = played((template.format("What now ?"), 2), num_blocks=6, block_size=8)

    def check(view: View) -> None:
        first, second = view.page.evaluate(POOL_WORDS)  # freed, and still cached
        assert (first, second) == ("[template]", "What now ? [template]")
        view.page.evaluate("() => document.querySelector('.labengine').stage.step(-1)")
        view.page.locator(".le-tables-fold").first.click()
        view.page.evaluate(FRAME)
        shown = view.page.locator(".le-tok").all_inner_texts()
        assert [word for word in shown[:14] if word] == ["[template]", "What", "now", "?", "[template]"]

    show_dashboard(check, events, words)
