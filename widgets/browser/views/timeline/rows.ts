// The rows of blocks: a row per block while all fit, else several blocks a row, drawn by how many of them are held.

import { countUpTo } from "../../model/arrays.ts";
import type { Story } from "../../model/story.ts";
import { LIFE } from "../../model/story.ts";
import type { Axis } from "../axis.ts";
import type { Ink } from "../canvas.ts";
import type { Rect } from "../view.ts";

export const IDLE = 16; // the line that counts the blocks without a row
const LEAST_ROW = 4;
const MOST_ROW = 24;

// The rows of blocks: a block a row, or perRow of them.
export interface Rows {
  top: number;
  ids: number[];
  places: Map<number, number>;
  numIdle: number;
  perRow: number;
  numRows: number;
  height: number;
  isBinned: boolean;
}

function range(count: number) {
  return Array.from({ length: count }, (_, i) => i);
}

// A row per block while all of them fit; of a larger pool the blocks that were ever used have the room for themselves.
export function layRows(story: Story, top: number, height: number): Rows {
  const full = Math.max(LEAST_ROW, height),
    hasAll = story.numBlocks * LEAST_ROW <= full;
  const ids = hasAll ? range(story.numBlocks) : Object.keys(story.bands).map(Number),
    numIdle = story.numBlocks - ids.length;
  const room = Math.max(LEAST_ROW, full - (numIdle ? IDLE : 0)),
    perRow = Math.max(1, Math.ceil((ids.length * LEAST_ROW) / room)),
    numRows = Math.max(1, Math.ceil(ids.length / perRow));
  return {
    top,
    ids,
    places: new Map(ids.map((id, place) => [id, place])),
    numIdle,
    perRow,
    numRows,
    height: Math.min(MOST_ROW, room / numRows),
    isBinned: perRow > 1,
  };
}

// Null for a block without a row, because it was never used.
export function yOf(rows: Rows, block: number) {
  const place = rows.places.get(block);
  return place === undefined ? null : rows.top + Math.floor(place / rows.perRow) * rows.height;
}

// The place of a row's first block among those that are drawn.
export function placeAt(rows: Rows, y: number) {
  const row = Math.floor((y - rows.top) / rows.height);
  return row < 0 || row >= rows.numRows || !rows.ids.length ? null : Math.min(rows.ids.length - 1, row * rows.perRow);
}

// Of a row's blocks the first that is held at the moment, else the first.
export function busiest(rows: Rows, story: Story, first: number, moment: number) {
  const row = rows.ids.slice(first, first + rows.perRow);
  return row.find((id) => story.bands[id] && story.lifeAt(id, moment).life !== LIFE.free) ?? row[0];
}

// A row stands for many blocks: the darker, the more of them are held; the striped part is freed and still cached.
export function paintDensity(ink: Ink, story: Story, axis: Axis, { top, places, perRow, numRows, height }: Rows) {
  const columns = Math.ceil(axis.width),
    held = new Int32Array((columns + 1) * numRows),
    cached = held.slice();
  const columnOf = (moment: number) => Math.max(0, Math.min(columns, Math.floor((moment - axis.from) * axis.perEvent)));
  for (const id in story.bands) {
    const band = story.bands[id],
      row = Math.floor((places.get(Number(id)) ?? 0) / perRow) * (columns + 1);
    for (let i = Math.max(0, countUpTo(band.at, axis.from) - 1); i < band.at.length && band.at[i] < axis.to; i++) {
      if (band.life[i] === LIFE.free) continue;
      const sums = band.life[i] === LIFE.cached ? cached : held;
      sums[row + columnOf(band.at[i])] += 1;
      sums[row + columnOf(band.at[i + 1] ?? story.end)] -= 1;
    }
  }
  for (let row = 0; row < numRows; row++) {
    const rect = { x: axis.left, y: top + row * height, w: columns, h: Math.max(1, height - 0.5) },
      [from, to] = [row * (columns + 1), (row + 1) * (columns + 1)];
    paintDensityRow(ink, rect, held.subarray(from, to), cached.subarray(from, to), perRow);
  }
}

// held, cached: by how many more at each pixel than at the one before.
function paintDensityRow(ink: Ink, { x, y, w, h }: Rect, held: Int32Array, cached: Int32Array, perRow: number) {
  let numHeld = 0,
    numCached = 0,
    from = 0,
    shown = 0;
  const flush = (to: number) => {
    if (shown >> 3) ink.fill(x + from, y, to - from, h, ink.theme.ink, 0.15 + (0.7 * (shown >> 3)) / 8);
    if (shown & 7) ink.hatch({ x: x + from, y, w: to - from, h }, ink.theme.soft, 10 - (shown & 7), 1);
    from = to;
  };
  for (let column = 0; column < w; column++) {
    numHeld += held[column];
    numCached += cached[column];
    const now = (Math.ceil((8 * numHeld) / perRow) << 3) | Math.ceil((6 * numCached) / perRow);
    if (now !== shown) {
      flush(column);
      shown = now;
    }
  }
  flush(w);
}
