// Signs on a card: a broken rule, a difference from the other side, a cut link, a request's badge, a content's letter.

import { hueOf, inkOn, LOST_HUE, shapeOf } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import type { Violation } from "../../model/alarms.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import { drawText, widthOf } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { CardLook } from "./cell.ts";
import { isDoubled, numWritten, ring, roundRect } from "./cell.ts";

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

// A rule is broken about the block: said/is where the core is not what its events say.
export function drawViolated(context: CanvasRenderingContext2D, rect: Rect, violation: Violation, theme: Theme) {
  const box = violatedBox(rect, violation);
  ring(context, { ...rect, gap: 0 }, theme.alarm, 2);
  context.fillStyle = BROKEN;
  if (rect.w < TAG) return fillCorner(context, box);
  roundRect(context, box, 3);
  context.fill();
  drawText(
    context,
    box.w > 20 ? "said/is" : "!",
    box.x + box.w / 2,
    box.y + 12,
    `700 12px ${theme.ui}`,
    "#fff",
    "center",
  );
}

function fillCorner(context: CanvasRenderingContext2D, { x, y, w, h }: Rect) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + w, y);
  context.lineTo(x + w, y + h);
  context.fill();
}

// A word on a hatch.
export function sign(context: CanvasRenderingContext2D, text: string, x: number, y: number, theme: Theme) {
  context.font = `700 12px ${theme.ui}`;
  const wide = widthOf(context, text) + 6;
  context.save();
  context.globalAlpha = 0.85;
  context.fillStyle = theme.paper;
  roundRect(context, { x: x - wide / 2, y: y - 10, w: wide, h: 13 }, 3);
  context.fill();
  context.restore();
  drawText(context, text, x, y, `700 12px ${theme.ui}`, theme.ink, "center");
}

// ≠ beside the letter, or where there is room: not as on the other side. Returns the width that it takes behind the id.
export function drawUnlike(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  id: number,
  block: Block | null,
  { theme }: CardLook,
) {
  const right = block ? contentWidth(context, block, w, theme) : 0;
  context.font = `700 12px ${theme.ui}`;
  if (!block || !right) {
    drawText(context, "≠", x + w - 8, y + h - 8, context.font, theme.ink, "right");
    return 0;
  }
  const from = 5 + 19 * Math.min(block.owners.length, 3),
    to = w - right - 7;
  if (w >= 84 && (block.content >= 0 || to - from >= 14)) {
    drawText(context, "≠", x + to - 4, y + h - 8, context.font, theme.ink, "right");
    return 0;
  }
  if (block.isLost || isDoubled(block)) return 0;
  if (to - from >= 14) {
    drawText(context, "≠", x + (from + to) / 2, y + h - 8, context.font, theme.ink, "center");
    return 0;
  }
  drawText(context, "≠", x + 8 + widthOf(context, `#${id}`), y + 14, context.font, theme.ink);
  return widthOf(context, "≠") + 3;
}

// Room for what stands in the lower right corner: the letter, or how full the block is. 0 for a block without either.
export function contentWidth(context: CanvasRenderingContext2D, block: Block, w: number, theme: Theme) {
  if (block.content >= 0) return letterWidth(block);
  const text = fillText(context, block, w, theme);
  return text ? widthOf(context, text) : 0;
}

// How full a block is, "10/16"; empty where it would not fit beside an owner's badge: the grey part says it too.
export function fillText(context: CanvasRenderingContext2D, block: Block, w: number, theme: Theme) {
  if (!block.fill || block.keepsStates) return "";
  const text = `${numWritten(block)}/${block.size}`;
  context.font = `12px ${theme.ui}`;
  return BADGE + widthOf(context, text) + 9 <= w ? text : "";
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
export function strike(context: CanvasRenderingContext2D, x: number, y: number, width: number, theme: Theme) {
  context.save();
  context.strokeStyle = theme.alarm;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - 2, y + 1.5);
  context.lineTo(x + width + 2, y - 1.5);
  context.stroke();
  context.restore();
}

export function drawBadge(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  radius: number,
  request: number,
  theme: Theme,
) {
  context.save();
  context.fillStyle = theme.ink;
  context.beginPath();
  const shape = shapeOf(request),
    sides = shape === "diamond" ? 4 : 6;
  if (shape === "disc") context.arc(x, y, radius, 0, 7);
  else if (shape === "square") context.roundRect(x - radius * 0.88, y - radius * 0.88, radius * 1.76, radius * 1.76, 2);
  else
    for (let i = 0; i < sides; i++)
      context.lineTo(
        x + radius * 1.2 * Math.sin((2 * Math.PI * i) / sides),
        y - radius * 1.2 * Math.cos((2 * Math.PI * i) / sides),
      );
  context.fill();
  const name = requestName(request);
  drawText(context, name, x, y + 4.2, `700 12px ${theme.ui}`, theme.paper, "center");
  context.restore();
}

// The content's letter: on its solid hue once the hash is registered, outlined while only the KV is there.
export function drawLetter(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, block: Block, theme: Theme) {
  const hue = hueOf(block.content),
    name = contentName(block.content),
    width = letterWidth(block);
  const box = { x: x + w - width - 6, y: y + h - 21, w: width, h: 16 };
  context.save();
  roundRect(context, box, 4);
  context.fillStyle = hue;
  context.strokeStyle = theme.ink;
  if (block.isHashed) context.fill();
  else {
    context.setLineDash([2, 2]);
    context.stroke();
  }
  const ink = block.isHashed ? inkOn(hue) : theme.ink,
    actual = actualName(block),
    font = `700 12px ${theme.ui}`;
  if (actual) {
    drawText(context, name, box.x + 4, box.y + 12, font, ink);
    strike(context, box.x + 4, box.y + 8, widthOf(context, name), theme);
    drawText(context, actual, box.x + width - 4, box.y + 12, font, ink, "right");
  } else drawText(context, name, box.x + width / 2, box.y + 12, font, ink, "center");
  context.restore();
}

// A chain's two links, torn apart.
export function drawCutLink(context: CanvasRenderingContext2D, x: number, y: number, scale: number, theme: Theme) {
  context.save();
  context.translate(x, y - 0.5);
  context.scale(scale, scale);
  context.fillStyle = theme.paper;
  roundRect(context, { x: -17, y: -8.5, w: 34, h: 17 }, 5);
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
