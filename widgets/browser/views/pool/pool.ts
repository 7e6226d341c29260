// The block pool on a canvas: a cell per block, which keeps its place. Fill is content, border is life, vermilion hatch
// is lost.

import { element } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import type { Violation } from "../../model/alarms.ts";
import { alarmsAt, violationOf } from "../../model/alarms.ts";
import { differing, unlike } from "../../model/differing.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { aboutOf } from "../about.ts";
import type { CsvRow, PaintMoment, Subject, ViewHost } from "../view.ts";
import type { CellPainter, CellRect } from "./cards.ts";
import { drawViolated, painterFor, ring, violatedBox } from "./cards.ts";
import type { Grid } from "./dots.ts";
import { Dots } from "./dots.ts";

export const title = "Block pool";

const GAP = 5;
const FEW = 64;
const COUNT_WIDTH = 38; // of the corner with the ref count
const COUNT_HEIGHT = 20;

export function create(stage: ViewHost, side: Side) {
  return new Pool(stage, side);
}

class Pool {
  stage: ViewHost;
  side: Side;
  numBlocks = -1;
  pointed: Subject | null = null;
  chosen: Subject | null = null;
  outlined = new Set<number>();
  next = -1;
  cursor = 0;
  element: HTMLElement;
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  dots: Dots;
  isSized!: boolean;
  width!: number;
  height!: number;
  ratio!: number;
  theme!: Theme;
  grid?: Grid;
  painter!: CellPainter | null;
  painted!: string | null;
  violated!: Map<number, Violation>;
  focus = new Set<number>();
  different!: Set<number>;
  label!: string;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element = this.canvas = element("canvas", "le-pool");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    this.dots = new Dots(this.context);
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.point({ kind: "block", id: this.cursor }));
    this.canvas.addEventListener("blur", () => this.point(null));
  }

  // In a comparison the reference is the other side, and what is unlike there has a mark of its own.
  get isPair() {
    return this.stage.sides.length > 1;
  }

  destroy() {}

  // -- where things are
  // ------------------------------------------------------------------------------------------------

  // The canvas's size is asked for when it changes, never while painting.
  resize() {
    this.isSized = false;
  }

  // Cells as large as fit, a little wider than high; rows of 4, 8, 16 preferred because ids are easier to find in them.
  layout(numBlocks: number, theme: Theme) {
    if (this.isSized && numBlocks === this.numBlocks && theme === this.theme) return false;
    const { clientWidth: width, clientHeight: height } = this.canvas,
      ratio = window.devicePixelRatio || 1;
    this.numBlocks = numBlocks;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.theme = theme;
    this.isSized = width > 0 && height > 0;
    if (!this.isSized) return true;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.grid = bestGrid(numBlocks, width, height);
    this.painter = painterFor(this.grid);
    if (!this.painter) this.dots.begin(this.canvas.width, this.canvas.height, scaled(this.grid, ratio), theme);
    return true;
  }

  rectOf(id: number): CellRect {
    const { columns, cellWidth, cellHeight, gap } = this.grid as Grid; // laid out before anything is painted or hit
    const column = id % columns,
      row = Math.floor(id / columns);
    const x = Math.round(column * cellWidth),
      y = Math.round(row * cellHeight);
    const isLarge = cellWidth >= 16; // cells that are read are of one size, so that each says as much as the next
    const w = isLarge ? Math.floor(cellWidth) : Math.round((column + 1) * cellWidth) - x,
      h = isLarge ? Math.floor(cellHeight) : Math.round((row + 1) * cellHeight) - y;
    return { x: x + gap / 2, y: y + gap / 2, w: Math.max(1, w - gap), h: Math.max(1, h - gap), gap };
  }

  at(event: MouseEvent): Subject | null {
    if (!this.grid) return null;
    const column = Math.floor(event.offsetX / this.grid.cellWidth),
      id = Math.floor(event.offsetY / this.grid.cellHeight) * this.grid.columns + column;
    if (column >= this.grid.columns || id < 0 || id >= this.numBlocks) return null;
    const broken = this.violated?.get(id);
    if (broken && this.isOnSign(event, id)) return { kind: "event", id: broken.event, about: "event" };
    return this.isOnCount(event, id) ? { kind: "block", id, about: "ref_count" } : { kind: "block", id };
  }

  // The sign of a broken rule asks why it is.
  isOnSign({ offsetX, offsetY }: { offsetX: number; offsetY: number }, id: number) {
    const broken = this.violated?.get(id);
    if (!broken) return false;
    const { x, y, w, h } = violatedBox(this.rectOf(id), broken);
    return Boolean(this.painter) && offsetX >= x && offsetX <= x + w && offsetY >= y && offsetY <= y + h;
  }

  // A click on the number itself asks why it is what it is.
  isOnCount({ offsetX, offsetY }: { offsetX: number; offsetY: number }, id: number) {
    const { x, y, w } = this.rectOf(id);
    return (
      this.painter !== null &&
      w >= COUNT_WIDTH &&
      this.side.scene?.refCounts[id] > 0 &&
      offsetX > x + w - Math.min(COUNT_WIDTH, w / 2) &&
      offsetY < y + COUNT_HEIGHT
    );
  }

  // Where a block's cell is on the page.
  tileOf(id: number) {
    if (!this.grid || !(id >= 0 && id < this.numBlocks)) return null;
    const origin = this.canvas.getBoundingClientRect(),
      { x, y, w, h } = this.rectOf(id);
    return { left: origin.left + x, right: origin.left + x + w, top: origin.top + y, bottom: origin.top + y + h };
  }

  middleOf(anchor: string) {
    if (!this.grid || !anchor.startsWith("pool:")) return null;
    const origin = this.canvas.getBoundingClientRect(),
      rect = this.rectOf(Number(anchor.slice(5)));
    return { x: origin.left + rect.x + rect.w / 2, y: origin.top + rect.y + rect.h / 2 };
  }

  // -- painting
  // --------------------------------------------------------------------------------------------------------

  paint(
    scene: Scene,
    changes: Pick<Changes, "all" | "blocks">,
    { moment, reference = null, focus = [] }: Partial<PaintMoment>,
  ) {
    const { theme } = this.stage,
      isNew = this.layout(scene.numBlocks, theme) || changes.all;
    let isAll = isNew;
    if (!this.isSized || this.isPainted(isNew, changes, moment, reference, focus)) return;
    this.takeViolations();
    const outlined = this.outlinesOf(scene, reference, focus);
    // rings and marks reach beyond their cells
    isAll ||= this.painter !== null && scene.numBlocks <= FEW && outlined.size + this.outlined.size > 0;
    if (isAll) this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const ids = isAll ? null : this.changedIds(scene, changes, outlined);
    this.outlined = outlined;
    if (this.painter) this.paintCells(scene, ids, this.painter);
    else this.paintDots(scene, ids);
    this.say(scene);
  }

  // The lists follow a frame later. To draw words on a canvas is to ask for the page's style, which they have just
  // changed:
  // what is drawn already is not drawn again with them.
  isPainted(
    isNew: boolean,
    changes: Pick<Changes, "blocks">,
    moment: number | undefined,
    reference: Scene | null,
    focus: number[],
  ) {
    const painted =
        moment === undefined || this.isPair ? null : `${moment} ${reference ? reference.moment : ""} ${focus}`,
      isSame = painted !== null && painted === this.painted;
    this.painted = painted;
    return isSame && !isNew && !changes.blocks.size;
  }

  // Cells that look different: changed themselves, outlined before or now, or at the head of the queue.
  changedIds(scene: Scene, changes: Pick<Changes, "blocks">, outlined: Set<number>) {
    const ids = new Set(changes.blocks),
      [next = -1] = scene.queue.first(1);
    for (const id of this.outlined) ids.add(id);
    for (const id of outlined) ids.add(id);
    if (next !== this.next) ids.add(next).add(this.next);
    this.next = next;
    ids.delete(-1);
    return ids;
  }

  // The blocks about which a rule is broken, each with the first violation that names it.
  takeViolations() {
    const { recording, moment } = this.side,
      { violations } = alarmsAt(recording, moment);
    this.violated = new Map();
    for (const id of violations.flatMap(({ blocks }) => blocks)) {
      const first = violationOf(violations, { block: id });
      if (first) this.violated.set(id, first);
    }
  }

  // What wants a ring: where to look, what is pointed at and chosen, what differs from the marked moment.
  outlinesOf(scene: Scene, reference: Scene | null, focus: number[]) {
    this.focus = new Set(focus);
    this.different = !reference
      ? new Set()
      : this.isPair
        ? unlike(scene, reference)
        : differing(scene, reference).blocks;
    return new Set<number>([
      ...this.focus,
      ...this.different,
      ...this.named(this.pointed),
      ...this.named(this.chosen),
      ...this.violated.keys(),
    ]);
  }

  // The blocks that something leads to.
  named(subject: Subject | null) {
    return aboutOf(subject, this.side).block;
  }

  paintCells(scene: Scene, ids: Set<number> | null, painter: CellPainter) {
    const { context, theme } = this,
      { groups } = scene,
      [next = -1] = scene.queue.first(1);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const chosen = this.named(this.chosen),
      pointed = this.named(this.pointed);
    const text = (token: number) => this.side.text(token);
    for (const id of ids ?? range(scene.numBlocks)) {
      const rect = this.rectOf(id),
        block = shown(scene, id);
      if (ids) context.clearRect(rect.x - rect.gap / 2, rect.y - rect.gap / 2, rect.w + rect.gap, rect.h + rect.gap);
      painter(context, rect, id, block, {
        theme,
        text,
        groups,
        isNext: id === next,
        isNull: id === scene.nullBlock,
        isUnlike: this.isPair && this.different.has(id),
      });
      const broken = this.violated.get(id);
      if (broken) drawViolated(context, rect, broken, theme);
      this.paintRings(rect, id, chosen, pointed);
    }
  }

  paintRings(rect: CellRect, id: number, chosen: Set<number>, pointed: Set<number>) {
    const { context, theme } = this;
    if (this.different.has(id) && !(this.isPair && this.painter?.hasMark)) ring(context, rect, theme.accent, 2, [5, 3]);
    if (this.focus.has(id)) ring(context, rect, theme.accent, 2.5);
    if (chosen.has(id)) ring(context, rect, theme.accent, 3.5);
    if (pointed.has(id)) ring(context, rect, theme.ink, 2);
  }

  paintDots(scene: Scene, ids: Set<number> | null) {
    const { context, theme } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    this.dots.paint(scene, ids);
    if (!this.outlined.size) return;
    const chosen = this.named(this.chosen);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const id of this.outlined) {
      const { x, y, w, h } = this.rectOf(id),
        isBroken = this.violated.has(id);
      context.fillStyle = isBroken ? theme.alarm : theme.ink;
      if (isBroken) context.fillRect(x, y, w, h);
      if (chosen.has(id) || this.pointed?.id === id || this.different.has(id)) context.fillRect(x, y, w, h);
    }
  }

  // -- choosing
  // --------------------------------------------------------------------------------------------------------

  mark(selection: Selection | null) {
    this.chosen = selection;
    this.repaintOutlines();
  }

  point(subject: Subject | null) {
    this.pointed = subject;
    this.repaintOutlines();
  }

  repaintOutlines() {
    const { scene, reference } = this.side;
    if (!scene || !this.isSized) return;
    this.paint(scene, { all: false, blocks: new Set() }, { reference, focus: [...(this.focus ?? [])] });
  }

  onKey(event: KeyboardEvent) {
    const { columns } = this.grid ?? { columns: 1 },
      steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns },
      step = steps[event.key];
    if (event.key === "Enter") this.stage.select({ kind: "block", id: this.cursor });
    else if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (this.cursor + step >= 0 && this.cursor + step < this.numBlocks) {
      this.cursor += step;
      this.point({ kind: "block", id: this.cursor });
    }
    event.preventDefault();
  }

  say(scene: Scene) {
    const { used, lost } = scene.score,
      broken = this.violated.size
        ? ` Rules are broken about ${this.violated.size === 1 ? "1 block" : `${this.violated.size} blocks`}.`
        : "";
    const label = `Block pool: ${used} of ${scene.numBlocks} blocks used, ${lost} lost.${broken}`;
    if (label === this.label) return;
    this.label = label;
    this.canvas.setAttribute("aria-label", label);
  }

  csv() {
    const { scene } = this.side,
      rows: CsvRow[] = [["block", "ref_count", "content", "fill", "is_lost", "requests", "tokens"]];
    for (let id = 0; id < scene.numBlocks; id++) {
      const { refCount, content, fill, isLost, owners, tokens } = scene.block(id);
      rows.push([
        id,
        refCount,
        content,
        fill,
        isLost,
        owners.join(" "),
        tokens.map((token) => (token === null ? "" : this.side.text(token))).join("|"),
      ]);
    }
    return rows;
  }
}

