"""Sprites: a look is drawn once and copied, and every copy is, pixel for pixel, what painting it there would be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from widgets.browser.model.model_page import ModelPage, model_page

pytestmark = pytest.mark.browser

SET_UP = """
async () => {
  const { internals } = await import("/widget.js");
  Object.assign(window, internals);
  window.board = (ratio) => {
    const canvas = document.createElement("canvas"), context = canvas.getContext("2d", { willReadFrequently: true });
    Object.assign(canvas, { width: Math.round(400 * ratio), height: Math.round(300 * ratio) });
    context.scale(ratio, ratio);
    return context;
  };
  window.pixelsOf = (context, x = 0, y = 0, w = context.canvas.width, h = context.canvas.height) =>
    context.getImageData(x, y, w, h).data;
  window.numPainted = (pixels) => pixels.filter((value, i) => i % 4 === 3 && value > 0).length;
  window.unlikeness = (one, other) => one.reduce((most, value, i) => Math.max(most, Math.abs(value - other[i])), 0);
  // What is seen through, and a hatch: straight lines, which are the same pixels wherever they are painted.
  window.paintStraight = (context, { x, y, w, h }) => {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.globalAlpha = 0.42;
    context.fillStyle = "#0072b2";
    context.fillRect(x, y, w, h);
    context.lineWidth = 2.5;
    context.beginPath();
    for (let at = -h; at < w; at += 9) {
      context.moveTo(x + at, y + h);
      context.lineTo(x + at + h, y);
    }
    context.stroke();
    context.restore();
  };
  // With all else that a block's ground is made of: round corners, dashes.
  window.paintGround = (context, { x, y, w, h }) => {
    context.save();
    context.beginPath();
    context.roundRect(x, y, w, h, 6);
    context.clip();
    paintStraight(context, { x, y, w, h });
    context.setLineDash([4, 3]);
    context.strokeRect(x + 1, y + 1, w - 2, h - 2);
    context.restore();
  };
}
"""

COPIES = """
() => {
  const theme = {}, places = [[8, 8], [120, 8], [60, 200]], [one, other] = [board(1), board(1)];
  let numDrawn = 0;
  const draw = (context, box) => { numDrawn += 1; paintGround(context, box); };
  const copied = (context, [x, y]) => {
    sprite(context, { x, y, w: 60, h: 40 }, theme, "a look", draw);
    return pixelsOf(context, x, y, 60, 40);
  };
  const copies = [...places.map((place) => copied(one, place)), copied(other, places[0])];
  const isAlike = copies.every((copy) => unlikeness(copy, copies[0]) === 0);
  return { numDrawn, isAlike, numPainted: numPainted(copies[0]) };
}
"""

TWO_LOOKS = """
([first, second]) => {
  const themes = [{}, {}], drawn = [];
  for (const { x = 0, w = 60, h = 40, ratio = 1, theme = 0, name = "a look" } of [first, second, first, second])
    sprite(board(ratio), { x, y: 0, w, h }, themes[theme], name, (context, box) => {
      const { width, height } = context.canvas;
      drawn.push([width, height, box.w, box.h]);
    });
  return drawn;
}
"""

COPIED_FROM_CORNER = """
([ratio]) => {
  const [copied, direct] = [board(ratio), board(ratio)], [w, h] = [84, 52], wide = w * ratio, high = h * ratio;
  sprite(copied, { x: 40, y: 24, w, h }, {}, "a look", paintGround);
  paintGround(direct, { x: 0, y: 0, w, h });
  const painted = pixelsOf(direct, 0, 0, wide, high), rest = numPainted(pixelsOf(copied)) - numPainted(painted);
  return { unlikeness: unlikeness(pixelsOf(copied, 40 * ratio, 24 * ratio, wide, high), painted), rest };
}
"""

BESIDE_DIRECT = """
([ratio, ground]) => {
  const [copied, direct] = [board(ratio), board(ratio)], rect = { x: 40, y: 24, w: 84, h: 52 };
  for (const context of [copied, direct]) {
    context.fillStyle = ground;
    if (ground) context.fillRect(0, 0, 400, 300);
  }
  const before = pixelsOf(direct);
  sprite(copied, rect, {}, "a look", paintStraight);
  paintStraight(direct, rect);
  const painted = pixelsOf(direct);
  return { unlikeness: unlikeness(pixelsOf(copied), painted), change: unlikeness(before, painted) };
}
"""

SPAN = """
([ratio, x, w]) => {
  const context = board(ratio), fill = (onto, box) => onto.fillRect(box.x, box.y, box.w, box.h);
  sprite(context, { x, y: 10, w, h: 20 }, {}, "full", fill);
  const row = pixelsOf(context, 0, Math.round(20 * ratio), context.canvas.width, 1).filter((_, i) => i % 4 === 3);
  return { shades: [...new Set(row)].sort(), from: row.indexOf(255), to: row.lastIndexOf(255) + 1 };
}
"""

NEAREST = """
([ratio, x, y, w]) => {
  const theme = {}, nearest = (at) => Math.round(at * ratio) / ratio, boards = [board(ratio), board(ratio)];
  const places = [[x, y], [nearest(x), nearest(y)]];
  places.forEach(([x, y], i) => sprite(boards[i], { x, y, w, h: 20 }, theme, "a look", paintGround));
  const [asked, whole] = boards.map((context) => pixelsOf(context));
  return { unlikeness: unlikeness(asked, whole), numPainted: numPainted(asked) };
}
"""

MANY_LOOKS = """
([numLooks]) => {
  const context = board(1), theme = {}, drawn = [];
  const show = (look) => sprite(context, { x: 0, y: 0, w: 4, h: 4 }, theme, `${look}`, () => drawn.push(look));
  for (let look = 0; look < numLooks; look++) show(look);
  show(0);
  return drawn.filter((look) => look === 0).length;
}
"""

CARDS = """
([blocks, { cellWidth, cellHeight }]) => {
  const painter = painterFor({ cellWidth, cellHeight }), rect = { x: 8, y: 8, w: cellWidth, h: cellHeight, gap: 4 };
  const colors = { paper: "#ffffff", ink: "#222222", soft: "#666666", faint: "#f4f4f4", line: "#cccccc" };
  const theme = { ...colors, ui: "sans-serif", code: "monospace" };
  const painted = (block, theme) => {
    const context = board(1);
    painter(new Ink(context, theme), rect, 3, block, { groups: [], text: String });
    return pixelsOf(context);
  };
  const shared = blocks.map((block) => painted(block, theme));
  const alone = blocks.map((block) => painted(block, { ...theme }));
  const isSeen = alone.every((pixels) => numPainted(pixels) > 0);
  const unlike = blocks.filter((_, i) => unlikeness(shared[i], alone[i]) > 0);
  return { isSeen, unlike, numLooks: new Set(alone.map((pixels) => pixels.join())).size };
}
"""


@pytest.fixture(scope="module")
def page() -> Iterator[ModelPage]:
    """Sprites, and the cards that are made with them."""
    with model_page() as page:
        page.evaluate(SET_UP)
        yield page


def test_one_look_is_drawn_once_and_copied(page: ModelPage) -> None:
    """To every place of every canvas."""
    counts = page.evaluate(COPIES)
    assert counts["numDrawn"] == 1 and counts["isAlike"]
    assert counts["numPainted"] > 0.9 * 60 * 40


def test_another_place_is_the_same_sprite(page: ModelPage) -> None:
    assert page.evaluate(TWO_LOOKS, [{"x": 0}, {"x": 70}]) == [[60, 40, 60, 40]]


def test_another_look_is_another_sprite_and_both_are_kept(page: ModelPage) -> None:
    """One look, the other, and both again: two are drawn, each as large as its pixels on the screen."""
    others: list[tuple[dict[str, Any], list[int]]] = [
        ({"name": "another look"}, [60, 40, 60, 40]),
        ({"w": 61}, [61, 40, 61, 40]),
        ({"h": 41}, [60, 41, 60, 41]),
        ({"w": 40, "h": 60}, [40, 60, 40, 60]),
        ({"ratio": 1.25}, [75, 50, 60, 40]),
        ({"theme": 1}, [60, 40, 60, 40]),
    ]
    for other, size in others:
        assert page.evaluate(TWO_LOOKS, [{}, other]) == [[60, 40, 60, 40], size], other


@pytest.mark.parametrize("ratio", [1, 1.25, 2])
def test_a_copy_is_what_was_painted_and_nothing_beside_it(page: ModelPage, ratio: float) -> None:
    """Round corners and dashes too: as painted directly in the corner, for the browser's curves depend on the place."""
    assert page.evaluate(COPIED_FROM_CORNER, [ratio]) == {"unlikeness": 0, "rest": 0}


