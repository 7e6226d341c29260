// A block for somebody who sees blocks for the first time: its number, its words in large type, and who uses it.

import type { Theme } from "../../look/theme.ts";
import { counted } from "../../model/names.ts";
import { plainWord } from "../../model/plain_words.ts";
import type { Block } from "../../model/scene.ts";
import { wordsOf } from "../../model/scene.ts";
import { drawText } from "../canvas.ts";
import type { Rect } from "../view.ts";
import { drawSlots } from "./card.ts";
import type { CardLook } from "./cell.ts";
import { drawGround } from "./cell.ts";
import { drawBadge } from "./signs.ts";

const MAX_BADGES = 4;
const LEAST = 10; // px: the smallest type
const LETTERS = 4.6; // widths of a slot in its type: "evening?" is whole
const ROOMY = 84; // a cell of this height has a line for its users

export function drawPlain(
  context: CanvasRenderingContext2D,
  rect: Rect,
  id: number,
  block: Block | null,
  look: CardLook,
) {
  const { theme, text } = look,
    { x, y, w, h } = rect,
    size = Math.max(12, Math.min(18, Math.round(w / 10))),
    isRoomy = h >= ROOMY;
  drawGround(context, rect, block && { ...block, fill: 0 }, look, 8);
  const middle = y + 4 + (isRoomy ? size : 0.8 * size);
  drawText(context, `#${id}`, x + 9, middle, `600 ${size}px ${theme.ui}`, block ? theme.ink : theme.soft);
  if (!block) return;
  const words = wordsOf(block, (token, slot) => plainWord(text(token, slot), token)),
    slot = (w - 12) / Math.ceil(block.size / 2),
    top = y + size + (isRoomy ? 10 : 7),
    foot = y + h - (isRoomy ? size / 2 + 7 : size / 2);
  drawSlots(context, { x: x + 6, y: top, w: w - 12, h: (isRoomy ? foot - size : y + h - 5) - top }, words, {
    theme,
    size: block.size,
    numWritten: words.length - block.promised,
    color: block.refCount ? theme.ink : theme.soft,
    font: `${Math.min(size - 2, Math.max(LEAST, Math.floor(slot / LETTERS)))}px ${theme.ui}`,
  });
  drawUsers(context, rect, block, { theme, size, line: isRoomy ? foot : middle - 0.35 * size, isRoomy });
}

// In a line of their own, or behind the number.
function drawUsers(
  context: CanvasRenderingContext2D,
  { x, w }: Rect,
  { owners, refCount }: Block,
  { theme, size, line, isRoomy }: { theme: Theme; size: number; line: number; isRoomy: boolean },
) {
  const first = isRoomy ? x + 9 + size / 2 : x + 9 + 3 * size;
  owners
    .slice(0, MAX_BADGES)
    .forEach((request, i) => drawBadge(context, first + i * 1.3 * size, line, 0.62 * size, request, theme));
  const users = refCount ? (isRoomy ? counted(refCount, "user") : "") : isRoomy ? "free, kept" : "kept";
  drawText(context, users, x + w - 9, line + 0.35 * size, `600 ${size - 2}px ${theme.ui}`, theme.ink, "right");
}
