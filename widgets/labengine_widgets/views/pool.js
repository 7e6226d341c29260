// The block pool on a canvas: a cell per block, which keeps its place. Fill is content, border is life, vermilion hatch is lost.
import { painterFor, ring } from "./cards.js";
import { blockSize } from "./state.js";

const GAP = 5;

export class Pool {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.numBlocks = -1;
    this.hovered = null;
  }

  // Cells as large as fit, a little wider than high; rows of 4, 8, 16 preferred because ids are easier to find in them.
  layout(numBlocks) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    if (numBlocks === this.numBlocks && width === this.width && height === this.height && ratio === this.ratio) return false;
    Object.assign(this, { numBlocks, width, height, ratio });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.grid = bestGrid(numBlocks, width, height);
    return true;
  }

  rectOf(id) {
    const { columns, cellWidth, cellHeight, gap } = this.grid;
    const column = id % columns, row = Math.floor(id / columns);
    const x = Math.round(column * cellWidth), y = Math.round(row * cellHeight);
    const w = Math.round((column + 1) * cellWidth) - x, h = Math.round((row + 1) * cellHeight) - y;
    return { x: x + gap / 2, y: y + gap / 2, w: Math.max(1, w - gap), h: Math.max(1, h - gap) };
  }

  blockAt(x, y) {
    if (!this.grid) return null;
    const column = Math.floor(x / this.grid.cellWidth), id = Math.floor(y / this.grid.cellHeight) * this.grid.columns + column;
    return column < this.grid.columns && id >= 0 && id < this.numBlocks ? id : null;
  }

  // changed: the ids to draw again, or null for all.
  draw(state, changed, theme) {
    if (!this.canvas.clientWidth) return;
    if (this.layout(state.numBlocks) || state.numBlocks <= 1024) changed = null;
    const context = this.context;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (changed === null) context.clearRect(0, 0, this.width, this.height);
    const ids = changed === null ? Array.from({ length: state.numBlocks }, (_, id) => id) : changed;
    const paint = painterFor(this.grid);
    const next = state.queue.ids[0], focus = new Set(state.focus);
    for (const id of ids) {
      const rect = this.rectOf(id);
      if (changed !== null) context.clearRect(rect.x - 1, rect.y - 1, rect.w + 2, rect.h + 2);
      const block = state.blocks[id], size = blockSize(state, block?.groups[0]);
      paint(context, rect, id, block, { theme, size, state, isNext: id === next, isNull: id === state.nullBlock });
      if (focus.has(id)) ring(context, rect, theme.accent, 2.5);
      if (id === this.hovered) ring(context, rect, theme.ink, 2);
    }
  }
}

function bestGrid(numBlocks, width, height) {
  let best = null;
  for (let columns = 1; columns <= Math.min(Math.max(1, numBlocks), Math.max(1, Math.floor(width))); columns++) {
    const rows = Math.ceil(numBlocks / columns);
    const cellWidth = Math.min(width / columns, 152), cellHeight = Math.min(height / rows, 126);
    const rating = Math.min(cellWidth, cellHeight * 1.25) * (columns % 16 ? (columns % 4 ? 1 : 1.15) : 1.25);
    if (!best || rating > best.rating) best = { rating, columns, cellWidth, cellHeight };
  }
  const small = Math.min(best.cellWidth, best.cellHeight);
  return { ...best, gap: small >= 54 ? GAP + 3 : small >= 16 ? 4 : small >= 5 ? 1 : 0 };
}
