// Drawing on a canvas: text that is cut to fit, hatching, and small pictures that many cells share.

import { shapeOf } from "../look/palette.ts";
import type { Theme } from "../look/theme.ts";
import { requestName } from "../model/names.ts";
import type { Rect } from "./view.ts";

export interface TextStyle {
  weight?: number | "italic";
  size?: number;
  family?: string;
  color?: string;
  align?: CanvasTextAlign;
  room?: number;
}

// Measured once per font and text: to measure costs more than to draw.
const widths = new Map<string, number>();
const MAX_WIDTHS = 20_000;

// A canvas, and the theme that it is drawn in.
export class Ink {
  constructor(
    readonly context: CanvasRenderingContext2D,
    readonly theme: Theme,
  ) {}

  // The font for drawing and measuring.
  font({ weight = 400, size = 12, family = this.theme.ui }: TextStyle = {}) {
    this.context.font = `${weight} ${size}px ${family}`;
  }

  width(text: string) {
    const key = `${this.context.font}|${text}`,
      known = widths.get(key);
    if (known !== undefined) return known;
    if (widths.size >= MAX_WIDTHS) widths.clear();
    const { width } = this.context.measureText(text);
    widths.set(key, width);
    return width;
  }

  // room: the text is condensed where it is wider.
  text(text: string, x: number, y: number, style: TextStyle = {}) {
    const { context } = this;
    this.font(style);
    context.fillStyle = style.color ?? this.theme.ink;
    context.textAlign = style.align ?? "left";
    context.fillText(text, x, y, style.room);
  }

  // Text that is drawn if it fits, centred on y. Returns false for text wider than `room`.
  label(text: string, x: number, y: number, { room, ...style }: TextStyle = {}) {
    this.font(style);
    if (room !== undefined && this.context.measureText(text).width > room) return false;
    this.context.textBaseline = "middle";
    this.text(text, x, y, style);
    return true;
  }

  fill(x: number, y: number, w: number, h: number, color: string, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = color;
    this.context.fillRect(x, y, w, h);
    this.context.globalAlpha = 1;
  }

  polygon(color: string, ...points: [x: number, y: number][]) {
    this.context.fillStyle = color;
    this.context.beginPath();
    for (const [x, y] of points) this.context.lineTo(x, y);
    this.context.fill();
  }

  // Straight lines, each from one point to another.
  lines(color: string, width: number, ...lines: [x: number, y: number, toX: number, toY: number][]) {
    const { context } = this;
    context.save();
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    for (const [x, y, toX, toY] of lines) {
      context.moveTo(x, y);
      context.lineTo(toX, toY);
    }
    context.stroke();
    context.restore();
  }

  // The path of a rectangle with round corners.
  round({ x, y, w, h }: Rect, radius: number, inset = 0) {
    this.context.beginPath();
    this.context.roundRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset, radius);
  }

  // Lines at 45 degrees, as a pattern that is drawn once per colour: a large pool has thousands of hatched stretches.
  hatch({ x, y, w, h }: Rect, color: string, every: number, width: number, isFalling = false) {
    this.context.fillStyle = hatchPattern(this.context, color, every, width, isFalling);
    this.context.fillRect(x, y, w, h);
  }

  // As much of a text as a line of this width takes.
  cut(text: string, width: number) {
    if (this.width(text) <= width) return text;
    let end = text.length;
    while (end > 1 && this.width(`${text.slice(0, end)}…`) > width) end -= 1;
    return `${text.slice(0, end)}…`;
  }

  // A text's first line, and the rest; of the last line the rest is cut.
  broken(text: string, width: number, isLast: boolean) {
    if (this.width(text) <= width) return [text, ""];
    if (isLast) return [this.cut(text, width), ""];
    let cut = text.length;
    while (cut > 1 && this.width(text.slice(0, cut)) > width) cut -= 1;
    const space = text.lastIndexOf(" ", cut);
    const at = space > cut / 3 ? space + 1 : cut;
    return [text.slice(0, at), text.slice(at)];
  }
}

// A request's letter in its shape.
export function drawBadge(ink: Ink, x: number, y: number, radius: number, request: number) {
  const { context, theme } = ink,
    shape = shapeOf(request),
    sides = shape === "diamond" ? 4 : 6;
  context.fillStyle = theme.ink;
  context.beginPath();
  if (shape === "disc") context.arc(x, y, radius, 0, 7);
  else if (shape === "square") context.roundRect(x - radius * 0.88, y - radius * 0.88, radius * 1.76, radius * 1.76, 2);
  else
    for (let i = 0; i < sides; i++)
      context.lineTo(
        x + radius * 1.2 * Math.sin((2 * Math.PI * i) / sides),
        y - radius * 1.2 * Math.cos((2 * Math.PI * i) / sides),
      );
  context.fill();
  ink.text(requestName(request), x, y + 4.2, { weight: 700, color: theme.paper, align: "center" });
}

// A canvas as large as the page lays it out, drawn in two parts: a quiet one, and what moves over it.
export class Picture {
  canvas = document.createElement("canvas");
  quiet = document.createElement("canvas");
  size = { width: 0, height: 0, ratio: 1 };
  isStale = true; // the quiet part is to be drawn again

  // Takes the size of the element; false while it has none.
  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas,
      ratio = (window.devicePixelRatio || 1) * (this.canvas.currentCSSZoom ?? 1), // a presentation enlarges it
      old = this.size;
    if (width !== old.width || height !== old.height || ratio !== old.ratio) {
      this.size = { width, height, ratio };
      this.isStale = true;
      for (const canvas of [this.canvas, this.quiet]) {
        canvas.width = Math.max(1, Math.round(width * ratio));
        canvas.height = Math.max(1, Math.round(height * ratio));
      }
    }
    return width > 0 && height > 0;
  }

  // An ink for the empty canvas, or with another one's picture on it.
  begin(theme: Theme, canvas = this.canvas, under?: HTMLCanvasElement) {
    const { ratio } = this.size,
      context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (under) context.drawImage(under, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return new Ink(context, theme);
  }

  draw(theme: Theme, paintQuiet: (ink: Ink) => void, paintOver: (ink: Ink) => void) {
    if (this.isStale) paintQuiet(this.begin(theme, this.quiet));
    this.isStale = false;
    paintOver(this.begin(theme, this.canvas, this.quiet));
  }
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
