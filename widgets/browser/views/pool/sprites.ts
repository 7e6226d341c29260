// Small pictures that many cells share: drawn once per theme, size and look, then copied, which costs a tenth.
import type { Theme } from "../../look/theme.ts";
import type { Rect } from "../view.ts";

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
  const whole = (at: number) => Math.round(at * ratio) / ratio; // on whole pixels of the screen nothing is blurred
  context.drawImage(picture, whole(x), whole(y), picture.width / ratio, picture.height / ratio);
}

function drawn(w: number, h: number, ratio: number, draw: Draw) {
  const canvas = document.createElement("canvas"),
    context = canvas.getContext("2d") as CanvasRenderingContext2D;
  Object.assign(canvas, { width: Math.ceil(w * ratio), height: Math.ceil(h * ratio) });
  context.scale(canvas.width / w, canvas.height / h);
  draw(context, { x: 0, y: 0, w, h });
  return canvas;
}
