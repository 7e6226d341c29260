// Who held which block, and for how long: a row per block, a band per life. Hue is content, border and hatch are life,
// letters are owners.

import { element, targetOf, write } from "../../look/element.ts";
import { hueOf, LOST_HUE } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import { countUpTo } from "../../model/arrays.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import { storyOf } from "../../model/story.ts";
import { LIFE, LIFE_NAMES, NOBODY, SHARED } from "../../model/story_state.ts";
import { aboutOf } from "../about.ts";
import type { Pattern, TimeBar } from "../time/bar.ts";
import { timeBar } from "../time/bar.ts";
import { Board, drawPen, hatch, label, labelSteps, shownSteps } from "../time/board.ts";
import type { CsvRow, PaintMoment, Rect, Size, ViewHost } from "../view.ts";
import { standAt } from "../view.ts";

export const title = "Bands";

const TOP = 14,
  LEAST_ROW = 4,
  MOST_ROW = 24,
  IDLE = 16,
  REDRAW_MS = 200; // IDLE: the line that counts those without a row

export function create(stage: ViewHost, side: Side) {
  return new Bands(stage, side);
}

// The rows of blocks: a block a row, or perRow of them.
interface Rows {
  ids: number[];
  places: Map<number, number>;
  numIdle: number;
  perRow: number;
  numRows: number;
  height: number;
  isBinned: boolean;
}

// A stretch of a block's life.
interface Life {
  life: number;
  content: number;
  isHashed: boolean;
  owner: number;
  refs: number;
  isSame: boolean;
}

interface DensityRow {
  held: Int32Array;
  cached: Int32Array;
  offset: number;
  columns: number;
  y: number;
  h: number;
  perRow: number;
}

