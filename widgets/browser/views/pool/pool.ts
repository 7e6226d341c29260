// The block pool on a canvas: a cell per block, which keeps its place. Fill is content, border is life, vermilion hatch
// is lost.

import { element, takeKey } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import type { Misnamed } from "../../model/alarms.ts";
import { blockText } from "../../model/blocks.ts";
import { templateWord } from "../../model/chat_template.ts";
import { counted } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Block, Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { Ink } from "../canvas.ts";
import type { CsvRow, PaintMoment, Point, Subject, ViewHost } from "../view.ts";
import { drawCard } from "./card.ts";
import type { CellPainter, CellRect } from "./cell.ts";
import { Dots } from "./dots.ts";
import type { Grid } from "./grid.ts";
import { largestGrid, painterFor, scaled } from "./grid.ts";
import { Outlines } from "./outlines.ts";
import { drawPlain } from "./plain.ts";
import { drawViolated, violatedBox } from "./signs.ts";

export const title = "Block pool";

const FEW = 64;
const COUNT_WIDTH = 38; // of the corner with the ref count
const COUNT_HEIGHT = 20;

export function create(stage: ViewHost, side: Side) {
  return new Pool(stage, side);
}

class Pool {
  numBlocks = -1;
  outlines: Outlines;
  next = -1;
  cursor = 0;
  isTold = false; // a sentence is told: all but what it is about is dimmed
  element: HTMLElement;
  canvas: HTMLCanvasElement;
  context: CanvasRenderingContext2D;
  dots: Dots;
  isSized!: boolean;
  width!: number;
  height!: number;
  ratio!: number;
  theme!: Theme;
  zoom = 1; // of the canvas: a presentation enlarges it
  grid?: Grid;
  painter!: CellPainter | null;
  painted!: string | null;
  label!: string;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    this.element = this.canvas = element("canvas", "le-pool");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    this.dots = new Dots(this.context);
    this.outlines = new Outlines(stage, side);
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.point({ kind: "block", id: this.cursor }));
    this.canvas.addEventListener("blur", () => this.point(null));
  }

  destroy() {}

  // -- layout

  // The canvas's size is asked for when it changes, never while painting.
  resize() {
    this.isSized = false;
  }

  // Cells as large as fit, a little wider than high; rows of 4, 8, 16 preferred because ids are easier to find in them.
  layout(numBlocks: number, theme: Theme) {
    if (this.isSized && numBlocks === this.numBlocks && theme === this.theme) return false;
    const { clientWidth: width, clientHeight: height } = this.canvas,
      zoom = this.canvas.currentCSSZoom ?? 1,
      ratio = (window.devicePixelRatio || 1) * zoom;
    this.zoom = zoom;
    this.numBlocks = numBlocks;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.theme = theme;
    this.isSized = width > 0 && height > 0;
    if (!this.isSized) return true;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const { isPlain } = this.stage;
    this.grid = largestGrid(numBlocks, width, height, isPlain);
    this.painter = painterFor(this.grid);
    if (isPlain && this.painter === drawCard) this.painter = drawPlain; // many blocks are too small for words
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

  // What an event is at; its offsets are in pixels of the page.
  at(event: MouseEvent): Subject | null {
    if (!this.grid) return null;
    const point = { x: event.offsetX / this.zoom, y: event.offsetY / this.zoom },
      column = Math.floor(point.x / this.grid.cellWidth),
      id = Math.floor(point.y / this.grid.cellHeight) * this.grid.columns + column;
    if (column >= this.grid.columns || id < 0 || id >= this.numBlocks) return null;
    const broken = this.outlines.violated.get(id);
    if (broken && this.isOnSign(point, id)) return { kind: "event", id: broken.event, about: "event" };
    return this.isOnCount(point, id) ? { kind: "block", id, about: "ref_count" } : { kind: "block", id };
  }

  // The sign of a broken rule asks why it is.
  isOnSign(point: Point, id: number) {
    const broken = this.outlines.violated.get(id);
    if (!broken) return false;
    const { x, y, w, h } = violatedBox(this.rectOf(id), broken);
    return Boolean(this.painter) && point.x >= x && point.x <= x + w && point.y >= y && point.y <= y + h;
  }

  // A click on the number itself asks why it is what it is.
  isOnCount(point: Point, id: number) {
    const { x, y, w } = this.rectOf(id);
    return (
      this.painter !== null &&
      w >= COUNT_WIDTH &&
      this.side.scene?.refCounts[id] > 0 &&
      point.x > x + w - Math.min(COUNT_WIDTH, w / 2) &&
      point.y < y + COUNT_HEIGHT
    );
  }

  // Where a block's cell is on the page.
  tileOf(id: number) {
    if (!this.grid || !(id >= 0 && id < this.numBlocks)) return null;
    return this.onPage(this.rectOf(id));
  }

  middleOf(anchor: string) {
    if (!this.grid || !anchor.startsWith("pool:")) return null;
    const { left, right, top, bottom } = this.onPage(this.rectOf(Number(anchor.slice(5))));
    return { x: (left + right) / 2, y: (top + bottom) / 2 };
  }

  // A rectangle of the canvas in pixels of the page.
  onPage({ x, y, w, h }: CellRect) {
    const origin = this.canvas.getBoundingClientRect(),
      { zoom } = this,
      left = origin.left + x * zoom,
      top = origin.top + y * zoom;
    return { left, right: left + w * zoom, top, bottom: top + h * zoom };
  }

  // -- painting

  paint(
    scene: Scene,
    changes: Pick<Changes, "all" | "blocks">,
    { moment, reference = null, focus = [], isPlaying = false }: Partial<PaintMoment>,
  ) {
    const { theme } = this.stage,
      isTold = isPlaying && focus.length > 0,
      isNew = this.layout(scene.numBlocks, theme) || changes.all || isTold || this.isTold;
    let isAll = isNew;
    this.isTold = isTold;
    if (!this.isSized || this.isPainted(isNew, changes, moment, reference, focus)) return;
    const { outlines } = this,
      before = outlines.ids,
      outlined = outlines.find(scene, reference, focus);
    // rings and marks reach beyond their cells
    isAll ||= this.painter !== null && scene.numBlocks <= FEW && outlined.size + before.size > 0;
    if (isAll) this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const ids = isAll ? null : this.changedIds(changes, before, outlined);
    if (this.painter) this.paintCells(scene, ids, this.painter);
    else this.paintDots(scene, ids);
    this.say(scene);
  }

  // The lists follow a frame later. Drawing words on a canvas reads the page's style, which they have just
  // changed, so words that are drawn already are not drawn again with them.
  isPainted(
    isNew: boolean,
    changes: Pick<Changes, "blocks">,
    moment: number | undefined,
    reference: Scene | null,
    focus: number[],
  ) {
    const painted =
        moment === undefined || this.stage.isPair ? null : `${moment} ${reference ? reference.moment : ""} ${focus}`,
      isSame = painted !== null && painted === this.painted;
    this.painted = painted;
    return isSame && !isNew && !changes.blocks.size;
  }

  // Cells that look different: changed themselves, outlined before or now, or at the head of the queue.
  changedIds(changes: Pick<Changes, "blocks">, before: Set<number>, outlined: Set<number>) {
    const ids = new Set(changes.blocks),
      next = this.side.headBlock ?? -1;
    for (const id of before) ids.add(id);
    for (const id of outlined) ids.add(id);
    if (next !== this.next) ids.add(next).add(this.next);
    this.next = next;
    ids.delete(-1);
    return ids;
  }

  paintCells(scene: Scene, ids: Set<number> | null, painter: CellPainter) {
    const { context } = this,
      ink = new Ink(context, this.theme),
      { groups } = scene,
      head = this.side.headBlock ?? -1;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const selected = this.outlines.named(this.outlines.selected),
      pointed = this.outlines.named(this.outlines.pointed);
    for (const id of ids ?? range(scene.numBlocks)) {
      const rect = this.rectOf(id),
        block = this.blockOf(scene, id);
      if (ids) context.clearRect(rect.x - rect.gap / 2, rect.y - rect.gap / 2, rect.w + rect.gap, rect.h + rect.gap);
      painter(ink, rect, id, block, {
        ...this.textOf(scene, id, block),
        groups,
        headWord: id === head ? this.side.headWord : "",
        isNull: id === scene.nullBlock,
        isUnlike: this.stage.isPair && this.outlines.different.has(id),
      });
      if (this.isTold && !this.outlines.focus.has(id)) dim(ink, rect);
      const broken = this.outlines.violated.get(id);
      if (broken) drawViolated(ink, rect, broken);
      this.outlines.paintRings(ink, rect, id, { hasMark: painter.hasMark ?? false, selected, pointed });
    }
  }

  // A block's texts, of which a chat template is folded.
  textOf(scene: Scene, id: number, block: Block | null) {
    const textOf = (token: number) => this.side.text(token),
      text = block && blockText(scene, id);
    if (!text) return { text: textOf, isFolded: false };
    const { size } = block,
      folded = (slot: number) => templateWord(text.store, text.start + slot, size, textOf);
    return {
      text: (token: number, slot: number) => folded(slot) ?? textOf(token),
      isFolded: Boolean(folded(0)) && folded(block.fill - 1) === "",
    };
  }

  blockOf(scene: Scene, id: number) {
    const block = shown(scene, id);
    if (block) block.actual = actualContent(scene, block, this.outlines.misnamed.get(id));
    return block;
  }

  paintDots(scene: Scene, ids: Set<number> | null) {
    const { context, theme } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    this.dots.paint(scene, ids);
    const { ids: outlined, violated, different, pointed } = this.outlines;
    if (!outlined.size) return;
    const selected = this.outlines.named(this.outlines.selected);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const id of outlined) {
      const { x, y, w, h } = this.rectOf(id),
        isBroken = violated.has(id);
      context.fillStyle = isBroken ? theme.alarm : theme.ink;
      if (isBroken) context.fillRect(x, y, w, h);
      if (selected.has(id) || pointed?.id === id || different.has(id)) context.fillRect(x, y, w, h);
    }
  }

  // -- selecting

  mark(selection: Selection | null) {
    this.outlines.selected = selection;
    this.repaintOutlines();
  }

  point(subject: Subject | null) {
    this.outlines.pointed = subject;
    this.repaintOutlines();
  }

  repaintOutlines() {
    const { scene, reference } = this.side;
    if (!scene || !this.isSized) return;
    this.paint(
      scene,
      { all: false, blocks: new Set() },
      { reference, focus: [...this.outlines.focus], isPlaying: this.isTold },
    );
  }

  onKey(event: KeyboardEvent) {
    const { columns } = this.grid ?? { columns: 1 },
      go = (step: number) => () => {
        if (this.cursor + step >= 0 && this.cursor + step < this.numBlocks) this.cursor += step;
        this.point({ kind: "block", id: this.cursor });
      };
    takeKey(event, {
      Enter: () => this.stage.select({ kind: "block", id: this.cursor }),
      ArrowLeft: go(-1),
      ArrowRight: go(1),
      ArrowUp: go(-columns),
      ArrowDown: go(columns),
    });
  }

  say(scene: Scene) {
    const { used, lost } = scene.score,
      numBroken = this.outlines.violated.size,
      broken = numBroken ? ` Rules are broken for ${counted(numBroken, "block")}.` : "";
    const label = `Block pool: ${used} of ${scene.numBlocks} blocks used, ${lost} lost.${broken}`;
    if (label === this.label) return;
    this.label = label;
    this.canvas.setAttribute("aria-label", label);
  }

  csv() {
    const { scene } = this.side,
      rows: CsvRow[] = [["block", "ref_count", "content", "kv_of", "fill", "is_lost", "requests", "tokens"]];
    for (let id = 0; id < scene.numBlocks; id++) {
      const block = scene.block(id),
        { refCount, content, fill, isLost, owners, tokens } = block;
      rows.push([
        id,
        refCount,
        content,
        actualContent(scene, block, this.outlines.misnamed.get(id)) ?? content,
        fill,
        isLost,
        owners.join(" "),
        tokens.map((token) => (token === null ? "" : this.side.text(token))).join("|"),
      ]);
    }
    return rows;
  }
}

// The content of its KV, if it is known not to be the one of its letter; -1: not even that is known.
function actualContent(scene: Scene, block: Block, misnamed: Misnamed | undefined) {
  if (!misnamed || scene.contentOf(misnamed.claimed) !== block.content) return undefined;
  return misnamed.held === null ? -1 : scene.contentOf(misnamed.held);
}

function dim(ink: Ink, { x, y, w, h }: CellRect) {
  ink.fill(x - 1, y - 1, w + 2, h + 2, ink.theme.paper, 0.5);
}

// A free block without findable content is not drawn.
function shown(scene: Scene, id: number) {
  if (!scene.refCounts[id] && !scene.isMapped(id)) return null;
  return scene.block(id);
}

function* range(count: number) {
  for (let id = 0; id < count; id++) yield id;
}
