// A block for somebody who sees blocks for the first time: its number, its words in large type, and who uses it.

import { counted } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import { wordsOf } from "../../model/scene.ts";
import { drawText } from "../canvas.ts";
import type { Rect } from "../view.ts";
import { drawSlots } from "./card.ts";
import type { CardLook } from "./cell.ts";
import { drawGround } from "./cell.ts";
import { drawBadge } from "./signs.ts";

const MAX_BADGES = 4;

export function drawPlain(
  context: CanvasRenderingContext2D,
  rect: Rect,
  id: number,
  block: Block | null,
  look: CardLook,
) {
  const { theme, text } = look,
    { x, y, w, h } = rect,
    size = Math.max(12, Math.min(18, Math.round(w / 10)));
  drawGround(context, rect, block && { ...block, fill: 0 }, look, 8);
  drawText(context, `#${id}`, x + 9, y + size + 4, `600 ${size}px ${theme.ui}`, block ? theme.ink : theme.soft);
  if (!block) return;
  const words = wordsOf(block, text),
    top = y + size + 10,
    foot = y + h - size / 2 - 7;
  drawSlots(context, { x: x + 6, y: top, w: w - 12, h: foot - size - top }, words, {
    theme,
    size: block.size,
    numWritten: words.length - block.promised,
    color: block.refCount ? theme.ink : theme.soft,
    font: `${size - 2}px ${theme.ui}`,
  });
  block.owners
    .slice(0, MAX_BADGES)
    .forEach((request, i) => drawBadge(context, x + 9 + size / 2 + i * 1.3 * size, foot, 0.62 * size, request, theme));
  const users = block.refCount ? counted(block.refCount, "user") : "free, kept";
  drawText(context, users, x + w - 9, foot + 0.35 * size, `600 ${size - 2}px ${theme.ui}`, theme.ink, "right");
}
