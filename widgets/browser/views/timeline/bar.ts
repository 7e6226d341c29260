// The line above the timeline: the key to the patterns, the shown moment, and the zoom. Its keys are the view's.

import { element } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import type { Side } from "../../model/side.ts";
import { storyOf } from "../../model/story.ts";
import type { Rect, ViewHost } from "../view.ts";
import { moveToMoment } from "../view.ts";
import type { Board } from "./board.ts";

// A pattern of the key, painted as a swatch.
export interface Pattern {
  name: string;
  isOfBlocks?: boolean; // left out where a row has many blocks
  paint: (context: CanvasRenderingContext2D, rect: Rect, theme: Theme) => void;
}

export type TimeBar = ReturnType<typeof timeBar>;

export function timeBar(stage: ViewHost, side: Side, board: Board, moment: () => number, patterns: Pattern[]) {
  const bar = element("div", "le-time-bar"),
    words = element("span", "le-time-words"),
    swatches = patterns.map((pattern) => swatch(pattern));
  const key = element("span", "le-time-key");
  for (const { item } of swatches) key.append(item);
  const zoom = element("span", "le-time-zoom");
  const zoomBy = (direction: number) => board.zoom(direction, moment());
  zoom.append(
    button("−", "zoom out (-)", () => zoomBy(-1)),
    button("+", "zoom in (+), or Ctrl and the wheel; Shift pans", () => zoomBy(1)),
    button("all", "the whole run (0)", () => zoomBy(0)),
  );
  const earlier = button("‹ earlier", "fetch what happened before", () => stage.askOlder());
  zoom.prepend(earlier);
  bar.append(key, words, zoom);
  const ended = new AbortController();
  board.canvas.addEventListener("keydown", (event) => onKey(event), { signal: ended.signal });
  let painted: Theme | null = null;

  function onKey(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts: Record<string, () => void> = {
      "+": () => zoomBy(1),
      "=": () => zoomBy(1),
      "-": () => zoomBy(-1),
      0: () => zoomBy(0),
      ArrowLeft: () => move(-1, event),
      ArrowRight: () => move(1, event),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
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
      story = storyOf(recording),
      index = story.stepIndex(at);
    const where = `${at.toLocaleString()} of ${recording.end.toLocaleString()} events`;
    if (index < 0) return `before the first step · ${where}`;
    const end = story.steps.end[index];
    const step = story.steps.number[index].toLocaleString();
    return `${end === null || at < end ? "in" : "after"} step ${step} · ${where}`;
  }

  return {
    element: bar,
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
  const item = element("span", `le-time-swatch${isOfBlocks ? " le-time-of-blocks" : ""}`),
    canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  item.append(canvas, element("span", "", name));
  return { item, paint: (theme: Theme) => paintSwatch(canvas, paint, theme) };
}

function paintSwatch(canvas: HTMLCanvasElement, paint: Pattern["paint"], theme: Theme) {
  const ratio = window.devicePixelRatio || 1,
    context = canvas.getContext("2d") as CanvasRenderingContext2D;
  canvas.width = 22 * ratio;
  canvas.height = 12 * ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint(context, { x: 1, y: 1, w: 20, h: 10 }, theme);
}

function button(text: string, about: string, act: () => void) {
  const made = element("button", "le-button le-time-button", text);
  made.type = "button";
  made.title = about;
  made.setAttribute("aria-label", about);
  made.addEventListener("click", act);
  return made;
}
