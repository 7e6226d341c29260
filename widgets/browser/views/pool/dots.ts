// A large pool: a few pixels a block, written straight into an image. Hue is content; freed but cached is paler; lost
// is ink.

import { HUES, LOST_HUE } from "../../look/palette.ts";
import type { Theme } from "../../look/theme.ts";
import type { Scene } from "../../model/scene.ts";
import type { Grid } from "./grid.ts";

const MANY = 1024; // changed cells from which the whole image is put at once

// Colours as pixels; live and freed by hue.
interface Shades {
  empty: number;
  partial: number;
  lost: number;
  live: number[];
  freed: number[];
}

export class Dots {
  width!: number;
  height!: number;
  grid!: Grid;
  theme!: Theme;
  image!: ImageData;
  pixels!: Uint32Array;
  shades!: Shades;

  constructor(readonly context: CanvasRenderingContext2D) {}

  // width, height in device pixels; grid: columns, cellWidth, cellHeight and gap in them.
  begin(width: number, height: number, grid: Grid, theme: Theme) {
    this.width = width;
    this.height = height;
    this.grid = grid;
    this.theme = theme;
    this.image = this.context.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.shades = shadesOf(theme);
  }

  paint(scene: Scene, ids: Set<number> | null): void {
    if (ids === null) {
      for (let id = 0; id < scene.numBlocks; id++) this.write(id, this.shade(scene, id));
      this.context.putImageData(this.image, 0, 0);
      return;
    }
    for (const id of ids) this.write(id, this.shade(scene, id));
    const isMany = ids.size > MANY;
    if (isMany) this.context.putImageData(this.image, 0, 0);
    for (const id of isMany ? [] : ids) {
      const { x, y, w, h } = this.boxOf(id);
      this.context.putImageData(this.image, 0, 0, x, y, w, h);
    }
  }

  boxOf(id: number) {
    const { columns, cellWidth, cellHeight, gap } = this.grid,
      column = id % columns,
      row = (id / columns) | 0;
    const x = Math.round(column * cellWidth),
      y = Math.round(row * cellHeight);
    return {
      x,
      y,
      w: Math.max(1, Math.round((column + 1) * cellWidth) - x - gap),
      h: Math.max(1, Math.round((row + 1) * cellHeight) - y - gap),
    };
  }

  shade(scene: Scene, id: number) {
    const { shades } = this;
    if (!scene.isKept(id)) {
      if (scene.isLostFlag[id]) return shades.lost;
      const content = scene.contentOfBlock[id];
      return content >= 0 ? shades.live[content % HUES.length] : shades.partial;
    }
    const content = scene.contentOfBlock[id];
    return content >= 0 && scene.isMapped(id) ? shades.freed[content % HUES.length] : shades.empty;
  }

  write(id: number, shade: number) {
    const { x, y, w, h } = this.boxOf(id),
      { width, pixels } = this;
    for (let row = y; row < y + h; row++) pixels.fill(shade, row * width + x, row * width + x + w);
  }
}

function shadesOf(theme: Theme): Shades {
  const paper = rgbOf(theme.paper),
    faint = rgbOf(theme.faint),
    ink = rgbOf(theme.ink);
  const hues = HUES.map(rgbOf);
  return {
    empty: packed(mixed(faint, ink, 0.05)),
    partial: packed(mixed(paper, ink, 0.45)),
    lost: packed(rgbOf(LOST_HUE)),
    live: hues.map((hue) => packed(hue)),
    freed: hues.map((hue) => packed(mixed(hue, paper, 0.6))),
  };
}

function mixed(from: number[], to: number[], share: number) {
  return from.map((value, i) => Math.round(value + (to[i] - value) * share));
}

function packed([r, g, b]: number[]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

// Any CSS colour as [r, g, b].
function rgbOf(color: string) {
  const context = document
    .createElement("canvas")
    .getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}
