// One block as drawn on the canvas, at three scales: a card, a tile, a dot.

import { hueOf, inkOn, LOST_HUE, roundOf, shapeOf } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import type { Violation } from "../../model/alarms.ts";
import { contentName, groupName, joined, requestName } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import type { Rect } from "../view.ts";
import { sprite } from "./sprites.ts";

// A card of this width has room for its slots, and for everything in its first line.
const ROOMY = 100;

// A cell; gap: pixels between it and its neighbours.
export interface CellRect extends Rect {
  gap: number;
}

export interface CardLook {
  theme: Theme;
  text: (token: number) => string;
  groups: Group[];
  isNext: boolean;
  isNull: boolean;
  isUnlike: boolean; // differs from the other side's
}

// Draws a block into a cell; null: there is nothing to draw in it.
export interface CellPainter {
  (context: CanvasRenderingContext2D, rect: Rect, id: number, block: Block | null, look: CardLook): void;
  hasMark?: boolean; // it marks a block that differs by itself
}

export function painterFor({ cellWidth, cellHeight }: { cellWidth: number; cellHeight: number }): CellPainter | null {
  if (cellWidth >= 62 && cellHeight >= 40) return drawCard;
  return cellWidth >= 15 && cellHeight >= 15 ? drawTile : null;
}

function roundRect(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, radius: number, inset = 0) {
  context.beginPath();
  context.roundRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset, radius);
}

export function ring(
  context: CanvasRenderingContext2D,
  rect: CellRect,
  color: string,
  width: number,
  dash: number[] = [],
) {
  context.save();
  context.setLineDash(dash);
  context.strokeStyle = color;
  context.lineWidth = width;
  const out = Math.min(2.5, (rect.gap - width) / 2); // nothing of it reaches into a neighbour's share
  roundRect(
    context,
    { x: rect.x - out, y: rect.y - out, w: rect.w + 2 * out, h: rect.h + 2 * out },
    rect.w > 20 ? 7 : 0,
  );
  context.stroke();
  context.restore();
}

// Fill and border: alike for many blocks, so drawn once and copied.
function drawGround(
  context: CanvasRenderingContext2D,
  rect: Rect,
  block: Block | null,
  { theme }: { theme: Theme },
  radius: number,
) {
  sprite(context, rect, theme, `${groundOf(block)}|${radius}`, (onto, box) => {
    drawBackground(onto, box, block, theme, radius);
    drawBorder(onto, box, block, theme, radius);
  });
}

function groundOf(block: Block | null) {
  if (!block) return "none";
  const fill =
    block.content >= 0 ? `${hueOf(block.content)} ${roundOf(block.content)}` : `${numWritten(block)} of ${block.size}`;
  return `${fill}${block.refCount ? " live" : ""}${block.isLost ? " lost" : ""}${isDoubled(block) ? " doubled" : ""}`;
}

function drawBackground(
  context: CanvasRenderingContext2D,
  rect: Rect,
  block: Block | null,
  theme: Theme,
  radius: number,
) {
  context.save();
  roundRect(context, rect, radius);
  context.clip();
  context.fillStyle = theme.faint;
  context.fillRect(rect.x, rect.y, rect.w, rect.h);
  if (block && block.content >= 0) {
    context.globalAlpha = (theme.isDark ? 0.5 : 0.42) * (block.refCount ? 1 : 0.5);
    context.fillStyle = hueOf(block.content);
    context.fillRect(rect.x, rect.y, rect.w, rect.h);
    texture(context, rect, roundOf(block.content), theme);
  } else if (block?.fill) {
    context.globalAlpha = theme.isDark ? 0.26 : 0.15;
    context.fillStyle = theme.ink;
    context.fillRect(rect.x, rect.y, (rect.w * numWritten(block)) / block.size, rect.h); // as full as it is
  }
  if (block?.isLost) {
    context.globalAlpha = 0.75;
    stripes(context, rect, LOST_HUE, 9, 2.5);
  }
  context.restore();
}

function stripes(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, color: string, every: number, width: number) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = color;
  context.lineWidth = width;
  context.beginPath();
  for (let at = -h; at < w; at += every) {
    context.moveTo(x + at, y + h);
    context.lineTo(x + at + h, y);
  }
  context.stroke();
  context.restore();
}

