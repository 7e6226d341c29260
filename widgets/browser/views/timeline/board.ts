// A canvas over time: a quiet picture that is drawn when the run or the zoom changes, and a pen that moves over it.
import type { Theme } from "../../look/theme.ts";
import { countUpTo } from "../../model/arrays.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Story } from "../../model/story.ts";
import { label } from "../canvas.ts";
import type { Size, Subject } from "../view.ts";
import { Axis } from "./axis.ts";

const ZOOM = 1.6;

export type Paint = (context: CanvasRenderingContext2D, size: Size) => void;

export interface BoardActs {
  paintAll: Paint; // everything but the moment
  paintOverlay: Paint; // what moves
  moveTo: (moment: number) => void;
}

// What a pressed pointer does: it scrubs, or drags the axis.
type Held = { isScrubbing: true } | { isScrubbing?: undefined; x: number; from: number };

export class Board {
  canvas = document.createElement("canvas");
  quiet = document.createElement("canvas");
  axis = new Axis();
  paintAll: Paint;
  paintOverlay: Paint;
  moveTo: (moment: number) => void;
  size = { width: 0, height: 0, ratio: 1 };
  isStale = true;
  held!: Held | null;
  wasDragged!: boolean;
  downAt!: number;

  constructor(className: string, label: string, { paintAll, paintOverlay, moveTo }: BoardActs) {
    this.canvas.className = className;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("aria-label", label);
    this.paintAll = paintAll;
    this.paintOverlay = paintOverlay;
    this.moveTo = moveTo;
    this.listen();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", () => (this.held = null));
    canvas.addEventListener("pointercancel", () => (this.held = null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  press(event: PointerEvent) {
    if (event.button > 1) return;
    this.wasDragged = false;
    this.downAt = event.offsetX;
    this.held =
      event.button === 1 || event.shiftKey ? { x: event.offsetX, from: this.axis.from } : { isScrubbing: true };
    this.canvas.setPointerCapture?.(event.pointerId);
    if (this.held.isScrubbing && event.offsetX >= this.axis.left) this.moveTo(this.axis.clicked(event.offsetX));
  }

  drag(event: PointerEvent) {
    if (!this.held) return;
    this.wasDragged ||= Math.abs(event.offsetX - this.downAt) > 4;
    if (this.held.isScrubbing) return this.moveTo(this.axis.clicked(event.offsetX));
    const moved = (event.offsetX - this.held.x) / this.axis.perEvent;
    this.axis.show(this.held.from - moved, this.axis.to - this.axis.from);
    this.refresh();
  }

  // The page scrolls as ever; with Ctrl the wheel zooms, with Shift, or sideways, it pans.
  wheel(event: WheelEvent) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !isSideways) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) this.axis.zoom(2 ** (-event.deltaY / 240), this.axis.momentAt(event.offsetX));
    else this.axis.pan(((isSideways ? event.deltaX : event.deltaY) * (this.axis.to - this.axis.from)) / 1200);
    this.refresh();
  }

  zoom(direction: number, moment: number) {
    if (direction === 0) this.axis.all();
    else this.axis.zoom(direction > 0 ? ZOOM : 1 / ZOOM, moment);
    this.refresh();
  }

  refresh() {
    this.isStale = true;
    this.paint();
  }

  // What a click selects: nothing after a drag, and nothing that is selected already, for scrubbing takes nothing away.
  clicked(event: MouseEvent, subject: Subject | null, selection: Selection | null): Subject | null {
    if (event.type !== "click" || !subject) return subject;
    return this.wasDragged || (selection && selection.kind === subject.kind && Number(selection.id) === subject.id)
      ? null
      : subject;
  }

  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas,
      ratio = window.devicePixelRatio || 1,
      old = this.size;
    if (width === old.width && height === old.height && ratio === old.ratio) return width > 0 && height > 0;
    this.size = { width, height, ratio };
    this.isStale = true;
    for (const canvas of [this.canvas, this.quiet]) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
    }
    return width > 0 && height > 0;
  }

  paint() {
    if (!this.measure()) return;
    const { width, height, ratio } = this.size;
    this.axis.width = Math.max(1, width - this.axis.left - 6);
    if (this.isStale) this.paintOn(this.quiet, this.paintAll);
    this.isStale = false;
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.drawImage(this.quiet, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintOverlay(context, { width, height });
  }

  paintOn(canvas: HTMLCanvasElement, paint: Paint) {
    const { width, height, ratio } = this.size,
      context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    paint(context, { width, height });
  }
}

// The pen: a line with a grip, where the reader stands.
export function drawPen(context: CanvasRenderingContext2D, x: number, height: number, theme: Theme, top = 0) {
  context.fillStyle = theme.paper;
  context.fillRect(x - 2, top, 4, height - top);
  context.fillStyle = theme.accent;
  context.fillRect(x - 1, top, 2, height - top);
  context.beginPath();
  context.moveTo(x - 6, top);
  context.lineTo(x + 6, top);
  context.lineTo(x + 6, top + 5);
  context.lineTo(x, top + 11);
  context.lineTo(x - 6, top + 5);
  context.closePath();
  context.fill();
}

// The steps along an axis of moments: which are in sight, and as many of their numbers as there is room for.

// A step in sight: its index, and its edges in pixels.
export interface ShownStep {
  i: number;
  x: number;
  right: number;
}

export function shownSteps(story: Story, axis: Axis): ShownStep[] {
  const { steps } = story,
    shown: ShownStep[] = [];
  let painted = -Infinity;
  for (
    let i = Math.max(0, countUpTo(steps.start, axis.from) - 1);
    i < steps.start.length && steps.start[i] < axis.to;
    i++
  ) {
    const x = Math.max(axis.left, axis.x(steps.start[i])),
      right = Math.min(axis.left + axis.width, axis.x(steps.end[i] ?? story.end));
    if (right < painted + 1 || right < axis.left) continue;
    painted = Math.floor(right);
    shown.push({ i, x, right });
  }
  return shown;
}

export function labelSteps(
  context: CanvasRenderingContext2D,
  story: Story,
  shown: ShownStep[],
  y: number,
  theme: Theme,
) {
  const { steps } = story;
  let free = -Infinity;
  for (const { i, x, right } of shown) {
    const number = steps.number[i].toLocaleString(),
      isNoted = steps.isRolledBack[i] && right - x > 110,
      text = `${right - x > 62 ? "step " : ""}${number}${isNoted ? " rolled back" : ""}`;
    if (
      x < free ||
      !label(context, text, x + 4, y, right - x < 22 ? null : right - x - 3, `12px ${theme.ui}`, theme.soft)
    )
      continue;
    free = x + 12 + context.measureText(text).width;
  }
}
