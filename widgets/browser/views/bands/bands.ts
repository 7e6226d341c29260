// The use of each block over time: a row per block, a band per stretch of its life. Hue shows content, border and hatch
// show state, letters are owners.

import { element, targetOf, write } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import { countUpTo } from "../../model/arrays.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import { LIFE, LIFE_NAMES, NO_OWNER, SHARED, storyOf } from "../../model/story.ts";
import { aboutOf } from "../about.ts";
import { label } from "../canvas.ts";
import type { TimeBar } from "../time/bar.ts";
import { timeBar } from "../time/bar.ts";
import { Board, drawPen, labelSteps, shownSteps } from "../time/board.ts";
import type { CsvRow, PaintMoment, Size, ViewHost } from "../view.ts";
import { moveToMoment } from "../view.ts";
import { legend, paintLife } from "./lives.ts";
import type { Rows } from "./rows.ts";
import { busiest, IDLE, layRows, paintDensity, placeAt, TOP, yOf } from "./rows.ts";

export const title = "Bands";

const REDRAW_MS = 200;

export function create(stage: ViewHost, side: Side) {
  return new Bands(stage, side);
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
  redrawTimer!: number;
  rows!: Rows;
  drawnAt!: number;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.board = new Board("le-bands-canvas", "Block lifetimes: the moment that is shown, in events", {
      paintAll: (context, size) => this.paintAll(context, size),
      paintOverlay: (context, size) => this.paintOverlay(context, size),
      moveTo: (moment) => moveToMoment(stage, side, moment),
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
    this.bar.update(moment);
  }

  // Rows of single blocks are drawn at once; a large pool's, which cost more, a few times a second.
  takeNews() {
    const now = performance.now();
    if (!this.rows?.isBinned || now - this.drawnAt > REDRAW_MS) {
      this.board.isStale = true;
      return;
    }
    this.redrawTimer ||= setTimeout(() => {
      this.redrawTimer = 0;
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
    clearTimeout(this.redrawTimer);
    this.bar.destroy();
    this.element.remove();
  }

  yOf(block: number) {
    return yOf(this.rows, block);
  }

  // -- the quiet part

  paintAll(context: CanvasRenderingContext2D, { width, height }: Size) {
    const { story } = this,
      { theme } = this.stage,
      { axis } = this.board;
    this.rows = layRows(story, height);
    this.drawnAt = performance.now();
    axis.left = 14 + 7 * String(Math.max(0, story.numBlocks - 1)).length;
    axis.width = Math.max(1, width - axis.left - 6);
    this.explain();
    this.paintSteps(context, story, theme, height);
    this.paintGrid(context, theme, width);
    if (this.rows.isBinned) paintDensity(context, story, axis, this.rows, theme);
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

  // -- the pen and the selection

  paintOverlay(context: CanvasRenderingContext2D, { width, height }: Size) {
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

  // -- pointer and keyboard

  at(event: MouseEvent) {
    if (targetOf(event) !== this.board.canvas || !this.rows) return null;
    const place = placeAt(this.rows, event.offsetY);
    if (place === null) return null;
    const id = this.rows.isBinned
      ? busiest(this.rows, this.story, place, this.board.axis.clicked(event.offsetX))
      : this.rows.ids[place];
    return this.board.clicked(event, { kind: "block", id }, this.selection);
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
    const whose = owner === SHARED ? `, ${refs} references` : owner === NO_OWNER ? "" : `, of ${requestName(owner)}`;
    return (
      `#${block} is ${LIFE_NAMES[life]}${life === LIFE.free ? "" : whose}` +
      `${content >= 0 ? `, content ${contentName(content)}` : ""}`
    );
  }

  csv() {
    const rows: CsvRow[] = [["block", "from_moment", "to_moment", "life", "hash", "owner", "ref_count"]];
    this.story.bands.forEach((band, block) =>
      band.at.forEach((at, i) => {
        const owner = band.owner[i] === SHARED ? "shared" : band.owner[i] === NO_OWNER ? "" : band.owner[i];
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
