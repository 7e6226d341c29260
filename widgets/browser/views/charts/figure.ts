// One chart: a figure of each step as a line, or as stacked bars, with the axis and the pen.

import { element, takeKey, write } from "../../look/element.ts";
import type { Recording } from "../../model/recording.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import type { Ink } from "../canvas.ts";
import { Picture } from "../canvas.ts";
import type { ViewHost } from "../view.ts";
import { moveToMoment } from "../view.ts";
import type { FigureKind } from "./kinds.ts";
import { axisLabel, scaleOf } from "./kinds.ts";

const TOP = 6,
  BOTTOM = 15,
  LEAST_STEPS = 12,
  UP_TO_CUT = 0.7; // of the height, for the values that are not torn

// The interface of the view that has all four charts.
interface ChartsHost {
  stage: ViewHost;
  side: Side;
  story: Story;
  hovered: number | null;
  marked: number[];
  isInside: boolean;
  hover(index: number | null): void;
}

export class Figure {
  most = 1;
  isCut = false;
  said = element("span", "le-chart-said");
  head = element("figcaption", "le-chart-head le-wrap", {}, element("b", "", this.figure.name), this.said);
  picture = new Picture();
  canvas = this.picture.canvas;
  element = element("figure", "le-chart", {}, this.head, this.canvas);
  values: number[] | null = null;
  stacked!: number[] | null;
  tops!: number[];
  current!: number;
  count!: number;
  span!: number;
  left!: number;
  width!: number;
  height!: number;

