// Canvas helpers: text that is cut to fit, hatching, and small pictures that many cells share.

import type { Theme } from "../look/theme.ts";
import type { Rect } from "./view.ts";

// room: the text is condensed where it is wider.
export function drawText(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  font: string,
  color: string,
  align: CanvasTextAlign = "left",
  room?: number,
) {
  context.font = font;
  context.fillStyle = color;
  context.textAlign = align;
  context.fillText(text, x, y, room);
}

// Text that is drawn if it fits, centred on y. Returns false for text wider than `room`.
export function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  room: number | null,
  font: string,
  color: string,
  align: CanvasTextAlign = "left",
) {
  context.font = font;
  if (room !== null && context.measureText(text).width > room) return false;
  context.textBaseline = "middle";
  drawText(context, text, x, y, font, color, align);
  return true;
}

// Measured once per font and text: to measure costs more than to draw.
const widths = new Map<string, number>();

const MAX_WIDTHS = 20_000;

export function widthOf(context: CanvasRenderingContext2D, text: string) {
  const key = `${context.font}|${text}`,
    known = widths.get(key);
  if (known !== undefined) return known;
  if (widths.size >= MAX_WIDTHS) widths.clear();
  const { width } = context.measureText(text);
  widths.set(key, width);
  return width;
}

export function fit(context: CanvasRenderingContext2D, text: string, width: number) {
  if (widthOf(context, text) <= width) return text;
  let cut = text.length;
  while (cut > 1 && widthOf(context, `${text.slice(0, cut)}…`) > width) cut -= 1;
  return `${text.slice(0, cut)}…`;
}

export function breakText(context: CanvasRenderingContext2D, text: string, width: number, isLast: boolean) {
  if (widthOf(context, text) <= width) return [text, ""];
  if (isLast) return [fit(context, text, width), ""];
  let cut = text.length;
  while (cut > 1 && widthOf(context, text.slice(0, cut)) > width) cut -= 1;
  const space = text.lastIndexOf(" ", cut);
  const at = space > cut / 3 ? space + 1 : cut;
  return [text.slice(0, at), text.slice(at)];
}

// Drawn once per theme, size and look, then copied, which costs a tenth.
const MAX_SPRITES = 600;
const sprites = new WeakMap<Theme, Map<string, HTMLCanvasElement>>(); // by theme: another theme is another object

type Draw = (context: CanvasRenderingContext2D, rect: Rect) => void;

// Puts what `draw(context, rect)` paints within a rect onto a canvas, from the cache if it is known by this name.
export function sprite(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  theme: Theme,
  name: string,
  draw: Draw,
) {
  const ratio = context.getTransform().a,
    key = `${name}|${w}|${h}|${ratio}`;
  let known = sprites.get(theme);
  if (!known) sprites.set(theme, (known = new Map()));
  let picture = known.get(key);
  if (!picture) {
    if (known.size >= MAX_SPRITES) known.clear();
    known.set(key, (picture = drawn(w, h, ratio, draw)));
  }
  const onPixel = (at: number) => Math.round(at * ratio) / ratio; // on whole pixels of the screen nothing is blurred
  context.drawImage(picture, onPixel(x), onPixel(y), picture.width / ratio, picture.height / ratio);
}

function drawn(w: number, h: number, ratio: number, draw: Draw) {
  const canvas = document.createElement("canvas"),
    context = canvas.getContext("2d") as CanvasRenderingContext2D;
  Object.assign(canvas, { width: Math.ceil(w * ratio), height: Math.ceil(h * ratio) });
  context.scale(canvas.width / w, canvas.height / h);
  draw(context, { x: 0, y: 0, w, h });
  return canvas;
}

// Lines at 45 degrees, as a pattern that is drawn once per colour: a large pool has thousands of hatched stretches.
export function hatch(
  context: CanvasRenderingContext2D,
  { x, y, w, h }: Rect,
  color: string,
  every: number,
  width: number,
  isFalling = false,
) {
  context.fillStyle = hatchPattern(context, color, every, width, isFalling);
  context.fillRect(x, y, w, h);
}

const patterns = new Map<string, CanvasPattern>();
const MAX_PATTERNS = 64;

function hatchPattern(
  context: CanvasRenderingContext2D,
  color: string,
  every: number,
  width: number,
  isFalling: boolean,
) {
  const ratio = Math.max(1, Math.round(window.devicePixelRatio || 1)),
    name = `${color}:${every}:${width}:${isFalling}:${ratio}`;
  if (patterns.size > MAX_PATTERNS) patterns.clear();
  let pattern = patterns.get(name);
  if (!pattern) patterns.set(name, (pattern = patternOf(context, hatchTile(color, every, width, isFalling, ratio))));
  pattern.setTransform(new DOMMatrix([1 / ratio, 0, 0, 1 / ratio, 0, 0]));
  return pattern;
}

function patternOf(context: CanvasRenderingContext2D, tile: HTMLCanvasElement) {
  return context.createPattern(tile, "repeat") as CanvasPattern; // null only for an image that is not loaded
}

function hatchTile(color: string, every: number, width: number, isFalling: boolean, ratio: number) {
  const tile = document.createElement("canvas"),
    pen = tile.getContext("2d") as CanvasRenderingContext2D,
    size = every * ratio;
  tile.width = tile.height = size;
  if (isFalling) pen.setTransform(-1, 0, 0, 1, size, 0);
  pen.strokeStyle = color;
  pen.lineWidth = width * ratio * 0.75;
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  return tile;
}
