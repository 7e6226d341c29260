// A block as a card, with room for everything: id, ref count and pips, tokens, owners, letter.

import { roundOf } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import { groupLetter, groupName, joined, stateWords } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import { wordsOf } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import { breakText, drawText, fit, widthOf } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { CardLook } from "./cell.ts";
import { drawGround, hatchGarbage, isDoubled, ROOMY, roundRect } from "./cell.ts";
import { contentWidth, drawBadge, drawCutLink, drawLetter, drawUnlike, fillText, sign } from "./signs.ts";

// Enough room for everything: id, ref count and pips, tokens, owners, letter.
export function drawCard(
  context: CanvasRenderingContext2D,
  rect: Rect,
  id: number,
  block: Block | null,
  look: CardLook,
) {
  const { theme } = look,
    { x, y, w } = rect;
  drawGround(context, rect, block && showsSlots(rect, block) ? { ...block, garbage: null } : block, look, 6);
  if (block && isStriped(block)) veil(context, { x: x + 3, y: y + 3, w: w - 6, h: 15 }, theme);
  drawText(context, `#${id}`, x + 7, y + 14, `600 12px ${theme.ui}`, block?.refCount ? theme.ink : theme.soft);
  const besideId = look.isUnlike ? drawUnlike(context, rect, id, block, look) : 0;
  const word = look.isNull ? "null" : look.headWord;
  if (!block)
    return hasRoom(context, id, word, w, theme)
      ? drawText(context, word, x + w - 7, y + 14, `12px ${theme.ui}`, theme.soft, "right")
      : undefined;
  drawRefCount(context, rect, id, block, { theme, besideId });
  drawTokens(context, rect, block, look);
  drawOwners(context, rect, block, look);
  if (block.content >= 0) drawLetter(context, rect, block, theme);
  else {
    const text = fillText(context, block, w, theme);
    drawText(context, text, x + w - 7, y + rect.h - 7, `12px ${theme.ui}`, theme.soft, "right");
  }
  if (block.promised && w >= 118 && block.owners.length < 2 && groupsAreOne(look))
    sign(context, "not written", x + w / 2, y + rect.h - 8, theme);
  if (!block.isLost) return;
  drawCutLink(context, x + w / 2 + (w < ROOMY ? 6 : 0), y + 12, w < 72 ? 0.55 : w < ROOMY ? 0.75 : 1, theme);
  const room = look.isUnlike ? 110 : 94; // beside one owner, the letter and its mark
  if (w >= room && rect.h < 64 && block.owners.length < 2 && groupsAreOne(look))
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

// besideId: pixels behind the id that are taken.
function drawRefCount(
  context: CanvasRenderingContext2D,
  { x, y, w }: Rect,
  id: number,
  block: Block,
  { theme, besideId }: { theme: Theme; besideId: number },
) {
  if (!block.refCount)
    return hasRoom(context, id, "kept", w, theme)
      ? drawText(context, "kept", x + w - 7, y + 14, `12px ${theme.ui}`, theme.soft, "right")
      : undefined;
  drawText(context, String(block.refCount), x + w - 7, y + 14, `700 13px ${theme.ui}`, theme.ink, "right");
  const right = x + w - 11 - widthOf(context, String(block.refCount));
  const pips = Math.min(block.refCount, 4),
    room = right - x - 7 - widthOf(context, `#${id}`) - besideId,
    numPips = (block.isLost && w < ROOMY) || room < 7 * pips + 4 ? 0 : pips;
  for (let i = 0; i < numPips; i++) {
    context.beginPath();
    context.arc(right - 4 - i * 7, y + 9.5, 2.5, 0, 7);
    context.fill();
  }
}

// Every slot has a box of its own.
function showsSlots({ w, h }: Rect, { keepsStates, size }: Block) {
  return !keepsStates && size <= 4 && w >= ROOMY && h >= 78;
}

function drawTokens(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  block: Block,
  { theme, text: textOf, isFolded }: CardLook,
) {
  const { size } = block,
    words = block.keepsStates ? [shownState(context, block, w - 14, theme)] : wordsOf(block, textOf);
  const top = y + 21,
    bottom = y + h - 23,
    color = block.refCount && !isFolded ? theme.ink : theme.soft;
  if (bottom - top < 10) return;
  if (showsSlots({ x, y, w, h }, block))
    return drawSlots(context, { x: x + 6, y: top, w: w - 12, h: bottom - top }, words, {
      theme,
      size,
      numWritten: words.length - block.promised,
      numGuessed: block.numGuessed,
      garbage: block.garbage,
      color,
    });
  const lines = Math.max(1, Math.floor((bottom - top) / 13));
  const text = joined(words).trimStart(),
    font = `12px ${block.keepsStates ? theme.ui : theme.code}`;
  context.font = font;
  if (isStriped(block)) veil(context, { x: x + 4, y: top - 1, w: w - 8, h: lines * 13 + 2 }, theme);
  let remaining = text + (!block.keepsStates && words.length < block.fill ? "…" : "");
  for (let line = 0; line < lines && remaining; line++) {
    const [head, tail] = breakText(context, remaining, w - 14, line === lines - 1);
    drawText(context, head, x + 7, top + 10 + line * 13, font, color);
    remaining = tail;
  }
}

// After how many tokens a state is, in as many words as there is room for.
function shownState(context: CanvasRenderingContext2D, { state }: Block, room: number, theme: Theme) {
  if (state === null) return "";
  context.font = `12px ${theme.ui}`;
  const words = stateWords(state);
  return widthOf(context, words) <= room ? words : words.replace("state ", "");
}

function isStriped({ isLost, content }: Block) {
  return isLost || roundOf(content) > 0;
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

// A block of at most four tokens shows its slots, in two rows, empty ones too. numWritten: slots that hold something;
// numGuessed: of the words, the last ones that are guesses; garbage: slots of rejected ones.
export function drawSlots(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  words: string[],
  {
    theme,
    size,
    numWritten,
    numGuessed = 0,
    garbage = null,
    color,
    font = `12px ${theme.code}`,
  }: {
    theme: Theme;
    size: number;
    numWritten: number;
    numGuessed?: number;
    garbage?: Block["garbage"];
    color: string;
    font?: string;
  },
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
    const isWritten = slot < numWritten;
    context.globalAlpha = isWritten ? (theme.isDark ? 0.55 : 0.8) : 0.55;
    context.fillStyle = theme.paper;
    if (isWritten) context.fill();
    context.strokeStyle = theme.line;
    if (!isWritten) context.setLineDash([2, 2]);
    context.stroke();
    context.clip();
    context.globalAlpha = 1;
    if (garbage && slot >= garbage[0] && slot < garbage[1]) hatchGarbage(context, rect, theme);
    if (slot < words.length) {
      const isGuess = slot >= words.length - numGuessed;
      context.font = isGuess ? `italic ${font}` : font;
      const text = fit(context, words[slot].trim() || "␣", slotWidth - 7);
      drawText(
        context,
        text,
        rect.x + rect.w / 2,
        rect.y + rect.h / 2 + 4.3,
        context.font,
        isWritten && !isGuess ? color : theme.soft,
        "center",
      );
    }
    context.restore();
  }
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
  const room = w - 16 - contentWidth(context, block, w, theme),
    count = Math.max(1, Math.min(3, Math.floor(room / 19))),
    more = block.owners.length - count;
  block.owners
    .slice(0, count)
    .forEach((request, i) => drawBadge(context, x + 14 + i * 19, y + h - 12, 9, request, theme));
  if (more > 0 && room - 19 * count >= 16)
    drawText(context, `+${more}`, x + 7 + count * 19, y + h - 8, `12px ${theme.ui}`, theme.ink);
  if (block.pins && !block.owners.length)
    // in use, and in no table
    drawText(context, "held", x + 7, y + h - 8, `12px ${theme.ui}`, theme.ink);
}

// The name of the group whose tables hold the block; two names show a fault. Names that do not fit are letters, and
// then on all cards: "full" beside a card without a name would say that one block has no group.
function drawGroups(
  context: CanvasRenderingContext2D,
  { x, y, w }: Omit<Rect, "h">,
  block: Block,
  theme: Theme,
  groups: Group[],
) {
  const isTwice = isDoubled(block),
    room = w - 72,
    left = w - 16 - contentWidth(context, block, w, theme) - 19 * Math.min(block.owners.length, 3),
    held = isTwice ? block.groups : block.groups.slice(0, 1);
  context.font = `${isTwice ? "700 " : ""}12px ${theme.ui}`;
  const names = held.map((group) => groupName(groups, group)).join("+"),
    longest = isTwice ? [names] : groups.map((_, group) => groupName(groups, group));
  const isRoomy = longest.every((name) => widthOf(context, name) <= room),
    letters = held.map((group) => groupLetter(groups, group)).join("+");
  const short = isTwice && widthOf(context, letters) > room ? "!!" : isTwice || left >= 12 ? letters : "",
    shown = isRoomy ? names : short;
  drawText(context, shown, x, y, context.font, isTwice ? theme.ink : theme.soft);
}