// Contents that share a hue: bars, or dots.
function texture(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, round: number, theme: Theme) {
  if (!round) return;
  context.globalAlpha = 0.28;
  context.fillStyle = theme.ink;
  for (let left = x + 4; left < x + w; left += 6) {
    if (round === 1) context.fillRect(left, y, 1, h);
    else for (let top = y + 4; top < y + h; top += 6) context.fillRect(left, top, 1.6, 1.6);
  }
}

function drawBorder(context: CanvasRenderingContext2D, rect: Rect, block: Block | null, theme: Theme, radius: number) {
  if (!block) return;
  context.save();
  context.strokeStyle = block.isLost ? LOST_HUE : theme.ink;
  context.lineWidth = block.isLost ? 3 : block.refCount ? 2 : 1.5;
  if (!block.refCount) {
    context.setLineDash([4, 3]);
    context.strokeStyle = theme.soft;
  }
  roundRect(context, rect, radius, context.lineWidth / 2);
  context.stroke();
  if (isDoubled(block)) {
    context.lineWidth = 1.3;
    roundRect(context, rect, radius, 3.6);
    context.stroke();
  }
  context.restore();
}

// Enough room for everything: id, ref count and pips, tokens, owners, letter.
function drawCard(context: CanvasRenderingContext2D, rect: Rect, id: number, block: Block | null, look: CardLook) {
  const { theme } = look,
    { x, y, w } = rect;
  drawGround(context, rect, block, look, 6);
  label(context, `#${id}`, x + 7, y + 14, `600 12px ${theme.ui}`, block?.refCount ? theme.ink : theme.soft);
  if (look.isUnlike) drawUnlike(context, rect, id, block, look);
  const word = look.isNull ? "null" : look.isNext ? "next" : "";
  if (!block)
    return hasRoom(context, id, word, w, theme)
      ? label(context, word, x + w - 7, y + 14, `12px ${theme.ui}`, theme.soft, "right")
      : undefined;
  drawRefCount(context, rect, id, block, theme);
  drawTokens(context, rect, block, look);
  drawOwners(context, rect, block, look);
  if (block.content >= 0) drawLetter(context, rect, block, theme);
  else if (block.fill)
    label(
      context,
      `${numWritten(block)}/${block.size}`,
      x + w - 7,
      y + rect.h - 7,
      `12px ${theme.ui}`,
      theme.soft,
      "right",
    );
  if (!block.isLost) return;
  cutLink(context, x + w / 2 + (w < ROOMY ? 6 : 0), y + 12, w < 72 ? 0.55 : w < ROOMY ? 0.75 : 1, theme);
  if (w >= 84 && rect.h < 64 && block.owners.length < 2 && groupsAreOne(look))
    sign(context, "lost", x + w / 2 - 8, y + rect.h - 8, theme);
}

drawCard.hasMark = true;

// A word beside the id.
function hasRoom(context: CanvasRenderingContext2D, id: number, word: string, w: number, theme: Theme) {
  if (!word) return false;
  context.font = `600 12px ${theme.ui}`;
  return widthOf(context, `#${id} ${word}`) + 14 <= w;
}

function groupsAreOne({ groups }: { groups: unknown[] }) {
  return groups.length <= 1;
}

const BROKEN = "#c62828";
const TAG = 52; // a card of this width, and more, has room for words

// Where the sign of a broken rule is: in the middle of a card's lower edge, or in a small cell's corner.
export function violatedBox({ x, y, w, h }: Rect, { isSaid }: { isSaid: boolean }) {
  const wide = isSaid && w >= 2 * TAG ? TAG : 15;
  return w < TAG ? { x: x + w - 9, y, w: 9, h: 9 } : { x: x + (w - wide) / 2, y: y + h - 20, w: wide, h: 16 };
}

// A rule is broken about the block: said/is where the core is not what its events say.
export function drawViolated(context: CanvasRenderingContext2D, rect: Rect, violation: Violation, theme: Theme) {
  const box = violatedBox(rect, violation);
  ring(context, { ...rect, gap: 0 }, theme.alarm, 2);
  context.fillStyle = BROKEN;
  if (rect.w < TAG) return fillCorner(context, box);
  roundRect(context, box, 3);
  context.fill();
  label(context, box.w > 20 ? "said/is" : "!", box.x + box.w / 2, box.y + 12, `700 12px ${theme.ui}`, "#fff", "center");
}

