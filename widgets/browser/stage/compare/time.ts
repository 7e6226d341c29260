// One time line for both sides: a column per caption, a lane per request and one for the pool; a vertical rule at the
// first difference. Drag to scrub.

import { element } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import { requestName } from "../../model/names.ts";
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
  "Pale: an event on both sides. Strong: on one side, or otherwise there: the left side's above, the right " +
  "side's below.";

export class PairTime {
  stage: PairStage;
  lanes: CaptionLanes;
  element = element("div", "le-pair-time");
  canvas = element("canvas");
  sizes: ResizeObserver;
  width!: number;
  height!: number;
  pictured?: string;
  picturedTheme?: Theme;
  picture?: HTMLCanvasElement;
  stepNames!: [from: number, to: number][];

  constructor(stage: PairStage) {
    this.stage = stage;
    this.lanes = new CaptionLanes(stage);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("aria-label", "Time of both sides, caption by caption. Arrow keys step, drag to scrub.");
    this.element.append(this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => this.grab(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    this.sizes = new ResizeObserver(() => this.stage.changed());
    this.sizes.observe(this.canvas);
    stage.end.signal.addEventListener("abort", () => this.sizes.disconnect());
  }

  // -- where things are

  x(position: number) {
    const { track } = this.stage,
      total = Math.max(1, track.lastCaption - track.base);
    return LEFT + ((position - track.base) / total) * (this.width - LEFT - RIGHT);
  }

  positionAt(x: number) {
    const { track } = this.stage,
      total = Math.max(1, track.lastCaption - track.base);
    return Math.max(
      track.first,
      Math.min(track.end, track.base + Math.round(((x - LEFT) / (this.width - LEFT - RIGHT)) * total)),
    );
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

  paint() {
    const { canvas, stage } = this,
      ratio = window.devicePixelRatio || 1,
      { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio))
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.width = width;
    this.height = height;
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.still(canvas, ratio), 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
    this.paintAhead(context, stage.theme);
    this.paintFirstDifference(context, stage.theme);
    this.paintPen(context, stage.theme);
    this.paintStops(context, stage.theme);
    this.describePosition();
  }

  // Steps and lanes are drawn once, until there is more of them.
  still({ width, height }: HTMLCanvasElement, ratio: number) {
    const { track, theme } = this.stage,
      name = [width, height, track.base, track.end, track.lastCaption].join();
    if (this.picture && this.pictured === name && this.picturedTheme === theme && this.lanes.last === track.rows.at(-1))
      return this.picture;
    this.pictured = name;
    this.picturedTheme = theme;
    this.lanes.read();
    this.picture ??= document.createElement("canvas");
    Object.assign(this.picture, { width, height });
    const context = this.picture.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintSteps(context, theme);
    this.paintLanes(context, theme);
    return this.picture;
  }

  // Events after the shown moment are paler.
  paintAhead(context: CanvasRenderingContext2D, theme: Theme) {
    const x = this.x(this.stage.position) + 1;
    context.globalAlpha = 0.5;
    context.fillStyle = theme.paper;
    context.fillRect(x, TOP, this.width - x, this.height - TOP - BOTTOM);
    context.globalAlpha = 1;
  }

  describePosition() {
    const { track, position } = this.stage,
      words = [`caption ${position - track.base} of ${track.lastCaption - track.base}`];
    if (track.differsAt !== null) words.push(`first difference at caption ${track.differsAt - track.base}`);
    for (const [name, value] of [
      ["valuenow", position],
      ["valuemin", track.first],
      ["valuemax", track.end],
      ["valuetext", words.join("; ")],
    ])
      this.canvas.setAttribute(`aria-${name}`, String(value));
  }

  paintSteps(context: CanvasRenderingContext2D, theme: Theme) {
    const { track } = this.stage;
    context.font = `12px ${theme.ui}`;
    context.textBaseline = "middle";
    const spans = track.spans.map(({ step }, i) => ({
      step,
      x: this.x(track.spanOf(i).start),
      right: this.x(track.spanOf(i).end),
    }));
    context.fillStyle = theme.faint;
    for (const { step, x, right } of spans) if (step % 2) context.fillRect(x, TOP, right - x, this.height - TOP);
    context.fillStyle = theme.soft;
    this.stepNames = [];
    for (const span of spans) this.paintStepName(context, span);
    this.paintMeaning(context, theme, (this.stepNames.at(-1)?.[1] ?? 0) + 12);
  }

  // In full, or the number alone, or not at all: a name stays within its step, and behind the name before it.
  paintStepName(
    context: CanvasRenderingContext2D,
    { step, x, right }: { step: number | null; x: number; right: number },
  ) {
    const from = x + 7,
      free = (this.stepNames.at(-1)?.[1] ?? 0) + 5;
    for (const text of [`step ${step}`, String(step)]) {
      const to = from + context.measureText(text).width;
      if (from < free || to > Math.min(right, this.width - 8)) continue;
      context.fillText(text, from, this.height - 7);
      this.stepNames.push([from, to]);
      return;
    }
  }

  // The key to the marks, where the names of the steps leave room.
  paintMeaning(context: CanvasRenderingContext2D, theme: Theme, free: number) {
    const right = this.width - RIGHT,
      left = right - context.measureText(MEANING).width;
    if (left < free) return;
    this.stepNames.push([left, right]); // so much is taken
    context.fillStyle = theme.soft;
    context.textAlign = "right";
    context.fillText(MEANING, right, this.height - 7);
    context.textAlign = "left";
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
  paintLanes(context: CanvasRenderingContext2D, theme: Theme) {
    const { track } = this.stage,
      lane = this.laneHeight,
      wide = this.markWidth;
    context.font = `600 ${Math.max(8, Math.min(12, lane))}px ${theme.ui}`; // names of low lanes do not overlap
    this.lanes.order.forEach((name, row) => {
      context.fillStyle = theme.soft;
      context.textAlign = "right";
      context.fillText(typeof name === "number" ? requestName(name) : name, LEFT - 8, TOP + (row + 0.5) * lane);
      context.fillStyle = theme.line;
      context.fillRect(LEFT, TOP + Math.round((row + 0.5) * lane), this.width - LEFT - RIGHT, 0.5);
    });
    context.textAlign = "left";
    const drawn = new Map<number, number>();
    this.lanes.sets.forEach((sides, i) => {
      const x = this.x(track.base + i + 1) - wide,
        isOther = track.rows[i][3];
      for (const row of this.lanes.rowsOf(sides[0], sides[1])) {
        if (!isOther && Math.floor(x) === drawn.get(row)) continue;
        drawn.set(row, Math.floor(x));
        const y = TOP + row * lane,
          half = lane / 2 - 1;
        if (!isOther) this.bar(context, x, y + lane * 0.22, wide, lane * 0.56, theme.line);
        else {
          if (this.lanes.has(sides[0], row)) this.bar(context, x, y + 0.5, wide, half, theme.ink);
          if (this.lanes.has(sides[1], row)) this.bar(context, x, y + 1.5 + half, wide, half, theme.ink);
        }
      }
    });
  }

  bar(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, colour: string) {
    context.fillStyle = colour;
    context.fillRect(x, y, w, h);
  }

  paintFirstDifference(context: CanvasRenderingContext2D, theme: Theme) {
    const { track } = this.stage;
    if (track.differsAt === null || track.differsAt <= track.base) return;
    const x = Math.round(this.x(track.differsAt) - this.markWidth - 3) + 0.5; // just before the first mark that differs
    context.save();
    context.strokeStyle = theme.ink;
    context.setLineDash([3, 2]);
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, TOP - 2);
    context.lineTo(x, this.height - BOTTOM + 2);
    context.stroke();
    const text = "first difference";
    context.font = `600 12px ${theme.ui}`;
    const wide = context.measureText(text).width,
      pen = this.x(this.stage.position),
      [left, right] = [x - wide - 6, x + 6];
    const isFree = (at: number) =>
      at > LEFT &&
      at + wide < this.width &&
      (pen < at - 8 || pen > at + wide + 8) &&
      !this.stepNames.some(([a, b]) => at < b + 4 && a - 4 < at + wide);
    const at = [left, right].find(isFree) ?? left;
    context.fillStyle = theme.ink;
    if (isFree(at)) context.fillText(text, at, this.height - 7);
    context.restore();
  }

  paintPen(context: CanvasRenderingContext2D, theme: Theme) {
    const x = this.x(this.stage.position);
    context.fillStyle = theme.ink;
    const bottom = this.height - BOTTOM + 2; // the names of the steps stay readable
    context.fillRect(x - 1, 2, 2, bottom - 2);
    context.beginPath();
    context.moveTo(x - 5, bottom);
    context.lineTo(x + 5, bottom);
    context.lineTo(x, bottom - 7);
    context.fill();
  }

  paintStops(context: CanvasRenderingContext2D, theme: Theme) {
    const { track, position } = this.stage,
      current = track.guideAt(position);
    context.font = `700 12px ${theme.ui}`;
    context.textAlign = "center";
    const y = STOP_RADIUS + 2;
    for (const [stop, , x] of this.signs()) {
      context.beginPath();
      context.arc(x, y, STOP_RADIUS, 0, 2 * Math.PI);
      context.fillStyle = stop === current ? theme.ink : theme.paper;
      context.strokeStyle = theme.ink;
      context.lineWidth = 1.25;
      context.fill();
      context.stroke();
      context.fillStyle = stop === current ? theme.paper : theme.ink;
      context.fillText(String(stop + 1), x, y + 0.5);
    }
    context.textAlign = "left";
  }
}
