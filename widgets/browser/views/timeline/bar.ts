// The line above the timeline: the key to the patterns, the shown moment, and the zoom. Its keys are the view's.

import { button, element, takeKey } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import type { Side } from "../../model/side.ts";
import { storyOf } from "../../model/story.ts";
import { Ink } from "../canvas.ts";
import type { Rect, ViewHost } from "../view.ts";
import { moveToMoment } from "../view.ts";
import type { Board } from "./board.ts";

// A pattern of the key, painted as a swatch.
export interface Pattern {
  name: string;
  isOfBlocks?: boolean; // left out where a row has many blocks
  paint: (ink: Ink, rect: Rect) => void;
}

export type TimeBar = ReturnType<typeof timeBar>;

export function timeBar(stage: ViewHost, side: Side, board: Board, moment: () => number, patterns: Pattern[]) {
  const words = element("span", "le-time-words le-clip"),
    swatches = patterns.map((pattern) => swatch(pattern)),
    key = element("span", "le-time-key le-wrap", {}, ...swatches.map(({ item }) => item));
  const zoomBy = (direction: number) => board.zoom(direction, moment()),
    earlier = small("‹ earlier", "fetch earlier events", () => stage.askOlder()),
    zoom = element(
      "span",
      "le-time-zoom",
      {},
      earlier,
      small("−", "zoom out (-)", () => zoomBy(-1)),
      small("+", "zoom in (+), or Ctrl and the wheel; Shift and the wheel pan", () => zoomBy(1)),
      small("all", "the whole run (0)", () => zoomBy(0)),
    );
  const ended = new AbortController();
  board.canvas.addEventListener("keydown", (event) => onKey(event), { signal: ended.signal });
  let painted: Theme | null = null;

  function onKey(event: KeyboardEvent) {
    takeKey(event, {
      "+": () => zoomBy(1),
      "=": () => zoomBy(1),
      "-": () => zoomBy(-1),
      0: () => zoomBy(0),
      ArrowLeft: () => move(-1, event),
      ArrowRight: () => move(1, event),
    });
  }

  function move(direction: number, event: KeyboardEvent) {
    const { recording } = side,
      to = event.shiftKey ? stepAway(direction) : moment() + direction;
    moveToMoment(stage, side, Math.min(recording.end, Math.max(recording.start, to)));
  }

  function stepAway(direction: number) {
    const { recording } = side,
      ends = storyOf(recording).series.moment;
    if (direction > 0) return ends.find((end) => end > moment()) ?? recording.end;
    return ends.findLast((end) => end < moment()) ?? recording.start;
  }

  function sayWhere(at: number) {
    const { recording } = side,
      found = recording.stepAt(at),
      where = `${at.toLocaleString()} of ${recording.end.toLocaleString()} events`;
    if (!found) return `before the first step · ${where}`;
    const { end, step } = found;
    return `${end === null || at < end ? "in" : "after"} step ${step.toLocaleString()} · ${where}`;
  }

  return {
    element: element("div", "le-time-bar le-row le-fine", {}, key, words, zoom),
    words: sayWhere,
    update(at: number) {
      words.textContent = sayWhere(at);
      earlier.hidden = !stage.wire.canAsk || side.recording.start <= side.recording.first;
      if (painted !== stage.theme) for (const { paint } of swatches) paint(stage.theme);
      painted = stage.theme;
    },
    destroy: () => ended.abort(),
  };
}

function swatch({ name, isOfBlocks, paint }: Pattern) {
  const canvas = element("canvas", "", { ariaHidden: "true" }),
    item = element("span", `le-time-swatch${isOfBlocks ? " le-time-of-blocks" : ""}`, {}, canvas, name);
  return { item, paint: (theme: Theme) => paintSwatch(canvas, paint, theme) };
}

function paintSwatch(canvas: HTMLCanvasElement, paint: Pattern["paint"], theme: Theme) {
  const ratio = window.devicePixelRatio || 1,
    context = canvas.getContext("2d") as CanvasRenderingContext2D;
  canvas.width = 22 * ratio;
  canvas.height = 12 * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint(new Ink(context, theme), { x: 1, y: 1, w: 20, h: 10 });
}

function small(text: string, title: string, act: () => void) {
  return Object.assign(button(text, title, act, "le-time-button"), { ariaLabel: title });
}