function fillCorner(context: CanvasRenderingContext2D, { x, y, w, h }: Rect) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + w, y);
  context.lineTo(x + w, y + h);
  context.fill();
}

// A word on a hatch.
function sign(context: CanvasRenderingContext2D, text: string, x: number, y: number, theme: Theme) {
  context.font = `700 12px ${theme.ui}`;
  const wide = widthOf(context, text) + 6;
  context.save();
  context.globalAlpha = 0.85;
  context.fillStyle = theme.paper;
  roundRect(context, { x: x - wide / 2, y: y - 10, w: wide, h: 13 }, 3);
  context.fill();
  context.restore();
  label(context, text, x, y, `700 12px ${theme.ui}`, theme.ink, "center");
}

// ≠ beside the letter, or where there is room: not as on the other side.
function drawUnlike(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  id: number,
  block: Block | null,
  { theme }: CardLook,
) {
  const isLettered = block && (block.content >= 0 || block.fill),
    font = `700 12px ${theme.ui}`;
  if (!isLettered || w >= 84)
    return label(
      context,
      "≠",
      x + w - (!isLettered ? 8 : block.content >= 0 ? 11 + letterWidth(block) : 29),
      y + h - 8,
      font,
      theme.ink,
      "right",
    );
  if (block.isLost || isDoubled(block)) return;
  const from = 5 + 19 * Math.min(block.owners.length, 3),
    to = w - (block.content >= 0 ? letterWidth(block) + 7 : 28);
  if (to - from >= 10) return label(context, "≠", x + (from + to) / 2, y + h - 8, font, theme.ink, "center");
  label(context, "≠", x + 8 + widthOf(context, `#${id}`), y + 14, font, theme.ink);
}

function letterWidth(block: Block) {
  return 11 + 7 * contentName(block.content).length;
}

// In the tables of two groups: a fault.
function isDoubled(block: Block) {
  return block.groups.length > 1;
}

// A slot that was passed over holds nothing, though one behind it does.
function numWritten(block: Block) {
  const holes = block.tokens ? block.tokens.filter((token) => token === null).length : 0;
  return block.fill - holes;
}

function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  font: string,
  color: string,
  align: CanvasTextAlign = "left",
) {
  context.font = font;
  context.fillStyle = color;
  context.textAlign = align;
  context.fillText(text, x, y);
}

function drawRefCount(context: CanvasRenderingContext2D, { x, y, w }: Rect, id: number, block: Block, theme: Theme) {
  if (!block.refCount)
    return hasRoom(context, id, "kept", w, theme)
      ? label(context, "kept", x + w - 7, y + 14, `12px ${theme.ui}`, theme.soft, "right")
      : undefined;
  label(context, String(block.refCount), x + w - 7, y + 14, `700 13px ${theme.ui}`, theme.ink, "right");
  const right = x + w - 11 - widthOf(context, String(block.refCount));
  const pips = Math.min(block.refCount, 4),
    room = right - x - 7 - widthOf(context, `#${id}`),
    numPips = (block.isLost && w < ROOMY) || room < 7 * pips + 4 ? 0 : pips;
  for (let i = 0; i < numPips; i++) {
    context.beginPath();
    context.arc(right - 4 - i * 7, y + 9.5, 2.5, 0, 7);
    context.fill();
  }
}

function drawTokens(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  block: Block,
  { theme, text: textOf }: CardLook,
) {
  const { size } = block,
    words = block.tokens.map((token) => (token === null ? "–" : textOf(token)));
  const top = y + 21,
    bottom = y + h - 23,
    color = block.refCount ? theme.ink : theme.soft;
  if (bottom - top < 10) return;
  if (size <= 4 && w >= ROOMY && bottom - top >= 34)
    return drawSlots(context, { x: x + 6, y: top, w: w - 12, h: bottom - top }, words, { theme, size, color });
  const lines = Math.max(1, Math.floor((bottom - top) / 13));
  const text = joined(words).trimStart(),
    font = `12px ${theme.code}`;
  context.font = font;
  if (block.isLost) veil(context, { x: x + 4, y: top - 1, w: w - 8, h: lines * 13 + 2 }, theme);
  let rest = text + (words.length < block.fill ? "…" : "");
  for (let line = 0; line < lines && rest; line++) {
    const [head, tail] = breakText(context, rest, w - 14, line === lines - 1);
    label(context, head, x + 7, top + 10 + line * 13, font, color);
    rest = tail;
  }
}

