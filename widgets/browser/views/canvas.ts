// Canvas helpers of the pool's painters: text that is cut to fit, and small pictures that many cells share.

import type { Theme } from "../../look/theme.ts";
import type { Rect } from "../view.ts";

export function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  font: string,
  color: string,
  align: CanvasTextAlign = "left",
) {
  context.font = font;
  context.fillStyle = color;
  context.textAlign = align;
  context.fillText(text, x, y);
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
