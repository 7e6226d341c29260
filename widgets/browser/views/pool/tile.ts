// A block as a tile: a small cell with the letter of its content or of its owner.

import { LOST_HUE } from "../../look/palette.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import type { Ink } from "../canvas.ts";
import type { Rect } from "../view.ts";
import { drawGround } from "./cell.ts";
import { strike } from "./signs.ts";

const SQUEEZE = 0.7; // of its width, and a number or a letter can still be read
const TALL = 30; // pixels: the id stands above the letter

// A small cell: the letter of its content, or its owner's; the id where there is room for it, too.
export function drawTile(ink: Ink, rect: Rect, id: number, block: Block | null) {
  const { x, y, w, h } = rect,
    isTall = h >= TALL,
    name = nameOf(block);
  drawGround(ink, rect, block, 3);
  ink.font();
  const count = block && block.refCount > 1 ? `×${block.refCount}` : "",
    room = isTall ? w - 5 : w - 1,
    hasId = (isTall || !name) && SQUEEZE * ink.width(String(id)) <= room,
    color = block ? undefined : ink.theme.soft;
  if (hasId && isTall) ink.text(String(id), x + Math.min(4, room / 8), y + 13, { color, room });
  else if (hasId) ink.text(String(id), x + w / 2, y + h / 2 + 4.3, { color, room, align: "center" });
  if (!block) return;
  drawTileName(ink, rect, name, count !== "" && !isTall && drawBeside(ink, rect, name, count));
  if (block.actual !== undefined) strikeTile(ink, rect, name);
  if (isTall && count && hasId && ink.width(`${id}${count}`) <= w - 10)
    ink.text(count, x + w - 3, y + 13, { align: "right" });
  if (block.isLost) cross(ink, rect);
}

// The letter of its content; of a block that is not full yet, its owner's.
function nameOf(block: Block | null) {
  if (!block) return "";
  return block.content >= 0 ? contentName(block.content) : block.owners.length ? requestName(block.owners[0]) : "";
}

// A tile has no room for a second letter: the one that its hash stands for is struck through.
function strikeTile(ink: Ink, { x, y, w, h }: Rect, name: string) {
  const wide = ink.width(name);
  if (h >= TALL) strike(ink, x + w - 4 - wide, y + h - 9, wide);
  else strike(ink, x + (w - wide) / 2, y + h / 2, wide);
}

function drawTileName(ink: Ink, { x, y, w, h }: Rect, name: string, hasCount: boolean) {
  const bold = { weight: 700 };
  ink.font(bold);
  if (!name || SQUEEZE * ink.width(name) > w - 2) return;
  if (h >= TALL) ink.text(name, x + w - 4, y + h - 5, { ...bold, align: "right", room: w - 5 });
  else if (hasCount) ink.text(name, x + 3, y + h / 2 + 4.3, { ...bold, room: w - 2 });
  else ink.text(name, x + w / 2, y + h / 2 + 4.3, { ...bold, align: "center", room: w - 2 });
}

// Draws the number of references beside the letter; returns false where there is no room.
function drawBeside(ink: Ink, { x, y, w, h }: Rect, name: string, count: string) {
  ink.font({ weight: 700 });
  if (ink.width(name + count) > w - 8) return false;
  ink.text(count, x + w - 3, y + h / 2 + 4.3, { align: "right" });
  return true;
}

function cross(ink: Ink, { x, y, w, h }: Rect) {
  const [left, right, top, bottom] = [x + 1, x + w - 1, y + 1, y + h - 1];
  ink.lines(LOST_HUE, Math.max(1, Math.min(w, h) / 8), [left, top, right, bottom], [right, top, left, bottom]);
}
