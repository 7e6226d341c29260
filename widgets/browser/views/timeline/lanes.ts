// The lanes of requests: which row each one has, and how its states are drawn.

import { countUpTo } from "../../model/arrays.ts";
import { requestName } from "../../model/names.ts";
import type { Story, StoryLane } from "../../model/story.ts";
import { STATE } from "../../model/story.ts";
import type { Axis } from "../axis.ts";
import type { Ink } from "../canvas.ts";
import type { Rect } from "../view.ts";
import type { Pattern } from "./bar.ts";

const LEAST_LANE = 10,
  MOST_LANE = 22;

// A lane, its row, and the moment from which it is drawn.
type PlacedLane = [lane: StoryLane, row: number, from?: number];

export class Lanes {
  story!: Story;
  top = 0;
  placed: PlacedLane[] = [];
  height = MOST_LANE; // of a row
  isPacked = false; // requests share rows
  numHidden = 0;

  constructor(readonly axis: Axis) {}

  // A lane each while they fit; else requests share rows, one after the other, from when they first run, and rows get
  // thinner.
  lay(story: Story, top: number, room: number) {
    const { axis } = this;
    this.story = story;
    this.top = top;
    const seen = [...story.lanes.values()].filter(
      (lane) => lane.at.length && lane.at[0] < axis.to && endOf(lane, story.end) > axis.from,
    );
    seen.sort((a, b) => a.id - b.id);
    this.isPacked = seen.length * LEAST_LANE > room;
    if (this.isPacked) this.pack(seen, room);
    else {
      this.placed = seen.map((lane, i) => [lane, i]);
      this.height = Math.min(MOST_LANE, room / Math.max(1, seen.length));
      this.numHidden = 0;
    }
  }

  pack(seen: StoryLane[], room: number) {
    const begun = seen
      .map((lane) => ({ lane, from: lane.at[lane.state.findIndex((state) => state !== STATE.waiting)] }))
      .filter(({ from }) => from !== undefined)
      .sort((a, b) => a.from - b.from);
    const ends: number[] = [],
      placed = begun.map(({ lane, from }): PlacedLane => [lane, rowFor(ends, lane, from, this.story.end), from]);
    this.height = Math.max(3, Math.min(MOST_LANE, room / Math.max(1, ends.length)));
    const numRows = Math.floor(room / this.height);
    this.placed = placed.filter(([, row]) => row < numRows);
    this.numHidden = Math.max(0, ends.length - numRows);
  }

  paint(ink: Ink, width: number) {
    const { bottom } = this,
      { context, theme } = ink;
    context.save();
    context.beginPath();
    context.rect(this.axis.left - 1, this.top - 2, width, bottom - this.top + 4);
    context.clip();
    for (const [lane, row, from] of this.placed) this.paintLane(ink, lane, row, from ?? lane.at[0]);
    context.restore();
    if (!this.isPacked) for (const [lane, row] of this.placed) this.paintName(ink, lane, row);
    if (this.numHidden)
      ink.label(`and ${this.numHidden} more at a time`, width - 8, bottom - 8, { color: theme.soft, align: "right" });
  }

  paintLane(ink: Ink, lane: StoryLane, row: number, from: number) {
    const { axis, height } = this,
      y = this.top + row * height,
      h = Math.max(2, height - (height > 7 ? 3 : 1));
    let isNamed = false;
    for (let i = Math.max(0, countUpTo(lane.at, axis.from) - 1); i < lane.at.length && lane.at[i] < axis.to; i++) {
      if (lane.at[i] < from) continue;
      const x = Math.max(axis.left, axis.x(lane.at[i])),
        right = Math.min(axis.x(lane.at[i + 1] ?? this.story.end), axis.left + axis.width);
      const rect = { x, y, w: Math.max(0.75, right - x), h };
      paintState(ink, rect, lane.state[i]);
      if (this.isPacked && !isNamed && height > 9) isNamed = nameLane(ink, lane, i, rect);
    }
  }

  paintName(ink: Ink, lane: StoryLane, row: number) {
    const y = this.top + row * this.height + (this.height - 3) / 2 + 0.5;
    ink.label(requestName(lane.id), this.axis.left - 6, y, { weight: 700, align: "right" });
  }