class Bands {
  stage: ViewHost;
  side: Side;
  moment = 0;
  selection: Selection | null = null;
  first = 0;
  element = element("div", "le-bands");
  board: Board;
  bar: TimeBar;
  density = element("span", "le-time-density");
  scene!: Scene;
  news?: string;
  later!: number;
  rows!: Rows;
  drawnAt!: number;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.board = new Board("le-bands-canvas", "Block lifetimes: the moment that is shown, in events", {
      paintAll: (context, size) => this.paintAll(context, size),
      paintOver: (context, size) => this.paintOver(context, size),
      stand: (moment) => standAt(stage, side, moment),
    });
    this.bar = timeBar(stage, side, this.board, () => this.moment, legend());
    this.board.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.bar.element.prepend(this.density);
    this.element.append(this.bar.element, this.board.canvas);
  }

  get story() {
    return storyOf(this.side.recording);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const { recording } = this.side,
      { axis } = this.board,
      news = `${recording.start}:${recording.end}`;
    this.scene = scene;
    this.moment = moment;
    if (axis.fit(recording.start, recording.end, recording.header.is_live !== false) || changes.all)
      this.board.isStale = true;
    if (axis.reach(moment)) this.board.isStale = true;
    if (news !== this.news) this.takeNews();
    this.news = news;
    this.board.paint();
    this.bar.tell(moment);
  }

  // Rows of single blocks are drawn at once; a large pool's, which cost more, a few times a second.
  takeNews() {
    const now = performance.now();
    if (!this.rows?.isBinned || now - this.drawnAt > REDRAW_MS) {
      this.board.isStale = true;
      return;
    }
    this.later ||= setTimeout(() => {
      this.later = 0;
      this.board.refresh();
    }, REDRAW_MS);
  }

  mark(selection: Selection | null) {
    this.selection = selection;
    if (this.scene) this.board.paint();
  }

  resize() {
    if (this.scene) this.board.paint();
  }

  destroy() {
    clearTimeout(this.later);
    this.bar.destroy();
    this.element.remove();
  }

  // -- rows
  // ------------------------------------------------------------------------------------------------------------

  // A row per block while all of them fit; of a larger pool the blocks that were ever used have the room for
  // themselves.
  layRows(story: Story, height: number): Rows {
    const full = Math.max(LEAST_ROW, height - TOP - 2),
      isWhole = story.numBlocks * LEAST_ROW <= full;
    const ids = isWhole ? range(story.numBlocks) : Object.keys(story.bands).map(Number),
      numIdle = story.numBlocks - ids.length;
    const room = full - (numIdle ? IDLE : 0),
      perRow = Math.max(1, Math.ceil((ids.length * LEAST_ROW) / room)),
      numRows = Math.max(1, Math.ceil(ids.length / perRow));
    return {
      ids,
      places: new Map(ids.map((id, place) => [id, place])),
      numIdle,
      perRow,
      numRows,
      height: Math.min(MOST_ROW, room / numRows),
      isBinned: perRow > 1,
    };
  }

  // Null for a block that has no row, because nobody ever used it.
  yOf(block: number) {
    const place = this.rows.places.get(block);
    return place === undefined ? null : TOP + Math.floor(place / this.rows.perRow) * this.rows.height;
  }

  // The place of a row's first block among those that are drawn.
  placeAt(y: number) {
    const row = Math.floor((y - TOP) / this.rows.height);
    return row < 0 || row >= this.rows.numRows || !this.rows.ids.length
      ? null
      : Math.min(this.rows.ids.length - 1, row * this.rows.perRow);
  }

  // -- the quiet part
  // --------------------------------------------------------------------------------------------------

  paintAll(context: CanvasRenderingContext2D, { width, height }: Size) {
    const { story } = this,
      { theme } = this.stage,
      { axis } = this.board;
    this.rows = this.layRows(story, height);
    this.drawnAt = performance.now();
    axis.left = 14 + 7 * String(Math.max(0, story.numBlocks - 1)).length;
    axis.width = Math.max(1, width - axis.left - 6);
    this.explain();
    this.paintSteps(context, story, theme, height);
    this.paintGrid(context, theme, width);
    if (this.rows.isBinned) this.paintDensity(context, story, theme);
    else for (const block of this.rows.ids) if (story.bands[block]) this.paintBand(context, story, block, theme);
    if (this.rows.numIdle)
      label(
        context,
        `${this.rows.numIdle.toLocaleString("en")} of ${story.numBlocks.toLocaleString("en")} blocks were never used`,
        axis.left,
        height - IDLE / 2,
        null,
        `12px ${theme.ui}`,
        theme.soft,
      );
  }

  // A row of many blocks has no content's hue and no border: what its darkness means is said instead of the key.
  explain() {
    const { isBinned, perRow } = this.rows;
    this.bar.element.classList.toggle("le-is-dense", isBinned);
    const binned = `${perRow} blocks a row: the darker, the more of them are in use; stripes: freed, cached`;
    write(this.density, isBinned ? binned : "");
  }

  paintSteps(context: CanvasRenderingContext2D, story: Story, theme: Theme, height: number) {
    const shown = shownSteps(story, this.board.axis);
    context.fillStyle = theme.faint;
    for (const { i, x, right } of shown)
      if (story.steps.number[i] % 2 && right - x > 1) context.fillRect(x, 0, right - x, height);
    labelSteps(context, story, shown, 7, theme);
  }

  paintGrid(context: CanvasRenderingContext2D, theme: Theme, width: number) {
    const { rows } = this,
      every = Math.ceil(13 / rows.height);
    for (let row = 0; row < rows.numRows && rows.ids.length; row += every)
      label(
        context,
        `#${rows.ids[row * rows.perRow]}`,
        this.board.axis.left - 5,
        TOP + (row + 0.5) * rows.height,
        null,
        `12px ${theme.ui}`,
        theme.soft,
        "right",
      );
    context.fillStyle = theme.faint;
    if (rows.height >= 8)
      for (let row = 0; row <= rows.numRows; row++)
        context.fillRect(this.board.axis.left, TOP + row * rows.height - 0.5, width, 1);
  }

  paintBand(context: CanvasRenderingContext2D, story: Story, block: number, theme: Theme) {
    const { axis } = this.board,
      band = story.bands[block],
      { height } = this.rows,
      gap = height > 9 ? 2 : height > 5 ? 1 : 0.5;
    const y = (this.yOf(block) ?? 0) + gap / 2,
      h = height - gap,
      limit = axis.left + axis.width;
    let painted = -Infinity;
    for (let i = Math.max(0, countUpTo(band.at, axis.from) - 1); i < band.at.length && band.at[i] < axis.to; i++) {
      const x = Math.max(axis.left, axis.x(band.at[i])),
        right = Math.min(limit, axis.x(band.at[i + 1] ?? story.end));
      if (right <= painted || band.life[i] === LIFE.free) continue;
      painted = Math.max(right, Math.floor(x) + 1);
      const key = band.key[i] < 0 ? null : story.keys[band.key[i]],
        content = key === null ? -1 : this.scene.contentOf(key);
      const isSame = i > 0 && band.key[i - 1] === band.key[i] && band.life[i - 1] === band.life[i];
      paintLife(
        context,
        { x, y, w: Math.max(0.8, right - x), h },
        { life: band.life[i], content, isHashed: key !== null, owner: band.owner[i], refs: band.refs[i], isSame },
        theme,
      );
    }
  }

  // A row stands for many blocks: the darker, the more of them are held; the striped part is freed and still cached.
  paintDensity(context: CanvasRenderingContext2D, story: Story, theme: Theme) {
    const { axis } = this.board,
      { places, perRow, numRows, height } = this.rows,
      columns = Math.ceil(axis.width);
    const held = new Int32Array((columns + 1) * numRows),
      cached = new Int32Array((columns + 1) * numRows);
    const columnOf = (moment: number) =>
      Math.max(0, Math.min(columns, Math.floor((moment - axis.from) * axis.perEvent)));
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
    for (let row = 0; row < numRows; row++)
      this.paintDensityRow(
        context,
        {
          held,
          cached,
          offset: row * (columns + 1),
          columns,
          y: TOP + row * height,
          h: Math.max(1, height - 0.5),
          perRow,
        },
        theme,
      );
  }

  paintDensityRow(
    context: CanvasRenderingContext2D,
    { held, cached, offset, columns, y, h, perRow }: DensityRow,
    theme: Theme,
  ) {
    const { left } = this.board.axis;
    let numHeld = 0,
      numCached = 0,
      from = 0,
      shown = 0;
    const flush = (to: number) => {
      if (shown >> 3) {
        context.globalAlpha = 0.15 + (0.7 * (shown >> 3)) / 8;
        context.fillStyle = theme.ink;
        context.fillRect(left + from, y, to - from, h);
      }
      context.globalAlpha = 1;
      if (shown & 7) hatch(context, { x: left + from, y, w: to - from, h }, theme.soft, 10 - (shown & 7), 1);
      from = to;
    };
    for (let column = 0; column < columns; column++) {
      numHeld += held[offset + column];
      numCached += cached[offset + column];
      const now = (Math.ceil((8 * numHeld) / perRow) << 3) | Math.ceil((6 * numCached) / perRow);
      if (now !== shown) {
        flush(column);
        shown = now;
      }
    }
    flush(columns);
  }

  // -- the pen and the selection
  // ---------------------------------------------------------------------------------------

  paintOver(context: CanvasRenderingContext2D, { width, height }: Size) {
    const { axis } = this.board,
      { theme } = this.stage,
      { selection } = this;
    if (selection?.kind === "block" && Number(selection.id) < this.story.numBlocks)
      this.ringRow(context, Number(selection.id), width, theme);
    else for (const block of aboutOf(selection, this.side).block) this.tagRow(context, block, theme);
    if (this.moment >= axis.from && this.moment <= axis.to) drawPen(context, axis.x(this.moment), height, theme);
    const { canvas } = this.board;
    canvas.setAttribute("aria-valuenow", String(this.moment));
    canvas.setAttribute("aria-valuemin", String(axis.start));
    canvas.setAttribute("aria-valuemax", String(axis.end));
    canvas.setAttribute(
      "aria-valuetext",
      `${this.bar.words(this.moment)}` +
        `${selection?.kind === "block" ? ` · ${this.lifeWords(Number(selection.id), this.moment)}` : ""}`,
    );
  }

  ringRow(context: CanvasRenderingContext2D, block: number, width: number, theme: Theme) {
    const y = this.yOf(block);
    if (y === null) return;
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.strokeRect(this.board.axis.left - 2, y - 0.5, width - this.board.axis.left, Math.max(4, this.rows.height));
    const text = `#${block}`,
      font = `700 12px ${theme.ui}`;
    context.font = font;
    const w = context.measureText(text).width + 6;
    context.fillStyle = theme.accent;
    context.fillRect(this.board.axis.left - 4 - w, y + this.rows.height / 2 - 7, w, 14);
    label(context, text, this.board.axis.left - 7, y + this.rows.height / 2 + 0.5, null, font, theme.paper, "right");
  }

  tagRow(context: CanvasRenderingContext2D, block: number, theme: Theme) {
    const y = this.yOf(block);
    if (y === null) return;
    context.fillStyle = theme.accent;
    context.fillRect(this.board.axis.left - 3, y, 3, Math.max(2, this.rows.height - 1));
  }

  // -- hands
  // -----------------------------------------------------------------------------------------------------------

  at(event: MouseEvent) {
    if (targetOf(event) !== this.board.canvas || !this.rows) return null;
    const place = this.placeAt(event.offsetY);
    if (place === null) return null;
    const id = this.rows.isBinned ? this.busiest(place, this.board.axis.clicked(event.offsetX)) : this.rows.ids[place];
    return this.board.clicked(event, { kind: "block", id }, this.selection);
  }

  // Of a row's blocks the first that is held at the moment, else the first.
  busiest(first: number, moment: number) {
    const row = this.rows.ids.slice(first, first + this.rows.perRow);
    return row.find((id) => this.story.bands[id] && this.story.lifeAt(id, moment).life !== LIFE.free) ?? row[0];
  }

  onKey(event: KeyboardEvent) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key as "ArrowUp"];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    const before = this.selection?.kind === "block" ? Number(this.selection.id) : by > 0 ? -1 : 0;
    this.stage.select({ kind: "block", id: Math.max(0, Math.min(this.story.numBlocks - 1, before + by)) });
    event.preventDefault();
    event.stopPropagation();
  }

  lifeWords(block: number, moment: number) {
    const { life, key, owner, refs } = this.story.lifeAt(block, moment),
      content = key === null ? -1 : this.scene.contentOf(key);
    const whose = owner === SHARED ? `, ${refs} references` : owner === NOBODY ? "" : `, of ${requestName(owner)}`;
    return (
      `#${block} is ${LIFE_NAMES[life]}${life === LIFE.free ? "" : whose}` +
      `${content >= 0 ? `, content ${contentName(content)}` : ""}`
    );
  }

  csv() {
    const rows: CsvRow[] = [["block", "from_moment", "to_moment", "life", "hash", "owner", "ref_count"]];
    this.story.bands.forEach((band, block) =>
      band.at.forEach((at, i) => {
        const owner = band.owner[i] === SHARED ? "shared" : band.owner[i] === NOBODY ? "" : band.owner[i];
        rows.push([
          block,
          at,
          band.at[i + 1] ?? this.story.end,
          LIFE_NAMES[band.life[i]],
          this.story.keys[band.key[i]] ?? "",
          owner,
          band.refs[i],
        ]);
      }),
    );
    return rows;
  }
}

