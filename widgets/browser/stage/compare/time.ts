// One time line for both sides: a column per caption, a lane per request and one for the pool; a vertical rule at the
// first difference. Drag to scrub.

import { element } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import { requestName } from "../../model/names.ts";
import { Axis } from "../../views/axis.ts";
import type { Ink } from "../../views/canvas.ts";
import { Picture } from "../../views/canvas.ts";
import type { PairStage } from "../stage.ts";
import { CaptionLanes } from "./time_lanes.ts";

const TOP = 20,
  LEFT = 52,
  RIGHT = 16,
  BOTTOM = 15,
  STOP_RADIUS = 8,
  LEAST_GAP = 2 * STOP_RADIUS + 3, // between the centres of two signs
  STOP_GAP = 2 * STOP_RADIUS + 7; // where there is room
const MEANING = "pale: on both sides, strong: on one";
const EXPLAINED =
  "Pale: an event on both sides. Strong: on one side only, or different; the left side's is above, the right " +
  "side's below.";

export class PairTime {
  picture = new Picture();
  canvas = this.picture.canvas;
  element = element("div", "le-pair-time", {}, this.canvas);
  axis = new Axis();
  lanes = new CaptionLanes(this.stage);
  sizes = new ResizeObserver(() => this.stage.changed());
  pictured?: string;
  picturedTheme?: Theme;
  stepNames!: [from: number, to: number][];

  constructor(readonly stage: PairStage) {
    Object.assign(this.canvas, { tabIndex: 0, role: "slider" });
    this.canvas.ariaLabel = "Time of both sides, caption by caption. Arrow keys step; drag to scrub.";
    this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    this.sizes.observe(this.canvas);
    stage.end.signal.addEventListener("abort", () => this.sizes.disconnect());
  }

  // -- where things are

  get width() {
    return this.picture.size.width;
  }

  get height() {
    return this.picture.size.height;
  }

  x(position: number) {
    return this.axis.x(position);
  }

  positionAt(x: number) {
    return this.stage.within(Math.round(this.axis.momentAt(x)));
  }

  // The guided stops, each with the place of its sign: at its position, or beside the one before where they are close.
  signs(): [stop: number, position: number, x: number][] {
    const signs: [number, number, number][] = [],
      { guided } = this.stage.track,
      gap = Math.max(LEAST_GAP, Math.min(STOP_GAP, (this.width - LEFT) / Math.max(1, guided.length)));
    for (const [stop, at] of guided) {
      const left = signs.at(-1)?.[2] ?? -Infinity;
      signs.push([stop, at, Math.max(this.x(at), left + gap)]);
    }
    let right = this.width - STOP_RADIUS;
    for (const sign of signs.reverse()) {
      sign[2] = Math.min(sign[2], right);
      right = sign[2] - gap;
    }
    return signs.reverse();
  }

  // A guided stop is easier to hit than a caption.
  signAt(event: PointerEvent) {
    if (event.offsetY >= TOP) return undefined;
    return this.signs().find(([, , x]) => Math.abs(x - event.offsetX) <= STOP_RADIUS);
  }

  under(event: PointerEvent) {
    return this.signAt(event)?.[1] ?? this.positionAt(event.offsetX);
  }

  grab(event: PointerEvent) {
    this.canvas.setPointerCapture(event.pointerId);
    this.stage.moveTo(this.under(event));
  }

  drag(event: PointerEvent) {
    const sign = this.signAt(event);
    this.canvas.title = sign ? this.stage.track.guide[sign[0]] : EXPLAINED;
    if (event.buttons && this.canvas.hasPointerCapture(event.pointerId))
      this.stage.moveTo(this.positionAt(event.offsetX));
  }

  // -- drawing

  // Steps and lanes are drawn once, until there is more of them.
  paint() {
    if (!this.picture.measure()) return;
    const { track, theme } = this.stage,
      { base, end, lastCaption } = track,
      pictured = [base, end, lastCaption].join();
    Object.assign(this.axis, { left: LEFT, width: this.width - LEFT - RIGHT });
    Object.assign(this.axis, { from: base, to: base + Math.max(1, lastCaption - base) });
    if (this.pictured !== pictured || this.picturedTheme !== theme || this.lanes.last !== track.rows.at(-1))
      this.picture.isStale = true;
    Object.assign(this, { pictured, picturedTheme: theme });
    this.picture.draw(
      theme,
      (ink) => this.paintStill(ink),
      (ink) => this.paintMoving(ink),
    );
    this.describePosition();
  }

  paintStill(ink: Ink) {
    this.lanes.read();
    this.paintSteps(ink);
    this.paintLanes(ink);
  }

  // Events after the shown moment are paler.
  paintMoving(ink: Ink) {
    const x = this.x(this.stage.position) + 1;
    ink.context.textBaseline = "middle";
    ink.fill(x, TOP, this.width - x, this.height - TOP - BOTTOM, ink.theme.paper, 0.5);
    this.paintFirstDifference(ink);
    this.paintPen(ink);
    this.paintStops(ink);
  }

  describePosition() {
    const { canvas } = this,
      { track, position } = this.stage,
      words = [`caption ${position - track.base} of ${track.lastCaption - track.base}`];
    if (track.differsAt !== null) words.push(`first difference at caption ${track.differsAt - track.base}`);
    canvas.ariaValueNow = String(position);
    canvas.ariaValueMin = String(track.first);
    canvas.ariaValueMax = String(track.end);
    canvas.ariaValueText = words.join("; ");
  }

