// A block as a card, with room for everything: id, ref count and pips, tokens, owners, letter.

import { roundOf } from "../../look/palette.ts";
import { groupLetter, groupName, joined, stateWords } from "../../model/names.ts";
import type { Block } from "../../model/scene.ts";
import { wordsOf } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import type { Ink } from "../canvas.ts";
import { drawBadge } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { CardLook } from "./cell.ts";
import { drawGround, hatchGarbage, isDoubled, ROOMY } from "./cell.ts";
import { contentWidth, drawCutLink, drawLetter, drawUnlike, fillText, sign } from "./signs.ts";

// Enough room for everything: id, ref count and pips, tokens, owners, letter.
export function drawCard(ink: Ink, rect: Rect, id: number, block: Block | null, look: CardLook) {
  const { soft } = ink.theme,
    { x, y, w } = rect;
  drawGround(ink, rect, block && showsSlots(rect, block) ? { ...block, garbage: null } : block, 6);
  if (block && isStriped(block)) veil(ink, { x: x + 3, y: y + 3, w: w - 6, h: 15 });
  ink.text(`#${id}`, x + 7, y + 14, { weight: 600, color: block && !block.isKept ? undefined : soft });
  const besideId = look.isUnlike ? drawUnlike(ink, rect, id, block) : 0;
  if (!block) return drawHeadWord(ink, rect, id, look.isNull ? "null" : look.headWord);
  drawRefCount(ink, rect, id, block, besideId);
  drawTokens(ink, rect, block, look);
  drawOwners(ink, rect, block, look.groups);
  if (block.content >= 0) drawLetter(ink, rect, block);
  else ink.text(fillText(ink, block, w), x + w - 7, y + rect.h - 7, { color: soft, align: "right" });
  const isRoomy = block.owners.length < 2 && look.groups.length <= 1;
  if (block.promised && w >= 118 && isRoomy) sign(ink, "not written", x + w / 2, y + rect.h - 8);
  if (!block.isLost) return;
  drawCutLink(ink, x + w / 2 + (w < ROOMY ? 6 : 0), y + 12, w < 72 ? 0.55 : w < ROOMY ? 0.75 : 1);
  const room = look.isUnlike ? 110 : 94; // beside one owner, the letter and its mark
  if (w >= room && rect.h < 64 && isRoomy) sign(ink, "lost", x + w / 2 - 8, y + rect.h - 8);
}

drawCard.hasMark = true;

// A word beside the id, where there is room.
function drawHeadWord(ink: Ink, { x, y, w }: Rect, id: number, word: string) {
  ink.font({ weight: 600 });
  if (word && ink.width(`#${id} ${word}`) + 14 <= w)
    ink.text(word, x + w - 7, y + 14, { color: ink.theme.soft, align: "right" });
}

// besideId: pixels after the id that are taken.
function drawRefCount(ink: Ink, rect: Rect, id: number, { refCount, isLost }: Block, besideId: number) {
  const { context } = ink,
    { x, y, w } = rect;
  if (!refCount) return drawHeadWord(ink, rect, id, "kept");
  ink.text(String(refCount), x + w - 7, y + 14, { weight: 700, size: 13, align: "right" });
  const right = x + w - 11 - ink.width(String(refCount)),
    pips = Math.min(refCount, 4),
    room = right - x - 7 - ink.width(`#${id}`) - besideId,
    numPips = (isLost && w < ROOMY) || room < 7 * pips + 4 ? 0 : pips;
  for (let i = 0; i < numPips; i++) {
    context.beginPath();
    context.arc(right - 4 - i * 7, y + 9.5, 2.5, 0, 7);
    context.fill();
  }
}

// Every slot has its own box.
function showsSlots({ w, h }: Rect, { keepsStates, size }: Block) {
  return !keepsStates && size <= 4 && w >= ROOMY && h >= 78;
}

function drawTokens(ink: Ink, { x, y, w, h }: Rect, block: Block, { text: textOf, isFolded }: CardLook) {
  const { theme } = ink,
    words = block.keepsStates ? [shownState(ink, block, w - 14)] : wordsOf(block, textOf);
  const top = y + 21,
    bottom = y + h - 23,
    color = block.isKept || isFolded ? theme.soft : theme.ink;
  if (bottom - top < 10) return;
  if (showsSlots({ x, y, w, h }, block)) {
    const { size, promised, numGuessed, garbage } = block;
    return drawSlots(ink, { x: x + 6, y: top, w: w - 12, h: bottom - top }, words, {
      size,
      numWritten: words.length - promised,
      numGuessed,
      garbage,
      style: { family: theme.code, color },
    });
  }
  const lines = Math.max(1, Math.floor((bottom - top) / 13)),
    style = { family: block.keepsStates ? theme.ui : theme.code, color };
  ink.font(style);
  if (isStriped(block)) veil(ink, { x: x + 4, y: top - 1, w: w - 8, h: lines * 13 + 2 });
  let remaining = joined(words).trimStart() + (!block.keepsStates && words.length < block.fill ? "…" : "");
  for (let line = 0; line < lines && remaining; line++) {
    const [head, tail] = ink.broken(remaining, w - 14, line === lines - 1);
    ink.text(head, x + 7, top + 10 + line * 13, style);
    remaining = tail;
  }
}