  paintRing({ context }: Ink, request: number, color: string, dash: number[] = []) {
    const found = this.placed.find(([lane]) => lane.id === request);
    if (!found) return;
    const { axis } = this,
      x = Math.max(axis.left, axis.x(found[2] ?? found[0].at[0])),
      right = Math.min(axis.left + axis.width, axis.x(endOf(found[0], this.story.end)));
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.setLineDash(dash);
    context.strokeRect(x - 1, this.top + found[1] * this.height - 1.5, right - x + 2, this.height);
    context.setLineDash([]);
  }

  // The edge below the lanes.
  get bottom() {
    return this.top + this.height * placesOf(this.placed);
  }

  // The request whose lane is at a place on the canvas; undefined where there is none.
  requestAt(x: number, y: number) {
    const row = Math.floor((y - this.top) / this.height),
      moment = Math.floor(this.axis.momentAt(x));
    const found = this.placed.find(
      ([lane, place, from]) =>
        place === row &&
        (x < this.axis.left || ((from ?? lane.at[0]) <= moment && moment <= endOf(lane, this.story.end))),
    );
    return found?.[0].id;
  }
}

function placesOf(placed: PlacedLane[]) {
  return placed.reduce((most, [, row]) => Math.max(most, row + 1), 0);
}

// A finished request's lane ends a little after its end; any other lasts.
function endOf(lane: StoryLane, end: number) {
  return lane.state.at(-1) === STATE.finished ? lane.at[lane.at.length - 1] + 1 : end;
}

function rowFor(ends: number[], lane: StoryLane, from: number, end: number) {
  let row = ends.findIndex((last) => last <= from);
  if (row < 0) row = ends.length;
  ends[row] = endOf(lane, end);
  return row;
}

// Its letter, in the first stretch that has room for it.
function nameLane(ink: Ink, lane: StoryLane, i: number, { x, y, w, h }: Rect) {
  if (lane.state[i] !== STATE.waiting && lane.state[i] !== STATE.decode) return false;
  return ink.label(requestName(lane.id), x + 3, y + h / 2 + 0.5, { weight: 700, room: w - 4 });
}

// Pale hues, because a state is not an alarm, and a pattern each, so that none depends on its hue: waiting is hollow,
// prefill striped, decode solid, preempted crossed out, loading dotted, finished a short bar.
const STATE_HUES: Record<number, string> = {
  [STATE.prefill]: "#8f7fc4",
  [STATE.decode]: "#7fa3c7",
  [STATE.preempted]: "#c9a25a",
};

function paintState(ink: Ink, rect: Rect, state: number) {
  const { context, theme } = ink,
    { x, y, w, h } = rect,
    hue = STATE_HUES[state];
  context.save();
  context.strokeStyle = context.fillStyle = hue ?? theme.soft;
  context.lineWidth = 1;
  if (state === STATE.finished) {
    context.fillStyle = theme.ink;
    context.fillRect(x, y - 1, 2, h + 2);
  } else if (state === STATE.decode) {
    context.globalAlpha = theme.isDark ? 0.75 : 0.6;
    context.fillRect(x, y, w, h);
  } else if (state === STATE.prefill) {
    tint(ink, rect);
    ink.hatch(rect, hue, 4, 1.6);
    frame(ink, rect);
  } else if (state === STATE.preempted) {
    tint(ink, rect);
    ink.hatch(rect, hue, 6, 1);
    ink.hatch(rect, hue, 6, 1, true);
    context.setLineDash([3, 2]);
    frame(ink, rect);
  } else {
    if (state === STATE.loading)
      for (let dot = x + 2; dot < x + w - 1; dot += 5) context.fillRect(dot, y + h / 2 - 1, 2, 2);
    context.setLineDash([2, 2]);
    frame(ink, rect);
  }
  context.restore();
}

function tint({ context }: Ink, { x, y, w, h }: Rect) {
  context.globalAlpha = 0.28;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
}

function frame({ context }: Ink, { x, y, w, h }: Rect) {
  if (w > 3 && h > 3) context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

export function legend(): Pattern[] {
  return (["waiting", "prefill", "decode", "preempted"] as const).map((name) => ({
    name,
    paint: (ink, rect) => paintState(ink, rect, STATE[name]),
  }));
}
