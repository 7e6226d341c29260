// The use of each block over time: a row per block, a band per stretch of its life. Hue shows content, border and hatch
// show state, letters are owners.

import { countUpTo } from "../../model/arrays.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import type { Story } from "../../model/story.ts";
import { LIFE, LIFE_NAMES, NO_OWNER, SHARED } from "../../model/story.ts";
import type { Axis } from "../axis.ts";
import type { Ink } from "../canvas.ts";
import type { CsvRow } from "../view.ts";
import { paintLife } from "./lives.ts";
import type { Rows } from "./rows.ts";
import { busiest, IDLE, layRows, paintDensity, placeAt, yOf } from "./rows.ts";

export class Bands {
  story!: Story;
  rows?: Rows;

  constructor(readonly axis: Axis) {}

  lay(story: Story, top: number, height: number) {
    this.story = story;
    this.rows = layRows(story, top, height);
  }

  // Room to the left of the axis for the blocks' numbers.
  static roomFor(story: Story) {
    return 14 + 7 * String(Math.max(0, story.numBlocks - 1)).length;
  }

  // What a row of many blocks means, which has no content's hue and no border; nothing for rows of single blocks.
  get meaning() {
    const { isBinned, perRow } = this.rows ?? {};
    return isBinned ? `${perRow} blocks per row: darker means more in use; stripes: freed, cached` : "";
  }

  paint(ink: Ink, scene: Scene, width: number) {
    const { rows, story, axis } = this;
    if (!rows) return;
    this.paintGrid(ink, rows, width);
    if (rows.isBinned) paintDensity(ink, story, axis, rows);
    else for (const block of rows.ids) if (story.bands[block]) this.paintBand(ink, rows, scene, block);
    if (!rows.numIdle) return;
    const [idle, all] = [rows.numIdle, story.numBlocks].map((count) => count.toLocaleString("en")),
      words = `${idle} of ${all} blocks were never used`,
      y = rows.top + rows.numRows * rows.height + IDLE / 2;
    ink.label(words, axis.left + 4, y, { color: ink.theme.soft });
  }

  paintGrid(ink: Ink, rows: Rows, width: number) {
    const every = Math.ceil(13 / rows.height),
      style = { color: ink.theme.soft, align: "right" } as const,
      { left } = this.axis;
    for (let row = 0; row < rows.numRows && rows.ids.length; row += every)
      ink.label(`#${rows.ids[row * rows.perRow]}`, left - 5, rows.top + (row + 0.5) * rows.height, style);
    if (rows.height >= 8)
      for (let row = 0; row <= rows.numRows; row++)
        ink.fill(left, rows.top + row * rows.height - 0.5, width, 1, ink.theme.faint);
  }

  paintBand(ink: Ink, rows: Rows, scene: Scene, block: number) {
    const { axis, story } = this,
      band = story.bands[block],
      { height } = rows,
      gap = height > 9 ? 2 : height > 5 ? 1 : 0.5;
    const y = (yOf(rows, block) ?? 0) + gap / 2,
      h = height - gap,
      limit = axis.left + axis.width;
    let painted = -Infinity;
    for (let i = Math.max(0, countUpTo(band.at, axis.from) - 1); i < band.at.length && band.at[i] < axis.to; i++) {
      const x = Math.max(axis.left, axis.x(band.at[i])),
        right = Math.min(limit, axis.x(band.at[i + 1] ?? story.end));
      if (right <= painted || band.life[i] === LIFE.free) continue;
      painted = Math.max(right, Math.floor(x) + 1);
      const key = band.key[i] < 0 ? null : story.keys[band.key[i]],
        content = key === null ? -1 : scene.contentOf(key);
      const isSame = i > 0 && band.key[i - 1] === band.key[i] && band.life[i - 1] === band.life[i];
      paintLife(
        ink,
        { x, y, w: Math.max(0.8, right - x), h },
        { life: band.life[i], content, isHashed: key !== null, owner: band.owner[i], refs: band.refs[i], isSame },
      );
    }
  }

  ring(ink: Ink, block: number, width: number) {
    const { context, theme } = ink,
      y = this.rows ? yOf(this.rows, block) : null,
      { left } = this.axis;
    if (y === null || !this.rows) return;
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.strokeRect(left - 2, y - 0.5, width - left, Math.max(4, this.rows.height));
    const text = `#${block}`,
      middle = y + this.rows.height / 2;
    ink.font({ weight: 700 });
    const w = ink.width(text) + 6;
    ink.fill(left - 4 - w, middle - 7, w, 14, theme.accent);
    ink.label(text, left - 7, middle + 0.5, { weight: 700, color: theme.paper, align: "right" });
  }

  tag(ink: Ink, block: number) {
    const y = this.rows ? yOf(this.rows, block) : null;
    if (y === null || !this.rows) return;
    ink.fill(this.axis.left - 3, y, 3, Math.max(2, this.rows.height - 1), ink.theme.accent);
  }

  // The block whose row is at a place on the canvas; undefined where there is none.
  blockAt(x: number, y: number) {
    const place = this.rows ? placeAt(this.rows, y) : null;
    if (place === null || !this.rows) return undefined;
    return this.rows.isBinned ? busiest(this.rows, this.story, place, this.axis.clicked(x)) : this.rows.ids[place];
  }

  describe(block: number, moment: number, scene: Scene) {
    const { life, key, owner, refs } = this.story.lifeAt(block, moment),
      content = key === null ? -1 : scene.contentOf(key);
    const whose = owner === SHARED ? `, ${refs} references` : owner === NO_OWNER ? "" : `, of ${requestName(owner)}`;
    return (
      `#${block} is ${LIFE_NAMES[life]}${life === LIFE.free ? "" : whose}` +
      `${content >= 0 ? `, content ${contentName(content)}` : ""}`
    );
  }
}

export function* rowsOfBlocks(story: Story): Generator<CsvRow> {
  for (const [block, band] of Object.entries(story.bands))
    for (const [i, at] of band.at.entries()) {
      const owner = band.owner[i] === SHARED ? "shared" : band.owner[i] === NO_OWNER ? "" : band.owner[i];
      const to = band.at[i + 1] ?? story.end,
        key = story.keys[band.key[i]] ?? "";
      yield ["block", Number(block), at, to, LIFE_NAMES[band.life[i]], key, owner, band.refs[i]];
    }
}