// A stretch of a block's life. In use: solid. Not full yet: grey stripes. Freed but cached: pale, dashed. Lost:
// vermilion hatch.
function paintLife(
  context: CanvasRenderingContext2D,
  rect: Rect,
  { life, content, isHashed, owner, refs, isSame }: Life,
  theme: Theme,
) {
  const { x, y, w, h } = rect,
    isLive = life !== LIFE.cached;
  context.save();
  if (isHashed) {
    context.globalAlpha = (theme.isDark ? 0.62 : 0.55) * (isLive ? 1 : 0.4);
    context.fillStyle = content >= 0 ? hueOf(content) : theme.soft;
    context.fillRect(x, y, w, h);
  } else {
    context.globalAlpha = 0.35;
    hatch(context, rect, theme.ink, 5, 1.4);
  }
  context.globalAlpha = 1;
  if (life === LIFE.lost) hatch(context, rect, LOST_HUE, 7, 2.5);
  if (h > 4) paintEdges(context, rect, { isLive, life, refs }, theme);
  context.restore();
  if (h > 9) paintWords(context, rect, { content, owner, refs, life, isLive, isSame }, theme);
}

// Shared blocks have a second line below, as on a map a road with more lanes.
function paintEdges(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  { isLive, life, refs }: Pick<Life, "life" | "refs"> & { isLive: boolean },
  theme: Theme,
) {
  context.fillStyle = life === LIFE.lost ? LOST_HUE : isLive ? theme.ink : theme.soft;
  const dash = isLive ? w : 4;
  for (let at = x; at < x + w; at += isLive ? w : 7) {
    const length = Math.min(dash, x + w - at);
    context.fillRect(at, y, length, 1);
    context.fillRect(at, y + h - 1, length, 1);
    if (refs > 1 && h > 7) context.fillRect(at, y + h - 3, length, 1);
  }
  if (isLive && w > 2) context.fillRect(x, y, 1, h);
}

