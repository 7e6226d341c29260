// A canvas over time: a quiet picture that is drawn when the run or the zoom changes, and a pen that moves over it.
import { lastBefore } from "../../model/arrays.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Recording } from "../../model/recording.ts";
import type { StepRecord } from "../../model/steps.ts";
import { Axis } from "../axis.ts";
import type { Ink } from "../canvas.ts";
import { Picture } from "../canvas.ts";
import type { Subject, ViewHost } from "../view.ts";

const ZOOM = 1.6;

export interface BoardActs {
  paintAll: (ink: Ink) => void; // everything but the moment
  paintOverlay: (ink: Ink) => void; // what moves
  moveTo: (moment: number) => void;
}

// What a pressed pointer does: it scrubs, or drags the axis.
type Held = { isScrubbing: true } | { isScrubbing?: undefined; x: number; from: number };

export class Board extends Picture {
  axis = new Axis();
  held!: Held | null;
  wasDragged!: boolean;
  downAt!: number;

  constructor(
    readonly stage: ViewHost,
    readonly acts: BoardActs,
  ) {
    super();
    Object.assign(this.canvas, { className: "le-timeline-canvas", tabIndex: 0, role: "slider" });
    this.canvas.ariaLabel = "Timeline: the shown moment, in events";
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
    if (this.held.isScrubbing && event.offsetX >= this.axis.left) this.acts.moveTo(this.axis.clicked(event.offsetX));
  }

  drag(event: PointerEvent) {
    if (!this.held) return;
    this.wasDragged ||= Math.abs(event.offsetX - this.downAt) > 4;
    if (this.held.isScrubbing) return this.acts.moveTo(this.axis.clicked(event.offsetX));
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

  paint() {
    if (!this.measure()) return;
    this.axis.width = Math.max(1, this.size.width - this.axis.left - 6);
    this.draw(this.stage.theme, this.acts.paintAll, this.acts.paintOverlay);
  }
}

// The pen: a line with a grip, where the reader stands.
export function drawPen(ink: Ink, x: number, height: number) {
  const { accent, paper } = ink.theme;
  ink.fill(x - 2, 0, 4, height, paper);
  ink.fill(x - 1, 0, 2, height, accent);
  ink.polygon(accent, [x - 6, 0], [x + 6, 0], [x + 6, 5], [x, 11], [x - 6, 5]);
}

// The steps along an axis of moments: which are in sight, and as many of their numbers as there is room for.

// A step in sight, and its edges in pixels.
export interface ShownStep {
  step: StepRecord;
  x: number;
  right: number;
}

export function shownSteps({ steps, end }: Recording, axis: Axis): ShownStep[] {
  const shown: ShownStep[] = [];
  let painted = -Infinity;
  for (
    let i = Math.max(
      0,
      lastBefore(steps, axis.from, ({ start }) => start),
    );
    i < steps.length;
    i++
  ) {
    const step = steps[i],
      x = Math.max(axis.left, axis.x(step.start)),
      right = Math.min(axis.left + axis.width, axis.x(step.end ?? end));
    if (step.start >= axis.to) break;
    if (right < painted + 1 || right < axis.left) continue;
    painted = Math.floor(right);
    shown.push({ step, x, right });
  }
  return shown;
}

export function labelSteps(ink: Ink, shown: ShownStep[], y: number) {
  let free = -Infinity;
  for (const { step, x, right } of shown) {
    const isNoted = step.isRolledBack && right - x > 110,
      text = `${right - x > 62 ? "step " : ""}${step.step.toLocaleString()}${isNoted ? " rolled back" : ""}`,
      room = right - x < 22 ? undefined : right - x - 3;
    if (x < free || !ink.label(text, x + 4, y, { color: ink.theme.soft, room })) continue;
    free = x + 12 + ink.width(text);
  }
}
