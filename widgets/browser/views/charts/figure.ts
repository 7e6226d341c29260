// One chart: a figure of each step as a line, or as stacked bars, with the axis and the pen.

import { element, write } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import type { Recording } from "../../model/recording.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import { hatch, label } from "../canvas.ts";
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
  figure: FigureKind;
  charts: ChartsHost;
  element = element("figure", "le-chart");
  head = element("figcaption", "le-chart-head");
  said = element("span", "le-chart-said");
  canvas = document.createElement("canvas");
  values: number[] | null = null;
  stacked!: number[] | null;
  tops!: number[];
  current!: number;
  count!: number;
  span!: number;
  left!: number;
  width!: number;
  height!: number;

  constructor(figure: FigureKind, charts: ChartsHost) {
    this.figure = figure;
    this.charts = charts;
    this.head.append(element("b", "", figure.name), this.said);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.title = "click a step: show its end (← →)";
    this.element.append(this.head, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => charts.hover(this.indexAt(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => charts.hover(null));
    this.canvas.addEventListener("click", (event) => this.moveTo(this.indexAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event: KeyboardEvent) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key as "ArrowLeft"];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    this.moveTo(Math.max(0, Math.min(this.count - 1, this.current + by)));
    event.preventDefault();
    event.stopPropagation();
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
    const { canvas, figure, charts } = this,
      { theme } = charts.stage;
    if (isNew) this.measure(story, recording);
    this.element.hidden = this.values === null;
    if (this.values === null || !canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1,
      { clientWidth: w, clientHeight: h } = canvas;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio))
      Object.assign(canvas, { width: Math.round(w * ratio), height: Math.round(h * ratio) });
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, w, h);
    const { stacked } = this;
    let room = LEAST_STEPS;
    while (room < this.values.length) room = Math.ceil(room * 1.5);
    const isLive = recording.header.is_live !== false;
    context.font = `12px ${theme.ui}`;
    const left = Math.max(34, Math.ceil(context.measureText(axisLabel(this.most, figure.unit)).width) + 8);
    this.current = current;
    this.count = this.values.length;
    this.span = isLive ? room : Math.max(1, this.values.length);
    this.left = left;
    this.width = Math.max(1, w - left - 6);
    this.height = h - TOP - BOTTOM;
    this.paintFrame(context, story, theme, h);
    if (stacked) this.paintBars(context, this.values, theme);
    else this.paintLine(context, this.values, theme);
    if (this.isCut) this.paintCuts(context, theme);
    this.paintPen(context, theme);
    const shown = charts.hovered ?? current;
    write(
      this.said,
      shown >= 0 ? `step ${story.series.step[shown]}: ${figure.say(story, shown, recording)}` : "no step yet",
    );
    canvas.setAttribute("aria-label", `${figure.name}. ${this.said.textContent}`);
    this.head.title = this.said.textContent;
  }

  // Where some values are torn, the axis ends lower, so that none of the others is as high as they are.
  y(value: number) {
    const top = this.isCut ? UP_TO_CUT : 1,
      share = value > this.most ? 1 : (top * value) / this.most;
    return TOP + this.height * (1 - share);
  }

  // What is higher than the axis is torn between its end and the top, and its height is written there, where there is
  // room.
  paintCuts(context: CanvasRenderingContext2D, theme: Theme) {
    const step = this.width / this.span,
      w = Math.max(2, step);
    let free = -Infinity;
    this.tops.forEach((value, i) => {
      if (value <= this.most) return;
      const x = this.left + i * step,
        text = axisLabel(value, this.figure.unit),
        font = `12px ${theme.ui}`;
      context.fillStyle = theme.paper;
      const tear = TOP + (this.height * (1 - UP_TO_CUT)) / 2;
      for (const y of [tear, tear + 4]) context.fillRect(x - 1, y, w + 3, 2);
      context.font = font;
      const wide = context.measureText(text).width,
        at = Math.min(x + w + 3, this.left + this.width - wide);
      if (at < free) return;
      free = at + wide + 6;
      context.fillRect(at - 2, TOP + 1, wide + 4, 14);
      label(context, text, at, TOP + 8, null, font, theme.ink);
    });
  }

  paintFrame(context: CanvasRenderingContext2D, story: Story, theme: Theme, h: number) {
    context.fillStyle = theme.line;
    for (const share of [0, 1]) {
      const y = this.y(share * this.most);
      context.fillRect(this.left, Math.round(y), this.width, 1);
      label(
        context,
        axisLabel(share * this.most, this.figure.unit),
        this.left - 5,
        y + (share ? 3 : -3),
        null,
        `12px ${theme.ui}`,
        theme.soft,
        "right",
      );
    }
    const steps = story.series.step;
    if (!steps.length) return;
    label(context, String(steps[0]), this.x(0), h - 6, null, `12px ${theme.ui}`, theme.soft, "center");
    if (steps.length > 1 && this.x(steps.length - 1) - this.x(0) > 24)
      label(
        context,
        String(steps.at(-1)),
        this.x(steps.length - 1),
        h - 6,
        null,
        `12px ${theme.ui}`,
        theme.soft,
        "center",
      );
  }

  // Each pixel shows the range of the steps that share it, so that no peak is lost.
  paintLine(context: CanvasRenderingContext2D, values: number[], theme: Theme) {
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

  paintBars(context: CanvasRenderingContext2D, values: number[], theme: Theme) {
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
      if (w > 3) hatch(context, { x, y, w, h: bottom - y }, theme.ink, 4, 1);
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

  paintPen(context: CanvasRenderingContext2D, theme: Theme) {
    const { hovered } = this.charts;
    if (hovered !== null) {
      context.fillStyle = theme.soft;
      context.fillRect(this.x(hovered) - 0.5, TOP, 1, this.height);
    }
    context.fillStyle = theme.accent;
    const w = Math.max(3, Math.min(8, this.width / this.span - 1));
    for (const index of this.charts.marked) context.fillRect(this.x(index) - w / 2, TOP + this.height + 2, w, 3);
    const { isInside } = this.charts;
    if (this.current < 0 && !isInside) return;
    context.fillRect(this.x(this.current + (isInside ? 0.5 : 0)) - 1, TOP - 4, 2, this.height + 8);
  }
}
