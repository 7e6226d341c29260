// A block's cell in the pool: common data of its painters, its background, and rings around it.

import { hueOf, LOST_HUE, roundOf } from "../../look/palette.ts";
import type { Block } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import { Ink, sprite } from "../canvas.ts";
import type { Rect } from "../view.ts";

// A card of this width has room for its slots, and for everything in its first line.
export const ROOMY = 100;

// A cell; gap: pixels between it and its neighbours.
export interface CellRect extends Rect {
  gap: number;
}

export interface CardLook {
  text: (token: number, slot: number) => string;
  isFolded: boolean; // all of it is a chat template
  groups: Group[];
  headWord: string; // at the free queue's head; empty elsewhere
  isNull: boolean;
  isUnlike: boolean; // differs from the other side's
}

// Draws a block into a cell; null: there is nothing to draw in it.
export interface CellPainter {
  (ink: Ink, rect: Rect, id: number, block: Block | null, look: CardLook): void;
  hasMark?: boolean; // it marks a block that differs by itself
}

export function ring(ink: Ink, rect: CellRect, color: string, width: number, dash: number[] = []) {
  const { context } = ink,
    out = Math.min(2.5, (rect.gap - width) / 2); // nothing of it reaches into a neighbour's share
  context.save();
  context.setLineDash(dash);
  context.strokeStyle = color;
  context.lineWidth = width;
  ink.round(rect, rect.w > 20 ? 7 : 0, -out);
  context.stroke();
  context.restore();
}

const PIN = 6;

// A triangle at the middle of the upper edge, where a cell is large enough for words.
export function pin(ink: Ink, { x, y, w, h }: Rect, color: string) {
  if (Math.min(w, h) < 5 * PIN) return;
  const middle = x + w / 2;
  ink.polygon(color, [middle - PIN, y - 1], [middle + PIN, y - 1], [middle, y + PIN]);
}

// Fill and border: alike for many blocks, so drawn once and copied.
export function drawGround({ context, theme }: Ink, rect: Rect, block: Block | null, radius: number) {
  sprite(context, rect, theme, `${groundOf(block)}|${radius}`, (onto, box) => {
    const ink = new Ink(onto, theme);
    drawBackground(ink, box, block, radius);
    drawBorder(ink, box, block, radius);
  });
}

function groundOf(block: Block | null) {
  if (!block) return "none";
  const fill =
    block.content >= 0 ? `${hueOf(block.content)} ${roundOf(block.content)}` : `${numWritten(block)} of ${block.size}`;
  const flags = [!block.isKept && "live", block.isLost && "lost", isDoubled(block) && "doubled"];
  return [
    fill,
    block.promised && `${block.promised} promised of ${block.size}`,
    block.garbage && `garbage ${block.garbage} of ${block.size}`,
    ...flags,
  ]
    .filter(Boolean)
    .join(" ");
}

function drawBackground(ink: Ink, rect: Rect, block: Block | null, radius: number) {
  const { context, theme } = ink,
    { x, y, w, h } = rect;
  context.save();
  ink.round(rect, radius);
  context.clip();
  ink.fill(x, y, w, h, theme.faint);
  if (block && block.content >= 0) {
    ink.fill(x, y, w, h, hueOf(block.content), (theme.isDark ? 0.5 : 0.42) * (block.isKept ? 0.5 : 1));
    texture(ink, rect, roundOf(block.content));
  } else if (block && numWritten(block))
    ink.fill(x, y, (w * numWritten(block)) / block.size, h, theme.ink, theme.isDark ? 0.26 : 0.15); // as full as it is
  if (block?.promised) promise(ink, rect, block);
  if (block?.garbage) {
    const [start, end] = block.garbage,
      slot = w / block.size;
    hatchGarbage(ink, { ...rect, x: x + start * slot, w: (end - start) * slot });
  }
  if (block?.isLost) stripes(ink, rect, LOST_HUE, 9, 2.5, 0.75);
  context.restore();
}

// A look-up finds the block, and nothing has been written into these slots: paper, and a thin hatch the other way.
function promise(ink: Ink, { x, y, w, h }: Rect, block: Block) {
  const { context, theme } = ink,
    wide = (w * block.promised) / block.size,
    left = x + w - wide;
  ink.fill(left, y, wide, h, theme.paper, 0.55);
  context.save();
  context.translate(2 * left + wide, 0);
  context.scale(-1, 1);
  stripes(ink, { x: left, y, w: wide, h }, theme.soft, 7, 1, 0.8);
  context.restore();
}

// KV of rejected guesses: the hatch that the block tables have for it.
export function hatchGarbage(ink: Ink, rect: Rect) {
  stripes(ink, rect, ink.theme.line, 5, 1.5, 0.8);
}

function stripes(ink: Ink, { x, y, w, h }: Rect, color: string, every: number, width: number, alpha: number) {
  const { context } = ink,
    lines: [number, number, number, number][] = [];
  for (let at = -h; at < w; at += every) lines.push([x + at, y + h, x + at + h, y]);
  context.save();
  context.globalAlpha = alpha;
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  ink.lines(color, width, ...lines);
  context.restore();
}

// Contents that share a hue: bars, or dots.
function texture({ context, theme }: Ink, { x, y, w, h }: Rect, round: number) {
  if (!round) return;
  context.globalAlpha = 0.28;
  context.fillStyle = theme.ink;
  for (let left = x + 4; left < x + w; left += 6) {
    if (round === 1) context.fillRect(left, y, 1, h);
    else for (let top = y + 4; top < y + h; top += 6) context.fillRect(left, top, 1.6, 1.6);
  }
}

function drawBorder(ink: Ink, rect: Rect, block: Block | null, radius: number) {
  if (!block) return;
  const { context, theme } = ink;
  context.save();
  context.strokeStyle = block.isKept ? theme.soft : block.isLost ? LOST_HUE : theme.ink;
  context.lineWidth = block.isLost ? 3 : block.isKept ? 1.5 : 2;
  if (block.isKept) context.setLineDash([4, 3]);
  ink.round(rect, radius, context.lineWidth / 2);
  context.stroke();
  if (isDoubled(block)) {
    context.lineWidth = 1.3;
    ink.round(rect, radius, 3.6);
    context.stroke();
  }
  context.restore();
}

// In the tables of two groups: a fault.
export function isDoubled(block: Block) {
  return block.groups.length > 1;
}

// A slot that was passed over holds nothing, though a later one does. A state is complete after any number of tokens.
export function numWritten(block: Block) {
  if (block.keepsStates) return block.state === null ? 0 : block.size;
  const holes = block.tokens ? block.tokens.filter((token) => token === null).length : 0;
  return block.fill - holes;
}