@pytest.mark.parametrize("ratio", [1, 1.25, 2])
def test_a_copy_is_what_painting_it_there_would_be(page: ModelPage, ratio: float) -> None:
    counts = page.evaluate(BESIDE_DIRECT, [ratio, ""])
    assert counts["unlikeness"] == 0 and counts["change"] > 100


@pytest.mark.parametrize("ratio", [1, 1.25])
@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_a_copy_on_paper_differs_by_rounding_alone(page: ModelPage, ratio: float, ground: str) -> None:
    """What can be seen through is rounded to 255ths once more, on the sprite, before it meets the paper."""
    counts = page.evaluate(BESIDE_DIRECT, [ratio, ground])
    assert counts["unlikeness"] <= 2 and counts["change"] > 50


@pytest.mark.parametrize("ratio", [1, 1.25])
@pytest.mark.parametrize(("x", "w"), [(10, 60), (33.37, 47.9), (0.2, 7.01)])
def test_a_sprite_fills_complete_pixels_of_the_screen(page: ModelPage, ratio: float, x: float, w: float) -> None:
    """No pixel is half painted, whatever size is asked for; it begins at the nearest one, and no part is cut off."""
    counts = page.evaluate(SPAN, [ratio, x, w])
    assert counts["shades"] == [0, 255]
    assert abs(counts["from"] - x * ratio) <= 0.5
    assert 0 <= counts["to"] - counts["from"] - w * ratio < 1


