// A block as a tile: a small cell with the letter of its content or of its owner.

import { LOST_HUE } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import { drawText, widthOf } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { CardLook } from "./cell.ts";
import { drawGround } from "./cell.ts";
import { strike } from "./signs.ts";

const SQUEEZE = 0.7; // of its width, and a number or a letter can still be read

// A small cell: the letter of its content, or its owner's; the id where there is room for it, too.
export function drawTile(
  context: CanvasRenderingContext2D,
  rect: Rect,
  id: number,
  block: Block | null,
  look: CardLook,
) {
  const { theme } = look,
    { x, y, w, h } = rect,
    isTall = h >= 30,
    font = `12px ${theme.ui}`,
    name = nameOf(block);
  drawGround(context, rect, block, look, 3);
  context.font = font;
  const count = block && block.refCount > 1 ? `×${block.refCount}` : "",
    room = isTall ? w - 5 : w - 1,
    hasId = (isTall || !name) && SQUEEZE * widthOf(context, String(id)) <= room;
  if (hasId)
    drawText(
      context,
      String(id),
      isTall ? x + Math.min(4, room / 8) : x + w / 2,
      isTall ? y + 13 : y + h / 2 + 4.3,
      font,
      block ? theme.ink : theme.soft,
      isTall ? "left" : "center",
      room,
    );
  if (!block) return;
  drawTileName(context, rect, name, {
    isTall,
    theme,
    hasCount: count !== "" && !isTall && drawBeside(context, rect, name, count, theme),
  });
  if (block.actual !== undefined) strikeTile(context, rect, name, theme);
  if (isTall && count && hasId && widthOf(context, `${id}${count}`) <= w - 10)
    drawText(context, count, x + w - 3, y + 13, font, theme.ink, "right");
  if (block.isLost) cross(context, rect);
}

// Equal letters are equal contents; of a block that is not full yet, whose it is.
function nameOf(block: Block | null) {
  if (!block) return "";
  return block.content >= 0 ? contentName(block.content) : block.owners.length ? requestName(block.owners[0]) : "";
}

// A tile has no room for a second letter: the one that its hash stands for is struck through.
function strikeTile(context: CanvasRenderingContext2D, { x, y, w, h }: Rect, name: string, theme: Theme) {
  const wide = widthOf(context, name);
  if (h >= 30) strike(context, x + w - 4 - wide, y + h - 9, wide, theme);
  else strike(context, x + (w - wide) / 2, y + h / 2, wide, theme);
}

function drawTileName(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  name: string,
  { isTall, theme, hasCount }: { isTall: boolean; theme: Theme; hasCount: boolean },
) {
  context.font = `700 12px ${theme.ui}`;
  if (!name || SQUEEZE * widthOf(context, name) > w - 2) return;
  if (isTall) drawText(context, name, x + w - 4, y + h - 5, context.font, theme.ink, "right", w - 5);
  else
    drawText(
      context,
      name,
      hasCount ? x + 3 : x + w / 2,
      y + h / 2 + 4.3,
      context.font,
      theme.ink,
      hasCount ? "left" : "center",
      w - 2,
    );
}

// Draws the number of references beside the letter; returns false where there is no room.
function drawBeside(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  name: string,
  count: string,
  theme: Theme,
) {
  context.font = `700 12px ${theme.ui}`;
  if (widthOf(context, name + count) > w - 8) return false;
  drawText(context, count, x + w - 3, y + h / 2 + 4.3, `12px ${theme.ui}`, theme.ink, "right");
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
