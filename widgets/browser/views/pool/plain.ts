// A block for a reader who sees blocks for the first time: its number, its words in large type, and who uses it.

import { counted } from "../../model/names.ts";
import { plainWord } from "../../model/plain_words.ts";
import type { Block } from "../../model/scene.ts";
import { wordsOf } from "../../model/scene.ts";
import type { Ink } from "../canvas.ts";
import { drawBadge } from "../canvas.ts";
import type { Rect } from "../view.ts";
import { drawSlots } from "./card.ts";
import type { CardLook } from "./cell.ts";
import { drawGround } from "./cell.ts";

const MAX_BADGES = 4;
const LEAST = 10; // px: the smallest type
const LETTERS = 4.6; // widths of a slot in its type: "evening?" is whole
const ROOMY = 84; // a cell of this height has a line for its users

export function drawPlain(ink: Ink, rect: Rect, id: number, block: Block | null, { text }: CardLook) {
  const { theme } = ink,
    { x, y, w, h } = rect,
    size = Math.max(12, Math.min(18, Math.round(w / 10))),
    isRoomy = h >= ROOMY;
  drawGround(ink, rect, block && { ...block, fill: 0 }, 8);
  const middle = y + 4 + (isRoomy ? size : 0.8 * size);
  ink.text(`#${id}`, x + 9, middle, { weight: 600, size, color: block ? undefined : theme.soft });
  if (!block) return;
  const words = wordsOf(block, (token, slot) => plainWord(text(token, slot), token)),
    slot = (w - 12) / Math.ceil(block.size / 2),
    top = y + size + (isRoomy ? 10 : 7),
    foot = y + h - (isRoomy ? size / 2 + 7 : size / 2);
  drawSlots(ink, { x: x + 6, y: top, w: w - 12, h: (isRoomy ? foot - size : y + h - 5) - top }, words, {
    size: block.size,
    numWritten: words.length - block.promised,
    style: {
      size: Math.min(size - 2, Math.max(LEAST, Math.floor(slot / LETTERS))),
      color: block.refCount ? theme.ink : theme.soft,
    },
  });
  drawUsers(ink, rect, block, size, isRoomy ? foot : middle - 0.35 * size);
}

// On a separate line, or after the number.
function drawUsers(ink: Ink, { x, w, h }: Rect, { owners, refCount }: Block, size: number, line: number) {
  const isRoomy = h >= ROOMY,
    first = isRoomy ? x + 9 + size / 2 : x + 9 + 3 * size;
  owners
    .slice(0, MAX_BADGES)
    .forEach((request, i) => drawBadge(ink, first + i * 1.3 * size, line, 0.62 * size, request));
  const users = refCount ? (isRoomy ? counted(refCount, "user") : "") : isRoomy ? "free, kept" : "kept";
  ink.text(users, x + w - 9, line + 0.35 * size, { weight: 600, size: size - 2, align: "right" });
}