function paintWords(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  { content, owner, refs, life, isLive, isSame }: Omit<Life, "isHashed"> & { isLive: boolean },
  theme: Theme,
) {
  const who = owner === SHARED ? `×${refs}` : owner === NOBODY ? "" : requestName(owner),
    name = content < 0 || isSame ? "" : contentName(content);
  const font = `600 12px ${theme.ui}`,
    color = isLive ? theme.ink : theme.soft;
  const words = [name, isLive ? who : isSame ? "" : "freed"].filter(Boolean).join(" ");
  context.font = font;
  const text = [words, name].find((one) => one && context.measureText(one).width <= w - 6);
  if (!text) return;
  if (life === LIFE.lost) {
    context.fillStyle = theme.paper;
    context.fillRect(x + 2, y + 1, context.measureText(text).width + 4, h - 2);
  }
  label(context, text, x + 4, y + h / 2 + 0.5, null, font, color);
}

function range(count: number) {
  return Array.from({ length: count }, (_, i) => i);
}

function legend(): Pattern[] {
  const life = (name: string, parts: Partial<Life>): Pattern => ({
    name,
    paint: (context, rect, theme) =>
      paintLife(
        context,
        { ...rect, h: rect.h },
        { life: LIFE.live, content: -1, isHashed: false, owner: NOBODY, refs: 1, isSame: true, ...parts },
        theme,
      ),
  });
  return [
    life("in use, not hashed", {}),
    life("hashed", { isHashed: true, content: 0 }),
    life("shared", { isHashed: true, content: 0, refs: 2 }),
    life("freed, cached", { isHashed: true, content: 0, life: LIFE.cached, refs: 0 }),
    life("lost", { isHashed: true, content: 0, life: LIFE.lost }),
  ];
}