@pytest.mark.parametrize("ratio", [1, 1.25])
@pytest.mark.parametrize(("x", "y"), [(10.3, 8), (10, 8.3)])
def test_a_copy_between_two_pixels_goes_to_the_nearest_and_is_not_blurred(
    page: ModelPage, ratio: float, x: float, y: float
) -> None:
    counts = page.evaluate(NEAREST, [ratio, x, y, 47.9])
    assert counts["unlikeness"] == 0 and counts["numPainted"] > 0.9 * 47.9 * 20


def test_as_many_looks_as_a_pool_has_are_kept_and_no_endless_number(page: ModelPage) -> None:
    assert page.evaluate(MANY_LOOKS, [200]) == 1
    assert page.evaluate(MANY_LOOKS, [5000]) == 2


def blocks() -> list[dict[str, Any] | None]:
    """Blocks that differ in what their ground shows: contents, how full, held, lost, in two tables, passed over."""
    full = {"size": 4, "fill": 4, "tokens": [1, 2, 3, 4], "owners": [0], "groups": [0], "isHashed": True}
    plain = full | {"content": 0, "refCount": 1, "isLost": False}
    kept = {"refCount": 0, "isKept": True}
    partly = plain | {"content": -1, "isHashed": False}
    changes: list[dict[str, Any]] = [{}, kept | {"owners": []}, {"isLost": True}, {"groups": [0, 1]}]
    changes += [{"content": content} for content in (1, 5, 6, 7, 12, 13)]
    fills = [{"fill": n, "tokens": list(range(n))} for n in (0, 1, 2, 3)]
    fills += [{"fill": 3, "tokens": [None, 1, 2]}, {"fill": 2, "size": 8, "tokens": [1, 2]}, kept]
    return [None, *(plain | change for change in changes), *(partly | fill for fill in fills)]


@pytest.mark.parametrize(("width", "height"), [(120, 84), (70, 44), (34, 30)], ids=["card", "small card", "tile"])
def test_no_block_wears_the_look_of_another(page: ModelPage, width: int, height: int) -> None:
    """Each painted with the sprites of all before it is as it would be painted alone, under a separate theme."""
    counts = page.evaluate(CARDS, [blocks(), {"cellWidth": width, "cellHeight": height}])
    assert counts["unlike"] == [] and counts["isSeen"]
    assert counts["numLooks"] >= len(blocks()) - 2, "but few of them look alike, so that a look taken over is seen"