// A block that nobody holds and no look-up could want is nothing to draw.
function shown(scene: Scene, id: number) {
  if (!scene.refCounts[id] && !scene.isMapped(id)) return null;
  return scene.block(id);
}

function* range(count: number) {
  for (let id = 0; id < count; id++) yield id;
}

function scaled(grid: Grid, ratio: number): Grid {
  return {
    columns: grid.columns,
    cellWidth: grid.cellWidth * ratio,
    cellHeight: grid.cellHeight * ratio,
    gap: Math.round(grid.gap * ratio),
  };
}

function bestGrid(numBlocks: number, width: number, height: number): Grid {
  let best = { rating: -1, columns: 1, cellWidth: 1, cellHeight: 1 };
  for (let columns = 1; columns <= Math.min(Math.max(1, numBlocks), Math.max(1, Math.floor(width))); columns++) {
    const rows = Math.ceil(numBlocks / columns),
      cell = { cellWidth: Math.min(width / columns, 152), cellHeight: Math.min(height / rows, 126) };
    const rating = ratingOf(cell, numBlocks, columns);
    if (rating > best.rating) best = { rating, columns, ...cell };
  }
  const small = Math.min(best.cellWidth, best.cellHeight);
  return { ...best, gap: small >= 54 ? GAP + 3 : small >= 24 ? 4 : small >= 16 ? 2 : small >= 5 ? 1 : 0 };
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
