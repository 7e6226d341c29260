// The pool's grid: cells as large as fit, and the level of detail for cells of that size.

import { drawCard } from "./card.ts";
import type { CellPainter } from "./cell.ts";
import { drawTile } from "./tile.ts";

export function painterFor({ cellWidth, cellHeight }: { cellWidth: number; cellHeight: number }): CellPainter | null {
  if (cellWidth >= 62 && cellHeight >= 40) return drawCard;
  return cellWidth >= 15 && cellHeight >= 15 ? drawTile : null;
}

export interface Grid {
  columns: number;
  cellWidth: number;
  cellHeight: number;
  gap: number;
}

const GAP = 5;

export function scaled(grid: Grid, ratio: number): Grid {
  return {
    columns: grid.columns,
    cellWidth: grid.cellWidth * ratio,
    cellHeight: grid.cellHeight * ratio,
    gap: Math.round(grid.gap * ratio),
  };
}

// Of a card, and of a card in plain terms.
const LARGEST = { width: 152, height: 126 },
  LARGEST_PLAIN = { width: Number.POSITIVE_INFINITY, height: 160 }; // they fill the width

export function largestGrid(numBlocks: number, width: number, height: number, isPlain = false): Grid {
  const most = isPlain ? LARGEST_PLAIN : LARGEST;
  let largest = { rating: -1, columns: 1, cellWidth: 1, cellHeight: 1 };
  for (let columns = 1; columns <= Math.min(Math.max(1, numBlocks), Math.max(1, Math.floor(width))); columns++) {
    const rows = Math.ceil(numBlocks / columns),
      cell = {
        cellWidth: Math.min(width / columns, most.width),
        cellHeight: Math.min(height / rows, most.height),
      };
    const rating = ratingOf(cell, numBlocks, columns);
    if (rating > largest.rating) largest = { rating, columns, ...cell };
  }
  const small = Math.min(largest.cellWidth, largest.cellHeight);
  return { ...largest, gap: small >= 54 ? GAP + 3 : small >= 24 ? 4 : small >= 16 ? 2 : small >= 5 ? 1 : 0 };
}

// Large cells; what can be read in them counts for more than rows of 4, 8 or 16, in which an id is found sooner.
function ratingOf(
  { cellWidth, cellHeight }: { cellWidth: number; cellHeight: number },
  numBlocks: number,
  columns: number,
) {
  const painter = painterFor({ cellWidth, cellHeight }),
    legible = painter?.hasMark ? 2 : painter ? 1.5 : 1,
    isRoomy = Math.min(cellWidth, cellHeight) >= 20;
  const even = numBlocks <= 16 ? (cellWidth < 84 ? 1 : 1.2) : !isRoomy || columns % 4 ? 1 : columns % 16 ? 1.15 : 1.25;
  return Math.min(cellWidth, cellHeight * 1.25) * legible * even * (numBlocks % columns || !isRoomy ? 1 : 1.2);
}