// Words on a hatch want a quiet ground.
function veil(context: CanvasRenderingContext2D, rect: Rect, theme: Theme) {
  context.save();
  context.globalAlpha = 0.6;
  context.fillStyle = theme.paper;
  roundRect(context, rect, 3);
  context.fill();
  context.restore();
}

// A block of at most four tokens shows its slots, in two rows, empty ones too.
function drawSlots(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  words: string[],
  { theme, size, color }: { theme: Theme; size: number; color: string },
) {
  const columns = Math.ceil(size / 2),
    rows = Math.ceil(size / columns),
    slotWidth = w / columns,
    slotHeight = h / rows;
  for (let slot = 0; slot < size; slot++) {
    const rect = {
      x: x + (slot % columns) * slotWidth,
      y: y + Math.floor(slot / columns) * slotHeight,
      w: slotWidth,
      h: slotHeight,
    };
    context.save();
    roundRect(context, rect, 3, 1.5);
    const isWritten = slot < words.length;
    context.globalAlpha = isWritten ? (theme.isDark ? 0.55 : 0.8) : 0.55;
    context.fillStyle = theme.paper;
    if (isWritten) context.fill();
    context.strokeStyle = theme.line;
    if (!isWritten) context.setLineDash([2, 2]);
    context.stroke();
    context.clip();
    context.globalAlpha = 1;
    if (isWritten) {
      context.font = `12px ${theme.code}`;
      const text = fit(context, words[slot].trim() || "␣", slotWidth - 7);
      label(context, text, rect.x + rect.w / 2, rect.y + rect.h / 2 + 4.3, context.font, color, "center");
    }
    context.restore();
  }
}

// Measured once per font and text: to measure costs more than to draw.
const widths = new Map<string, number>();
const MAX_WIDTHS = 20_000;
function widthOf(context: CanvasRenderingContext2D, text: string) {
  const key = `${context.font}|${text}`,
    known = widths.get(key);
  if (known !== undefined) return known;
  if (widths.size >= MAX_WIDTHS) widths.clear();
  const { width } = context.measureText(text);
  widths.set(key, width);
  return width;
}

function fit(context: CanvasRenderingContext2D, text: string, width: number) {
  if (widthOf(context, text) <= width) return text;
  let cut = text.length;
  while (cut > 1 && widthOf(context, `${text.slice(0, cut)}…`) > width) cut -= 1;
  return `${text.slice(0, cut)}…`;
}

function breakText(context: CanvasRenderingContext2D, text: string, width: number, isLast: boolean) {
  if (widthOf(context, text) <= width) return [text, ""];
  if (isLast) return [fit(context, text, width), ""];
  let cut = text.length;
  while (cut > 1 && widthOf(context, text.slice(0, cut)) > width) cut -= 1;
  const space = text.lastIndexOf(" ", cut);
  const at = space > cut / 3 ? space + 1 : cut;
  return [text.slice(0, at), text.slice(at)];
}

function drawOwners(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  block: Block,
  { theme, groups }: CardLook,
) {
  if (groups.length > 1 && block.groups.length)
    drawGroups(
      context,
      { x: x + 26 + 19 * (Math.min(block.owners.length, 3) - 1), y: y + h - 8, w },
      block,
      theme,
      groups,
    );
  const count = Math.max(1, Math.min(3, Math.floor((w - 10 - besides(block)) / 19))),
    more = block.owners.length - count;
  block.owners.slice(0, count).forEach((request, i) => badge(context, x + 14 + i * 19, y + h - 12, 9, request, theme));
  if (more > 0 && w - 10 - besides(block) - 19 * count >= 16)
    label(context, `+${more}`, x + 7 + count * 19, y + h - 8, `12px ${theme.ui}`, theme.ink);
}

// Room that the letter takes, or how full the block is.
function besides(block: Block) {
  return block.content >= 0 ? letterWidth(block) + 6 : block.fill ? 26 : 0;
}