  paintSteps(ink: Ink) {
    const { track } = this.stage;
    ink.font();
    ink.context.textBaseline = "middle";
    const spans = track.spans.map(({ step }, i) => ({
      step,
      x: this.x(track.spanOf(i).start),
      right: this.x(track.spanOf(i).end),
    }));
    for (const { step, x, right } of spans)
      if (step % 2) ink.fill(x, TOP, right - x, this.height - TOP, ink.theme.faint);
    this.stepNames = [];
    for (const span of spans) this.paintStepName(ink, span);
    this.paintMeaning(ink, (this.stepNames.at(-1)?.[1] ?? 0) + 12);
  }

  // In full, or the number alone, or not at all: a name stays within its step, and after the name before it.
  paintStepName(ink: Ink, { step, x, right }: { step: number | null; x: number; right: number }) {
    const from = x + 7,
      free = (this.stepNames.at(-1)?.[1] ?? 0) + 5;
    for (const text of [`step ${step}`, String(step)]) {
      const to = from + ink.width(text);
      if (from < free || to > Math.min(right, this.width - 8)) continue;
      ink.text(text, from, this.height - 7, { color: ink.theme.soft });
      this.stepNames.push([from, to]);
      return;
    }
  }

  // The key to the marks, where the names of the steps leave room.
  paintMeaning(ink: Ink, free: number) {
    const right = this.width - RIGHT,
      left = right - ink.width(MEANING);
    if (left < free) return;
    this.stepNames.push([left, right]); // so much is taken
    ink.text(MEANING, right, this.height - 7, { color: ink.theme.soft, align: "right" });
  }

  get laneHeight() {
    return (this.height - TOP - BOTTOM) / Math.max(1, this.lanes.order.length);
  }

  get markWidth() {
    const { base } = this.stage.track;
    return Math.max(1.5, Math.min(9, this.x(base + 1) - this.x(base) - 2));
  }

  // The same on both sides: a grey bar across the lane. Different: in ink, the left side's in the lane's upper half,
  // the right side's in its lower.
  paintLanes(ink: Ink) {
    const { track } = this.stage,
      { ink: black, line, soft } = ink.theme,
      lane = this.laneHeight,
      wide = this.markWidth,
      size = Math.max(8, Math.min(12, lane)); // names of low lanes do not overlap
    this.lanes.order.forEach((name, row) => {
      const y = TOP + (row + 0.5) * lane,
        text = typeof name === "number" ? requestName(name) : name;
      ink.text(text, LEFT - 8, y, { weight: 600, size, color: soft, align: "right" });
      ink.fill(LEFT, TOP + Math.round((row + 0.5) * lane), this.width - LEFT - RIGHT, 0.5, line);
    });
    const drawn = new Map<number, number>();
    this.lanes.sets.forEach((sides, i) => {
      const x = this.x(track.base + i + 1) - wide,
        isOther = track.rows[i][3];
      for (const row of this.lanes.rowsOf(sides[0], sides[1])) {
        if (!isOther && Math.floor(x) === drawn.get(row)) continue;
        drawn.set(row, Math.floor(x));
        const y = TOP + row * lane,
          half = lane / 2 - 1;
        if (!isOther) ink.fill(x, y + lane * 0.22, wide, lane * 0.56, line);
        else {
          if (this.lanes.has(sides[0], row)) ink.fill(x, y + 0.5, wide, half, black);
          if (this.lanes.has(sides[1], row)) ink.fill(x, y + 1.5 + half, wide, half, black);
        }
      }
    });
  }

  paintFirstDifference(ink: Ink) {
    const { track } = this.stage,
      { context } = ink;
    if (track.differsAt === null || track.differsAt <= track.base) return;
    const x = Math.round(this.x(track.differsAt) - this.markWidth - 3) + 0.5; // just before the first mark that differs
    context.save();
    context.setLineDash([3, 2]);
    ink.lines(ink.theme.ink, 1.5, [x, TOP - 2, x, this.height - BOTTOM + 2]);
    context.restore();
    const text = "first difference";
    ink.font({ weight: 600 });
    const wide = ink.width(text),
      pen = this.x(this.stage.position);
    const isFree = (at: number) =>
      at > LEFT &&
      at + wide < this.width &&
      (pen < at - 8 || pen > at + wide + 8) &&
      !this.stepNames.some(([a, b]) => at < b + 4 && a - 4 < at + wide);
    const at = [x - wide - 6, x + 6].find(isFree);
    if (at !== undefined) ink.text(text, at, this.height - 7, { weight: 600 });
  }

  paintPen(ink: Ink) {
    const x = this.x(this.stage.position),
      color = ink.theme.ink,
      bottom = this.height - BOTTOM + 2; // the names of the steps stay readable
    ink.fill(x - 1, 2, 2, bottom - 2, color);
    ink.polygon(color, [x - 5, bottom], [x + 5, bottom], [x, bottom - 7]);
  }

  paintStops(ink: Ink) {
    const { track, position } = this.stage,
      { context, theme } = ink,
      current = track.guideAt(position),
      y = STOP_RADIUS + 2;
    for (const [stop, , x] of this.signs()) {
      const [ground, letter] = stop === current ? [theme.ink, theme.paper] : [theme.paper, theme.ink];
      context.beginPath();
      context.arc(x, y, STOP_RADIUS, 0, 2 * Math.PI);
      context.fillStyle = ground;
      context.strokeStyle = theme.ink;
      context.lineWidth = 1.25;
      context.fill();
      context.stroke();
      ink.text(String(stop + 1), x, y + 0.5, { weight: 700, color: letter, align: "center" });
    }
  }
}
