// Draws the rows of the prefix tree: when a node was last used, its bar of tokens, its locks.

import { hueOf } from "../../look/palette.ts";
import { joined } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import type { Ink } from "../canvas.ts";
import { drawBadge } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { TreeRow } from "./tree_rows.ts";

export const HEADER = 20; // pixels of the scales above the rows
const WIDE = 520, // a view of this width has room for words beside the bars
  NARROW = 330,
  NUMBER = 30, // left of a bar, for the node's number
  MOST_RIVETS = 3,
  RIVET = 8,
  BADGE = 20,
  CELL = 9, // a block of this width is drawn apart from its neighbours
  TWIG = 5,
  LETTER = 4; // pixels that a character takes at least

// Where things are: the order of use on the left, the tokens right of it.
export class Scales {
  readonly ages: number; // width of the part that shows the order of use
  readonly left: number;
  readonly room: number; // beside the longest bar, for locks

  constructor(
    readonly width: number,
    readonly numTokens: number,
    readonly blockSize: number,
  ) {
    this.ages = width >= WIDE ? 92 : width >= NARROW ? 48 : 36;
    this.left = this.ages + NUMBER;
    this.room = width >= WIDE ? 104 : width >= NARROW ? 58 : 46;
  }

  get perToken() {
    return Math.max(10, this.width - this.left - this.room) / Math.max(1, this.numTokens);
  }

  x(token: number) {
    return this.left + token * this.perToken;
  }

  barOf({ node: { firstIndex, blocks } }: TreeRow, y: number, height: number): Rect {
    const x = this.x(firstIndex * this.blockSize);
    return {
      x,
      y: y + 2,
      w: Math.max(4, this.x((firstIndex + blocks.length) * this.blockSize) - x - 2),
      h: height - 4,
    };
  }

  // Where the line from a node to its children is.
  railOf({ node: { firstIndex, blocks } }: TreeRow) {
    return Math.round(this.x((firstIndex + blocks.length) * this.blockSize) - TWIG) + 0.5;
  }

  ageX(age: number, numNodes: number) {
    return 8 + (numNodes > 1 ? age / (numNodes - 1) : 1) * (this.ages - 22);
  }
}

// The scales: which side was used last, and a tick every so many tokens.
export function drawHeader(ink: Ink, scales: Scales) {
  const { theme } = ink,
    style = { size: 11, color: theme.soft },
    baseline = HEADER - 7;
  ink.fill(0, 0, scales.width, HEADER, theme.paper);
  if (scales.ages > 80) {
    ink.text("used: first", 2, baseline, style);
    ink.text("last", scales.ages - 6, baseline, { ...style, align: "right" });
  } else ink.text("used →", 2, baseline, style);
  const every = tick(60 / scales.perToken);
  for (let token = 0; token <= scales.numTokens; token += every) {
    const x = Math.round(scales.x(token)) + 0.5;
    ink.lines(theme.line, 1, [x, HEADER - 4, x, HEADER]);
    ink.text(token ? String(token) : "token 0", x, baseline, { ...style, align: token ? "center" : "left" });
  }
}

// A round number of tokens that is not smaller: 1, 2, 5 and their tens.
function tick(least: number) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return ten * ([1, 2, 5].find((digit) => digit * ten >= least) ?? 10);
}

// From the end of a parent's bar down to the last of its children.
export function drawRail(ink: Ink, x: number, from: number, to: number) {
  ink.lines(ink.theme.line, 1, [x, from, x, to]);
}

export function drawTwig(ink: Ink, x: number, middle: number) {
  ink.lines(ink.theme.line, 1, [x, middle, x + TWIG, middle]);
}

export interface RowLook {
  scene: Scene;
  scales: Scales;
  text: (token: number) => string;
  holders: Map<number, number[]>; // by node: the requests whose lock begins there
  isFocused: boolean; // the current event is about it
  isSelected: boolean;
  isPointed: boolean;
  blocks: Set<number>; // of the selection
  numNodes: number;
}

export function drawRow(ink: Ink, row: TreeRow, bar: Rect, look: RowLook) {
  const { theme } = ink,
    middle = bar.y + bar.h / 2;
  ink.font({ size: 11 });
  ink.text(String(row.id), bar.x - 9, middle + 4, { size: 11, color: theme.soft, align: "right" });
  drawAge(ink, row, middle, look);
  drawBar(ink, row, bar, look);
  drawSelected(ink, row, bar, look);
  drawLocks(ink, row, bar.x + bar.w + 6, middle, look);
}

// Its place in the order of use. A node that can be evicted is solid, a protected one hollow.
function drawAge({ context, theme }: Ink, row: TreeRow, y: number, { scales, numNodes }: RowLook) {
  if (row.isGone) return;
  const canGo = row.isLeaf && !row.node.numLocks;
  context.save();
  context.strokeStyle = theme.line;
  context.beginPath();
  context.moveTo(8, y);
  context.lineTo(scales.ages - 14, y);
  context.stroke();
  context.beginPath();
  context.arc(scales.ageX(row.age, numNodes), y, row.isNext ? 5 : 3.5, 0, 7);
  context.fillStyle = canGo ? theme.ink : theme.paper;
  context.strokeStyle = canGo ? theme.ink : theme.soft;
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
  context.restore();
}