// Whose tables: the group's name; two names are one too many.
function drawGroups(
  context: CanvasRenderingContext2D,
  { x, y, w }: Omit<Rect, "h">,
  block: Block,
  theme: Theme,
  groups: Group[],
) {
  const names = block.groups.map((group) => groupName(groups, group));
  context.font = `${isDoubled(block) ? "700 " : ""}12px ${theme.ui}`;
  const room = w - 72,
    text = isDoubled(block) ? names.join("+") : names[0],
    isFitting = widthOf(context, text) <= room;
  const shown = isFitting || room >= 34 ? fit(context, text, room) : isDoubled(block) ? "!!" : "";
  label(context, shown, x, y, context.font, isDoubled(block) ? theme.ink : theme.soft);
}

function badge(context: CanvasRenderingContext2D, x: number, y: number, radius: number, request: number, theme: Theme) {
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
  label(context, name, x, y + 4.2, `700 12px ${theme.ui}`, theme.paper, "center");
  context.restore();
}

// The content's letter: on its solid hue once the hash is registered, outlined while only the KV is there.
function drawLetter(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, block: Block, theme: Theme) {
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
  const ink = block.isHashed ? inkOn(hue) : theme.ink;
  label(context, name, box.x + width / 2, box.y + 12, `700 12px ${theme.ui}`, ink, "center");
  context.restore();
}

// A chain's two links, torn apart.
function cutLink(context: CanvasRenderingContext2D, x: number, y: number, scale: number, theme: Theme) {
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

// A small cell: the letter of its content, or its owner's; the id where there is room for it, too.
function drawTile(context: CanvasRenderingContext2D, rect: Rect, id: number, block: Block | null, look: CardLook) {
  const { theme } = look,
    { x, y, w, h } = rect,
    isTall = h >= 30,
    font = `12px ${theme.ui}`,
    name = nameOf(block);
  drawGround(context, rect, block, look, 3);
  context.font = font;
  const count = block && block.refCount > 1 ? `×${block.refCount}` : "",
    hasId = (isTall || !name) && widthOf(context, String(id)) <= w - 5;
  if (hasId)
    label(
      context,
      String(id),
      isTall ? x + 4 : x + w / 2,
      isTall ? y + 13 : y + h / 2 + 4.3,
      font,
      block ? theme.ink : theme.soft,
      isTall ? "left" : "center",
    );
  if (!block) return;
  drawTileName(context, rect, name, {
    isTall,
    theme,
    hasCount: count !== "" && !isTall && drawBeside(context, rect, name, count, theme),
  });
  if (isTall && count && hasId && widthOf(context, `${id}${count}`) <= w - 10)
    label(context, count, x + w - 3, y + 13, font, theme.ink, "right");
  if (block.isLost) cross(context, rect);
}

// Equal letters are equal contents; of a block that is not full yet, whose it is.
function nameOf(block: Block | null) {
  if (!block) return "";
  return block.content >= 0 ? contentName(block.content) : block.owners.length ? requestName(block.owners[0]) : "";
}

function drawTileName(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  name: string,
  { isTall, theme, hasCount }: { isTall: boolean; theme: Theme; hasCount: boolean },
) {
  context.font = `700 12px ${theme.ui}`;
  if (!name || widthOf(context, name) > w - 2) return;
  if (isTall) label(context, name, x + w - 4, y + h - 5, context.font, theme.ink, "right");
  else
    label(
      context,
      name,
      hasCount ? x + 3 : x + w / 2,
      y + h / 2 + 4.3,
      context.font,
      theme.ink,
      hasCount ? "left" : "center",
    );
}

// How many hold it, beside its letter; false where there is no room.
function drawBeside(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  name: string,
  count: string,
  theme: Theme,
) {
  context.font = `700 12px ${theme.ui}`;
  if (widthOf(context, name + count) > w - 8) return false;
  label(context, count, x + w - 3, y + h / 2 + 4.3, `12px ${theme.ui}`, theme.ink, "right");
  return true;
}

function cross(context: CanvasRenderingContext2D, { x, y, w, h }: Rect) {
  context.save();
  context.strokeStyle = LOST_HUE;
  context.lineWidth = Math.max(1, Math.min(w, h) / 8);
  context.beginPath();
  context.moveTo(x + 1, y + 1);
  context.lineTo(x + w - 1, y + h - 1);
  context.moveTo(x + w - 1, y + 1);
  context.lineTo(x + 1, y + h - 1);
  context.stroke();
  context.restore();
}
