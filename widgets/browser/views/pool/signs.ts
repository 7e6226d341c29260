// Signs on a card: a broken rule, a difference from the other side, a cut link, a request's badge, a content's letter.

import { hueOf, inkOn, LOST_HUE } from "../../look/palette.ts";
import type { Violation } from "../../model/alarms.ts";
import { contentName } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import type { Ink } from "../canvas.ts";
import type { Rect } from "../view.ts";
import { isDoubled, numWritten, ring } from "./cell.ts";

const BROKEN = "#c62828";

const BADGE = 25; // the room of a request's badge, from the card's edge on

const TAG = 52; // a card of this width, and more, has room for words

const LETTERS = 38; // the room of a letter with its mark, in a card's lower right corner

// Where the sign of a broken rule is: at a card's lower edge, beside the letter, or in a small cell's corner.
export function violatedBox({ x, y, w, h }: Rect, { isSaid }: { isSaid: boolean }) {
  const wide = isSaid && w >= 2 * TAG ? TAG : 15;
  return w < TAG
    ? { x: x + w - 9, y, w: 9, h: 9 }
    : { x: x + Math.min(w - wide, 2 * (w - wide - LETTERS)) / 2, y: y + h - 20, w: wide, h: 16 };
}

// The sign of a broken rule about the block; said/is where the core's state differs from its events.
export function drawViolated(ink: Ink, rect: Rect, violation: Violation) {
  const box = violatedBox(rect, violation),
    { x, y, w, h } = box;
  ring(ink, { ...rect, gap: 0 }, ink.theme.alarm, 2);
  if (rect.w < TAG) return ink.polygon(BROKEN, [x, y], [x + w, y], [x + w, y + h]);
  ink.context.fillStyle = BROKEN;
  ink.round(box, 3);
  ink.context.fill();
  ink.text(w > 20 ? "said/is" : "!", x + w / 2, y + 12, { weight: 700, color: "#fff", align: "center" });
}

// A word on a hatch.
export function sign(ink: Ink, text: string, x: number, y: number) {
  const { context, theme } = ink;
  ink.font({ weight: 700 });
  const wide = ink.width(text) + 6;
  context.save();
  context.globalAlpha = 0.85;
  context.fillStyle = theme.paper;
  ink.round({ x: x - wide / 2, y: y - 10, w: wide, h: 13 }, 3);
  context.fill();
  context.restore();
  ink.text(text, x, y, { weight: 700, align: "center" });
}

// ≠ beside the letter, or where there is room: not as on the other side. Returns the width that it takes after the id.
export function drawUnlike(ink: Ink, { x, y, w, h }: Rect, id: number, block: Block | null) {
  const right = block ? contentWidth(ink, block, w) : 0,
    draw = (at: number, top: number, align: CanvasTextAlign = "left") =>
      ink.text("≠", x + at, top, { weight: 700, align }),
    foot = y + h - 8;
  ink.font({ weight: 700 });
  if (!block || !right) {
    draw(w - 8, foot, "right");
    return 0;
  }
  const from = 5 + 19 * Math.min(block.owners.length, 3),
    to = w - right - 7,
    hasRoom = to - from >= 14,
    isBeside = w >= 84 && (block.content >= 0 || hasRoom);
  if (isBeside) draw(to - 4, foot, "right");
  if (isBeside || block.isLost || isDoubled(block)) return 0;
  if (hasRoom) {
    draw((from + to) / 2, foot, "center");
    return 0;
  }
  draw(8 + ink.width(`#${id}`), y + 14);
  return ink.width("≠") + 3;
}

// Room for what stands in the lower right corner: the letter, or how full the block is. 0 for a block without either.
export function contentWidth(ink: Ink, block: Block, w: number) {
  if (block.content >= 0) return letterWidth(block);
  const text = fillText(ink, block, w);
  return text ? ink.width(text) : 0;
}

// How full a block is, "10/16"; empty where it would not fit beside an owner's badge: the grey part says it too.
export function fillText(ink: Ink, block: Block, w: number) {
  if (!block.fill || block.keepsStates) return "";
  const text = `${numWritten(block)}/${block.size}`;
  ink.font();
  return BADGE + ink.width(text) + 9 <= w ? text : "";
}

function letterWidth(block: Block) {
  const actual = actualName(block);
  return 11 + 7 * contentName(block.content).length + (actual ? 5 + 8 * actual.length : 0);
}

// The content of a block's KV, where the checks know that it is not that of its hash.
function actualName({ actual }: Block) {
  return actual === undefined ? "" : actual < 0 ? "?" : contentName(actual);
}

// A line through a name: its hash stands for it, and its KV is another content's.
export function strike(ink: Ink, x: number, y: number, width: number) {
  ink.lines(ink.theme.alarm, 2, [x - 2, y + 1.5, x + width + 2, y - 1.5]);
}

// The content's letter: on its solid hue once the hash is registered, outlined while only the KV is there.
export function drawLetter(ink: Ink, { x, y, w, h }: Rect, block: Block) {
  const { context, theme } = ink,
    hue = hueOf(block.content),
    name = contentName(block.content),
    width = letterWidth(block),
    [left, line] = [x + w - width - 6, y + h - 9];
  context.save();
  ink.round({ x: left, y: y + h - 21, w: width, h: 16 }, 4);
  context.fillStyle = hue;
  context.strokeStyle = theme.ink;
  if (block.isHashed) context.fill();
  else {
    context.setLineDash([2, 2]);
    context.stroke();
  }
  context.restore();
  const style = { weight: 700, color: block.isHashed ? inkOn(hue) : theme.ink },
    actual = actualName(block);
  if (!actual) return ink.text(name, left + width / 2, line, { ...style, align: "center" });
  ink.text(name, left + 4, line, style);
  strike(ink, left + 4, line - 4, ink.width(name));
  ink.text(actual, left + width - 4, line, { ...style, align: "right" });
}

// A chain's two links, torn apart.
export function drawCutLink(ink: Ink, x: number, y: number, scale: number) {
  const { context, theme } = ink;
  context.save();
  context.translate(x, y - 0.5);
  context.scale(scale, scale);
  context.fillStyle = theme.paper;
  ink.round({ x: -17, y: -8.5, w: 34, h: 17 }, 5);
  context.fill();
  context.strokeStyle = LOST_HUE;
  context.lineCap = "round";
  context.lineWidth = 2;
  for (const side of [-1, 1]) {
    context.beginPath();
    context.moveTo(side * 5, -3.2);
    context.lineTo(side * 9, -3.2);
    context.arc(side * 9, 0, 3.2, -Math.PI / 2, Math.PI / 2, side < 0);
    context.lineTo(side * 5, 3.2);
    context.moveTo(side * 1.6, -3);
    context.lineTo(side * 3, -6);
    context.moveTo(side * 1.6, 3);
    context.lineTo(side * 3, 6);
    context.stroke();
  }
  context.restore();
}