function drawBar(ink: Ink, row: TreeRow, bar: Rect, look: RowLook) {
  const { context, theme } = ink,
    { numLocks } = row.node,
    border = row.isGone ? theme.line : numLocks ? theme.ink : theme.soft;
  context.save();
  ink.round(bar, 4);
  context.clip();
  ink.fill(bar.x, bar.y, bar.w, bar.h, theme.faint);
  if (!row.isGone) fillBlocks(ink, row, bar, look);
  drawTokens(ink, row, bar, look);
  context.restore();
  context.save();
  context.strokeStyle = border;
  context.lineWidth = numLocks ? 2 : 1.5;
  if (!numLocks) context.setLineDash([4, 3]);
  ink.round(bar, 4, context.lineWidth / 2);
  context.stroke();
  context.restore();
}

// Hues as in the pool, a little paler without locks. Blocks too narrow to tell apart, and those of one token, are one
// run in the hue of the last one.
function fillBlocks(ink: Ink, { node: { blocks, numLocks } }: TreeRow, bar: Rect, { scene, scales }: RowLook) {
  const { theme } = ink,
    wide = scales.blockSize * scales.perToken,
    alpha = (theme.isDark ? 0.5 : 0.42) * (numLocks ? 1 : 0.5),
    isRun = scales.blockSize === 1 || wide < CELL,
    fill = (block: number, x: number, w: number) => {
      const content = scene.contentOfBlock[block];
      if (content >= 0) ink.fill(x, bar.y, w, bar.h, hueOf(content), alpha);
    };
  if (isRun) return fill(blocks[blocks.length - 1], bar.x, bar.w);
  blocks.forEach((block, i) => fill(block, bar.x + i * wide, i === blocks.length - 1 ? wide : wide - 1));
}

function drawTokens(ink: Ink, { node: { blocks }, isGone }: TreeRow, bar: Rect, { scene, text }: RowLook) {
  const { theme } = ink,
    room = bar.w - 10,
    most = Math.floor(room / LETTER),
    style = { family: theme.code, size: 12, color: isGone ? theme.soft : theme.ink };
  if (most < 5) return;
  const words: string[] = [];
  for (let i = 0, length = 0; i < blocks.length && length < most; i++)
    for (const token of scene.block(blocks[i]).tokens) {
      const word = token === null ? "–" : text(token);
      words.push(word);
      length += word.length;
      if (length >= most) break;
    }
  ink.font(style);
  const line = joined(words).trimStart();
  if (line) ink.text(ink.cut(line.slice(0, most), room), bar.x + 5, bar.y + bar.h / 2 + 4.3, style);
}

function drawSelected(ink: Ink, { node: { blocks } }: TreeRow, bar: Rect, look: RowLook) {
  const { context, theme } = ink,
    { isFocused, isSelected, isPointed, scales } = look,
    outline = (color: string, width: number) => {
      context.strokeStyle = color;
      context.lineWidth = width;
      ink.round(bar, 6, -2);
      context.stroke();
    };
  context.save();
  if (isFocused) outline(theme.accent, 2);
  if (isSelected) outline(theme.accent, 3);
  if (isPointed) outline(isSelected ? theme.paper : theme.soft, 1.5);
  context.restore();
  if (!isSelected && !isPointed) return;
  const wide = bar.w / blocks.length;
  for (const [i, block] of blocks.entries())
    if (look.blocks.has(block) && look.blocks.size < blocks.length)
      ink.fill(
        bar.x + i * wide,
        bar.y + bar.h - 4,
        Math.max(2, scales.blockSize * scales.perToken - 1),
        4,
        theme.accent,
      );
}

// A rivet per lock, then the requests whose lock begins here; or that the next eviction takes the node.
function drawLocks(ink: Ink, row: TreeRow, from: number, middle: number, { holders, scales }: RowLook) {
  const { context, theme } = ink,
    { numLocks } = row.node,
    end = scales.width;
  let x = from;
  if (row.isGone) return ink.text("evicted", x, middle + 4, { size: 11, color: theme.soft });
  if (row.isNext) return drawNext(ink, x, middle);
  const numRivets = numLocks > MOST_RIVETS ? 1 : numLocks;
  context.fillStyle = theme.ink;
  for (let i = 0; i < numRivets; i++, x += RIVET) {
    context.beginPath();
    context.arc(x + 3, middle, 3, 0, 7);
    context.fill();
  }
  if (numRivets < numLocks) {
    ink.text(`×${numLocks}`, x, middle + 4, { size: 11, weight: 700 });
    x += ink.width(`×${numLocks}`) + 2;
  }
  for (const request of holders.get(row.id) ?? []) {
    if (x + BADGE > end) break;
    drawBadge(ink, x + 11, middle, 8, request);
    x += BADGE;
  }
}

function drawNext(ink: Ink, x: number, middle: number) {
  const { context, theme } = ink,
    style = { size: 11, weight: 700, color: theme.paper };
  ink.font(style);
  context.fillStyle = theme.ink;
  ink.round({ x, y: middle - 8, w: ink.width("next") + 10, h: 16 }, 4);
  context.fill();
  ink.text("next", x + 5, middle + 4, style);
}

export function holdersOf({ holds }: { holds: ReadonlyMap<number, number> }) {
  const found = new Map<number, number[]>();
  for (const [request, node] of holds) {
    const known = found.get(node);
    if (known) known.push(request);
    else found.set(node, [request]);
  }
  return found;
}