  constructor(
    readonly figure: FigureKind,
    readonly charts: ChartsHost,
  ) {
    Object.assign(this.canvas, { tabIndex: 0, role: "img", title: "click a step to show its end (← →)" });
    this.canvas.addEventListener("pointermove", (event) => charts.hover(this.indexAt(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => charts.hover(null));
    this.canvas.addEventListener("click", (event) => this.moveTo(this.indexAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event: KeyboardEvent) {
    const go = (by: number) => () => this.moveTo(Math.max(0, Math.min(this.count - 1, this.current + by)));
    takeKey(event, { ArrowLeft: go(-1), ArrowRight: go(1) });
  }

  moveTo(index: number | null) {
    const { charts } = this;
    if (index !== null && index >= 0) moveToMoment(charts.stage, charts.side, charts.story.series.moment[index]);
  }

  indexAt(x: number) {
    const index = Math.floor(((x - this.left) / this.width) * this.span);
    return index >= 0 && index < this.count ? index : null;
  }

  x(index: number) {
    return this.left + ((index + 0.5) / this.span) * this.width;
  }

  // The drawn values and the axis's height, computed again when the run has new steps.
  measure(story: Story, recording: Recording) {
    const { figure } = this,
      values = (this.values = figure.values(story, recording));
    if (values === null) return;
    const stacked = (this.stacked = figure.stacked?.(story) ?? null),
      most = figure.most?.(story);
    this.tops = stacked ? values.map((value, i) => value + stacked[i]) : (figure.peaks?.(story) ?? values);
    const scale = most === undefined ? scaleOf(this.tops) : { most, isCut: false };
    this.most = scale.most;
    this.isCut = scale.isCut;
  }

  paint(story: Story, recording: Recording, current: number, isNew: boolean) {
    const { canvas, figure, charts } = this;
    if (isNew) this.measure(story, recording);
    this.element.hidden = this.values === null;
    if (this.values === null || !this.picture.measure()) return;
    const { width, height } = this.picture.size,
      ink = this.picture.begin(charts.stage.theme),
      { stacked } = this;
    let room = LEAST_STEPS;
    while (room < this.values.length) room = Math.ceil(room * 1.5);
    const isLive = recording.header.is_live !== false;
    ink.font();
    const left = Math.max(34, Math.ceil(ink.width(axisLabel(this.most, figure.unit))) + 8);
    this.current = current;
    this.count = this.values.length;
    this.span = isLive ? room : Math.max(1, this.values.length);
    this.left = left;
    this.width = Math.max(1, width - left - 6);
    this.height = height - TOP - BOTTOM;
    this.paintFrame(ink, story.series.step, height);
    if (stacked) this.paintBars(ink, this.values);
    else this.paintLine(ink, this.values);
    if (this.isCut) this.paintCuts(ink);
    this.paintPen(ink);
    const shown = charts.hovered ?? current;
    write(
      this.said,
      shown >= 0 ? `step ${story.series.step[shown]}: ${figure.say(story, shown, recording)}` : "no step yet",
    );
    canvas.ariaLabel = `${figure.name}. ${this.said.textContent}`;
    this.head.title = this.said.textContent;
  }

  // Where some values are torn, the axis ends lower, so that none of the others is as high as they are.
  y(value: number) {
    const top = this.isCut ? UP_TO_CUT : 1,
      share = value > this.most ? 1 : (top * value) / this.most;
    return TOP + this.height * (1 - share);
  }

  // What is higher than the axis is torn between its end and the top; its height is written there, if there is room.
  paintCuts(ink: Ink) {
    const { paper } = ink.theme,
      step = this.width / this.span,
      w = Math.max(2, step);
    let free = -Infinity;
    this.tops.forEach((value, i) => {
      if (value <= this.most) return;
      const x = this.left + i * step,
        text = axisLabel(value, this.figure.unit),
        tear = TOP + (this.height * (1 - UP_TO_CUT)) / 2;
      for (const y of [tear, tear + 4]) ink.fill(x - 1, y, w + 3, 2, paper);
      ink.font();
      const wide = ink.width(text),
        at = Math.min(x + w + 3, this.left + this.width - wide);
      if (at < free) return;
      free = at + wide + 6;
      ink.fill(at - 2, TOP + 1, wide + 4, 14, paper);
      ink.label(text, at, TOP + 8);
    });
  }

  paintFrame(ink: Ink, steps: number[], height: number) {
    const { line, soft: color } = ink.theme,
      last = steps.length - 1;
    for (const share of [0, 1]) {
      const y = this.y(share * this.most),
        text = axisLabel(share * this.most, this.figure.unit);
      ink.fill(this.left, Math.round(y), this.width, 1, share ? color : line);
      ink.label(text, this.left - 5, y + (share ? 3 : -3), { color, align: "right" });
    }
    for (const i of last > 0 && this.x(last) - this.x(0) > 24 ? [0, last] : steps.length ? [0] : [])
      ink.label(String(steps[i]), this.x(i), height - 6, { color, align: "center" });
  }

  // Each pixel shows the range of the steps that share it, so that no peak is lost.
  paintLine({ context, theme }: Ink, values: number[]) {
    const { tops } = this;
    context.fillStyle = theme.ink;
    context.globalAlpha = 0.14;
    this.eachPixel(values, tops, (x, w, _low, high) => context.fillRect(x, this.y(high), w, this.y(0) - this.y(high)));
    context.globalAlpha = 1;
    let before: number | null = null;
    this.eachPixel(values, tops, (x, w, low, _high, first) => {
      const y = this.y(low),
        from = before ?? y;
      context.fillRect(x, y - 1, w + 1, 2);
      context.fillRect(x, Math.min(y, from) - 1, 1.5, Math.abs(y - from) + 2);
      before = this.y(values[first]);
    });
    context.globalAlpha = 0.55;
    this.eachPixel(values, tops, (x, w, low, high) => {
      if (high > low) context.fillRect(x, this.y(high) - 0.5, w, 1);
    });
    context.globalAlpha = 1;
  }

  paintBars(ink: Ink, values: number[]) {
    const { context, theme } = ink;
    context.fillStyle = theme.ink;
    this.eachPixel(values, values, (x, w, _low, high) => {
      context.globalAlpha = 0.7;
      context.fillRect(x, this.y(high), w, this.y(0) - this.y(high));
    });
    context.globalAlpha = 1;
    this.eachPixel(values, this.tops, (x, w, _low, high, first) => {
      const y = this.y(high),
        bottom = this.y(Math.max(0, values[first]));
      if (high <= values[first]) return;
      if (w > 3) ink.hatch({ x, y, w, h: bottom - y }, theme.ink, 4, 1);
      context.strokeStyle = theme.ink;
      context.lineWidth = 1;
      if (w > 3) context.strokeRect(x + 0.5, y + 0.5, w - 1, bottom - y - 0.5);
      else {
        context.fillRect(x, y, Math.max(1, w), 1);
        context.globalAlpha = 0.3;
        context.fillRect(x, y, Math.max(1, w), bottom - y);
        context.globalAlpha = 1;
      }
    });
  }

  eachPixel(
    lows: number[],
    highs: number[],
    act: (x: number, w: number, low: number, high: number, first: number) => void,
  ) {
    const step = this.width / this.span,
      w = Math.max(1, step - (step > 4 ? 1 : 0));
    for (let i = 0; i < this.count; ) {
      const first = i,
        pixel = Math.floor(i * step);
      let low = lows[i],
        high = highs[i];
      for (i += 1; i < this.count && Math.floor(i * step) === pixel; i++) {
        low = Math.min(low, lows[i]);
        high = Math.max(high, highs[i]);
      }
      act(this.left + first * step, w, low, high, first);
    }
  }

  paintPen(ink: Ink) {
    const { hovered, marked, isInside } = this.charts,
      { accent, soft } = ink.theme,
      w = Math.max(3, Math.min(8, this.width / this.span - 1));
    if (hovered !== null) ink.fill(this.x(hovered) - 0.5, TOP, 1, this.height, soft);
    for (const index of marked) ink.fill(this.x(index) - w / 2, TOP + this.height + 2, w, 3, accent);
    if (this.current < 0 && !isInside) return;
    ink.fill(this.x(this.current + (isInside ? 0.5 : 0)) - 1, TOP - 4, 2, this.height + 8, accent);
  }
}
