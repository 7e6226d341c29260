// From the block tables to the pool: a line from every entry that holds a block, between the tiles and never over them.

import type { Box, View } from "../views/view.ts";
import type { Stage } from "./stage.ts";

const SVG = "http://www.w3.org/2000/svg";
const ASIDE = 6; // pixels left of the tables: the lane in which all lines go up and down
const BELOW = 2; // pixels under an entry, and over a tile
const MAX_LINES = 32;
const RADIUS = 4;

export class Links {
  lines: SVGElement[] = [];

  constructor(
    readonly stage: Stage,
    readonly svg: SVGSVGElement,
  ) {}

  clear() {
    for (const line of this.lines) line.remove();
    this.lines = [];
  }

  // All entries of one side's tables that hold the block.
  show(block: number, side: number) {
    this.clear();
    const origin = this.stage.root.getBoundingClientRect(),
      tile = this.tileOf(block, side, origin),
      tables = this.shownView(side, (view) => view.entriesOf);
    if (!tile || !tables?.entriesOf) return;
    const frame = moved(tables.element.getBoundingClientRect(), origin),
      entries = tables.entriesOf(block).slice(0, MAX_LINES);
    for (const entry of entries)
      this.draw(wayTo(tile, within(moved(entry.getBoundingClientRect(), origin), frame), frame.left - ASIDE));
    if (entries.length) this.drawHead(tile);
  }

  shownView(side: number, isIt: (view: View) => unknown) {
    return (
      this.stage.painting.painted.find((entry) => entry.side === side && entry.isShown() && isIt(entry.view))?.view ??
      null
    );
  }

  tileOf(block: number, side: number, origin: DOMRect) {
    const rect = this.shownView(side, (view) => view.tileOf)?.tileOf?.(block);
    return rect && moved(rect, origin);
  }

  draw(points: [number, number][]) {
    this.add("path", { d: rounded(points), class: "le-link" });
  }

  drawHead({ left, right, top }: Box) {
    const x = (left + right) / 2;
    this.add("path", { d: `M${x} ${top} l-4 -5 h8 z`, class: "le-link-head" });
  }

  add(tag: string, attributes: Record<string, string>) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    this.svg.append(made);
    this.lines.push(made);
  }
}

// Under the entry to the lane, along it to the gap over the tile, and in that gap to its middle.
function wayTo(tile: Box, entry: Box, lane: number): [number, number][] {
  const x = (tile.left + tile.right) / 2,
    above = tile.top - BELOW - RADIUS,
    below = entry.bottom + BELOW;
  return [
    [(entry.left + entry.right) / 2, entry.bottom],
    [(entry.left + entry.right) / 2, below],
    [lane, below],
    [lane, above],
    [x, above],
    [x, tile.top],
  ];
}

// An entry that is scrolled out of sight: its line begins at the edge behind which it lies.
function within(entry: Box, frame: Box) {
  if (entry.bottom > frame.bottom) return { ...entry, bottom: frame.bottom - BELOW };
  return entry.bottom < frame.top ? { ...entry, bottom: frame.top } : entry;
}

function moved({ left, right, top, bottom }: Box, origin: DOMRect) {
  return { left: left - origin.left, right: right - origin.left, top: top - origin.top, bottom: bottom - origin.top };
}

// Straight stretches with round corners.
function rounded(points: [number, number][]) {
  const corners = points.slice(1, -1).map(([x, y], i) => {
    const before = towards([x, y], points[i]),
      after = towards([x, y], points[i + 2]);
    return `L${before} Q${x} ${y} ${after}`;
  });
  return `M${points[0].join(" ")} ${corners.join(" ")} L${points[points.length - 1].join(" ")}`;
}

function towards([x, y]: [number, number], [toX, toY]: [number, number]) {
  const length = Math.hypot(toX - x, toY - y) || 1,
    step = Math.min(RADIUS, length / 2);
  return `${x + ((toX - x) / length) * step} ${y + ((toY - y) / length) * step}`;
}
