// A block's cell in the pool: common data of its painters, its background, and rings around it.

import { hueOf, LOST_HUE, roundOf } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import type { Block } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import { sprite } from "../canvas.ts";
import type { Rect } from "../view.ts";

// A card of this width has room for its slots, and for everything in its first line.
export const ROOMY = 100;

// A cell; gap: pixels between it and its neighbours.
export interface CellRect extends Rect {
  gap: number;
}

export interface CardLook {
  theme: Theme;
  text: (token: number, slot: number) => string;
  isFolded: boolean; // all of it is a chat template
  groups: Group[];
  headWord: string; // at the free queue's head; empty elsewhere
  isNull: boolean;
  isUnlike: boolean; // differs from the other side's
}

// Draws a block into a cell; null: there is nothing to draw in it.
export interface CellPainter {
  (context: CanvasRenderingContext2D, rect: Rect, id: number, block: Block | null, look: CardLook): void;
  hasMark?: boolean; // it marks a block that differs by itself
}

export function roundRect(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, radius: number, inset = 0) {
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

const PIN = 6;

// A triangle at the middle of the upper edge, where a cell is large enough for words.
export function pin(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, color: string) {
  if (Math.min(w, h) < 5 * PIN) return;
  const middle = x + w / 2;
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(middle - PIN, y - 1);
  context.lineTo(middle + PIN, y - 1);
  context.lineTo(middle, y + PIN);
  context.fill();
}

// Fill and border: alike for many blocks, so drawn once and copied.
export function drawGround(
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
  const flags = [block.refCount && "live", block.isLost && "lost", isDoubled(block) && "doubled"];
  return [
    fill,
    block.promised && `${block.promised} promised of ${block.size}`,
    block.garbage && `garbage ${block.garbage} of ${block.size}`,
    ...flags,
  ]
    .filter(Boolean)
    .join(" ");
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
  } else if (block && numWritten(block)) {
    context.globalAlpha = theme.isDark ? 0.26 : 0.15;
    context.fillStyle = theme.ink;
    context.fillRect(rect.x, rect.y, (rect.w * numWritten(block)) / block.size, rect.h); // as full as it is
  }
  if (block?.promised) promise(context, rect, block, theme);
  if (block?.garbage) {
    const [start, end] = block.garbage,
      slot = rect.w / block.size;
    hatchGarbage(context, { ...rect, x: rect.x + start * slot, w: (end - start) * slot }, theme);
  }
  if (block?.isLost) {
    context.globalAlpha = 0.75;
    stripes(context, rect, LOST_HUE, 9, 2.5);
  }
  context.restore();
}

// A look-up finds the block, and nothing has been written into these slots: paper, and a thin hatch the other way.
function promise(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, block: Block, theme: Theme) {
  const wide = (w * block.promised) / block.size,
    left = x + w - wide;
  context.globalAlpha = 0.55;
  context.fillStyle = theme.paper;
  context.fillRect(left, y, wide, h);
  context.globalAlpha = 0.8;
  context.save();
  context.translate(2 * left + wide, 0);
  context.scale(-1, 1);
  stripes(context, { x: left, y, w: wide, h }, theme.soft, 7, 1);
  context.restore();
}

// KV of rejected guesses: the hatch that the block tables have for it.
export function hatchGarbage(context: CanvasRenderingContext2D, rect: Rect, theme: Theme) {
  context.globalAlpha = 0.8;
  stripes(context, rect, theme.line, 5, 1.5);
  context.globalAlpha = 1;
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

// In the tables of two groups: a fault.
export function isDoubled(block: Block) {
  return block.groups.length > 1;
}

// A slot that was passed over holds nothing, though one behind it does. A state is complete after any number of tokens.
export function numWritten(block: Block) {
  if (block.keepsStates) return block.state === null ? 0 : block.size;
  const holes = block.tokens ? block.tokens.filter((token) => token === null).length : 0;
  return block.fill - holes;
}