// After how many tokens a state is, in as many words as there is room for.
function shownState(ink: Ink, { state }: Block, room: number) {
  if (state === null) return "";
  ink.font();
  const words = stateWords(state);
  return ink.width(words) <= room ? words : words.replace("state ", "");
}

function isStriped({ isLost, content }: Block) {
  return isLost || roundOf(content) > 0;
}

// Words on a hatch want a quiet ground.
function veil(ink: Ink, rect: Rect) {
  const { context, theme } = ink;
  context.save();
  context.globalAlpha = 0.6;
  context.fillStyle = theme.paper;
  ink.round(rect, 3);
  context.fill();
  context.restore();
}

// The slots of a block: numWritten of them hold something, the last numGuessed words are guesses, and garbage has those
// of rejected ones.
interface CardSlots {
  size: number;
  numWritten: number;
  numGuessed?: number;
  garbage?: Block["garbage"];
  style: { size?: number; family?: string; color: string };
}

// A block of at most four tokens shows its slots, in two rows, empty ones too.
export function drawSlots(ink: Ink, { x, y, w, h }: Rect, words: string[], slots: CardSlots) {
  const { size, numWritten, numGuessed = 0, garbage = null, style } = slots,
    columns = Math.ceil(size / 2),
    slotWidth = w / columns,
    slotHeight = h / Math.ceil(size / columns),
    { context, theme } = ink;
  for (let slot = 0; slot < size; slot++) {
    const rect = {
        x: x + (slot % columns) * slotWidth,
        y: y + Math.floor(slot / columns) * slotHeight,
        w: slotWidth,
        h: slotHeight,
      },
      isWritten = slot < numWritten;
    context.save();
    drawSlotBox(ink, rect, isWritten);
    if (garbage && slot >= garbage[0] && slot < garbage[1]) hatchGarbage(ink, rect);
    if (slot < words.length) {
      const isGuess = slot >= words.length - numGuessed,
        weight = isGuess ? "italic" : 400,
        color = isWritten && !isGuess ? style.color : theme.soft;
      ink.font({ ...style, weight });
      const text = ink.cut(words[slot].trim() || "␣", slotWidth - 7);
      ink.text(text, rect.x + rect.w / 2, rect.y + rect.h / 2 + 4.3, { ...style, weight, color, align: "center" });
    }
    context.restore();
  }
}

// What is drawn later stays within it.
function drawSlotBox(ink: Ink, rect: Rect, isWritten: boolean) {
  const { context, theme } = ink;
  ink.round(rect, 3, 1.5);
  context.globalAlpha = isWritten && !theme.isDark ? 0.8 : 0.55;
  context.fillStyle = theme.paper;
  if (isWritten) context.fill();
  context.strokeStyle = theme.line;
  if (!isWritten) context.setLineDash([2, 2]);
  context.stroke();
  context.clip();
  context.globalAlpha = 1;
}

function drawOwners(ink: Ink, { x, y, w, h }: Rect, block: Block, groups: Group[]) {
  if (groups.length > 1 && block.groups.length)
    drawGroups(ink, { x: x + 26 + 19 * (Math.min(block.owners.length, 3) - 1), y: y + h - 8, w }, block, groups);
  const room = w - 16 - contentWidth(ink, block, w),
    count = Math.max(1, Math.min(3, Math.floor(room / 19))),
    more = block.owners.length - count;
  block.owners.slice(0, count).forEach((request, i) => drawBadge(ink, x + 14 + i * 19, y + h - 12, 9, request));
  if (more > 0 && room - 19 * count >= 16) ink.text(`+${more}`, x + 7 + count * 19, y + h - 8);
  const holder = block.node ? "tree" : "held"; // in no table
  if (block.pins && !block.owners.length && ink.width(holder) <= room)
    ink.text(holder, x + 7, y + h - 8, { color: block.isKept ? ink.theme.soft : undefined });
}

// The name of the group whose tables hold the block; two names show a fault. Names that do not fit are letters, and
// then on all cards: "full" beside a card without a name would say that one block has no group.
function drawGroups(ink: Ink, { x, y, w }: Omit<Rect, "h">, block: Block, groups: Group[]) {
  const isTwice = isDoubled(block),
    room = w - 72,
    left = w - 16 - contentWidth(ink, block, w) - 19 * Math.min(block.owners.length, 3),
    held = isTwice ? block.groups : block.groups.slice(0, 1),
    weight = isTwice ? 700 : 400;
  ink.font({ weight });
  const names = held.map((group) => groupName(groups, group)).join("+"),
    longest = isTwice ? [names] : groups.map((_, group) => groupName(groups, group));
  const isRoomy = longest.every((name) => ink.width(name) <= room),
    letters = held.map((group) => groupLetter(groups, group)).join("+");
  const short = isTwice && ink.width(letters) > room ? "!!" : isTwice || left >= 12 ? letters : "";
  ink.text(isRoomy ? names : short, x, y, { weight, color: isTwice ? undefined : ink.theme.soft });
}
