// The run as a score: steps, a tick per event on the line of its topic, and a lane per request. Drag to scrub.

import { element, targetOf } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import { countUpTo } from "../../model/arrays.ts";
import { requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import { storyOf } from "../../model/story.ts";
import type { StoryLane } from "../../model/story_state.ts";
import { STATE, STATE_NAMES, TOPIC_NAMES } from "../../model/story_state.ts";
import { Mentioned } from "../about.ts";
import type { Pattern, TimeBar } from "../time/bar.ts";
import { timeBar } from "../time/bar.ts";
import { Board, drawPen, hatch, label, labelSteps, shownSteps } from "../time/board.ts";
import type { CsvRow, PaintMoment, Rect, Size, Subject, ViewHost } from "../view.ts";
import { eventOf, standAt } from "../view.ts";

export const title = "Timeline";

const STEPS = 15,
  TOPICS = TOPIC_NAMES.length,
  TALL = 190,
  LEAST_LANE = 10,
  MOST_LANE = 22;
const NEAR = 5; // pixels from an alarm's sign
// the one strong colour; whatever else is trouble is ordinary
const ALARMS = new Set(["ViolationFound", "StepFailed", "StepRolledBack", "LoadFailed"]);
const SHORT: Record<string, string> = { "external tier": "tier" };

export function create(stage: ViewHost, side: Side) {
  return new Timeline(stage, side);
}

// Where lanes are drawn: a lane, its row, and the moment from which it is drawn.
interface Rows {
  placed: [lane: StoryLane, row: number, from?: number][];
  height: number;
  isPacked: boolean;
  numHidden: number;
}

class Timeline {
  stage: ViewHost;
  side: Side;
  moment = 0;
  selection: Selection | null = null;
  marked: number[] = [];
  mentioned = new Mentioned();
  lane: number | null = null;
  element = element("div", "le-timeline");
  board: Board;
  bar: TimeBar;
  news?: string;
  rows!: Rows;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.board = new Board("le-timeline-canvas", "Timeline: the moment that is shown, in events", {
      paintAll: (context, size) => this.paintAll(context, size),
      paintOver: (context, size) => this.paintOver(context, size),
      stand: (moment) => standAt(stage, side, moment),
    });
    this.bar = timeBar(stage, side, this.board, () => this.moment, legend());
    const { canvas } = this.board;
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    for (const kind of ["focus", "blur"])
      canvas.addEventListener(kind, () => {
        if (this.news) this.board.paint();
      });
    this.element.append(this.bar.element, canvas);
  }

  get story() {
    return storyOf(this.side.recording);
  }

  paint(_scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const { recording } = this.side,
      { axis } = this.board;
    this.moment = moment;
    const news = `${recording.start}:${recording.end}`;
    if (
      axis.fit(recording.start, recording.end, recording.header.is_live !== false) ||
      news !== this.news ||
      changes.all
    )
      this.board.isStale = true;
    if (axis.reach(moment)) this.board.isStale = true;
    if (news !== this.news) this.findMarked();
    this.news = news;
    this.board.paint();
    this.bar.tell(moment);
  }

  mark(selection: Selection | null) {
    this.selection = selection;
    if (!this.news) return;
    this.findMarked();
    this.board.paint();
  }

  // With room, the lines of the topics are named; without, they are fine print. Lanes begin below them.
  get tick() {
    return this.board.size.height >= TALL ? 13 : 4;
  }

  get lanesTop() {
    return STEPS + 8 + this.tick * TOPICS;
  }

  // Where the run speaks of what is selected.
  findMarked() {
    this.marked = this.mentioned.find(this.side.recording, this.selection);
  }

  resize() {
    this.element.classList.toggle("le-is-low", this.element.clientHeight < 120);
    if (this.news) this.board.paint();
  }

  destroy() {
    this.bar.destroy();
    this.element.remove();
  }

  // -- the quiet part
  // --------------------------------------------------------------------------------------------------

  paintAll(context: CanvasRenderingContext2D, { width, height }: Size) {
    const { story } = this,
      theme = this.stage.theme;
    this.rows = this.layLanes(story, height);
    this.board.axis.left = this.tick > 8 ? 58 : this.rows.isPacked ? 8 : 34;
    this.board.axis.width = Math.max(1, width - this.board.axis.left - 6);
    this.paintSteps(context, story, theme, height);
    this.paintTicks(context, story, theme);
    if (this.tick > 8)
      TOPIC_NAMES.forEach((name, topic) =>
        label(
          context,
          SHORT[name] ?? name,
          this.board.axis.left - 6,
          STEPS + 6 + topic * this.tick,
          null,
          `12px ${theme.ui}`,
          theme.soft,
          "right",
        ),
      );
    context.save();
    context.beginPath();
    context.rect(this.board.axis.left - 1, this.lanesTop - 2, width, height);
    context.clip();
    for (const [lane, row, from] of this.rows.placed) this.paintLane(context, lane, row, from ?? lane.at[0], theme);
    context.restore();
    if (!this.rows.isPacked) for (const [lane, row] of this.rows.placed) this.paintName(context, lane, row, theme);
    if (this.rows.numHidden)
      label(
        context,
        `and ${this.rows.numHidden} more at a time`,
        width - 8,
        height - 8,
        null,
        `12px ${theme.ui}`,
        theme.soft,
        "right",
      );
  }

  // A lane each while they fit; else requests share rows, one after the other, from when they first run, and rows get
  // thinner.
  layLanes(story: Story, height: number): Rows {
    const { axis } = this.board,
      room = Math.max(8, height - this.lanesTop - 4);
    const seen = [...story.lanes.values()].filter(
      (lane) => lane.at.length && lane.at[0] < axis.to && endOf(lane, story.end) > axis.from,
    );
    seen.sort((a, b) => a.id - b.id);
    if (seen.length * LEAST_LANE <= room)
      return {
        placed: seen.map((lane, i) => [lane, i]),
        height: Math.min(MOST_LANE, room / Math.max(1, seen.length)),
        isPacked: false,
        numHidden: 0,
      };
    const begun = seen
      .map((lane) => ({ lane, from: lane.at[lane.state.findIndex((state) => state !== STATE.waiting)] }))
      .filter(({ from }) => from !== undefined)
      .sort((a, b) => a.from - b.from);
    const ends: number[] = [],
      placed: Rows["placed"] = begun.map(({ lane, from }) => [lane, rowFor(ends, lane, from, story.end), from]);
    const rowHeight = Math.max(3, Math.min(MOST_LANE, room / Math.max(1, ends.length))),
      numRows = Math.floor(room / rowHeight);
    return {
      placed: placed.filter(([, row]) => row < numRows),
      height: rowHeight,
      isPacked: true,
      numHidden: Math.max(0, ends.length - numRows),
    };
  }

  paintSteps(context: CanvasRenderingContext2D, story: Story, theme: Theme, height: number) {
    const { axis } = this.board,
      { steps } = story,
      shown = shownSteps(story, axis);
    for (const { i, x, right } of shown) {
      context.fillStyle = theme.faint;
      if (steps.number[i] % 2 && right - x > 1) context.fillRect(x, 0, right - x, height);
      context.fillStyle = theme.line;
      if (right - x > 3) context.fillRect(x, 0, 1, STEPS);
      if (steps.isTakenBack[i]) hatch(context, { x, y: 0, w: right - x, h: this.lanesTop - 4 }, theme.soft, 5, 1);
    }
    labelSteps(context, story, shown, STEPS / 2 + 1, theme);
  }

  // A mark per event on its topic's line; where many share a pixel, one.
  paintTicks(context: CanvasRenderingContext2D, story: Story, theme: Theme) {
    const { axis } = this.board,
      first = Math.max(story.start, Math.floor(axis.from)),
      last = Math.min(story.end, Math.ceil(axis.to));
    const { tick } = this,
      drawn = new Int32Array(TOPICS).fill(-1),
      width = Math.max(1, Math.min(16, axis.perEvent - (axis.perEvent > 3 ? 2 : 0)));
    for (let i = first; i < last; i++) {
      const topic = story.topic(i),
        x = axis.x(i) + (axis.perEvent > 3 ? (axis.perEvent - width) / 2 : 0),
        pixel = Math.floor(x);
      if (pixel === drawn[topic] && axis.perEvent < 1) continue;
      drawn[topic] = pixel;
      if (x < axis.left) continue;
      context.fillStyle = topic === 0 ? theme.line : theme.soft;
      if (topic === 5)
        flag(
          context,
          x + width / 2,
          STEPS + 3,
          tick * TOPICS,
          ALARMS.has(story.recording.kind(i)) ? theme.alarm : theme.soft,
        );
      else context.fillRect(x, STEPS + 3 + topic * tick, width, tick > 8 ? 6 : 3);
    }
  }

  paintLane(context: CanvasRenderingContext2D, lane: StoryLane, row: number, from: number, theme: Theme) {
    const { axis } = this.board,
      { height } = this.rows,
      y = this.lanesTop + row * height,
      h = Math.max(2, height - (height > 7 ? 3 : 1));
    let isNamed = false;
    for (let i = Math.max(0, countUpTo(lane.at, axis.from) - 1); i < lane.at.length && lane.at[i] < axis.to; i++) {
      if (lane.at[i] < from) continue;
      const x = Math.max(axis.left, axis.x(lane.at[i])),
        right = Math.min(axis.x(lane.at[i + 1] ?? this.story.end), axis.left + axis.width);
      const rect = { x, y, w: Math.max(0.75, right - x), h };
      paintState(context, rect, lane.state[i], theme);
      if (this.rows.isPacked && !isNamed && height > 9) isNamed = nameLane(context, lane, i, rect, theme);
    }
  }

  paintName(context: CanvasRenderingContext2D, lane: StoryLane, row: number, theme: Theme) {
    const { height } = this.rows;
    label(
      context,
      requestName(lane.id),
      this.board.axis.left - 6,
      this.lanesTop + row * height + (height - 3) / 2 + 0.5,
      null,
      `700 12px ${theme.ui}`,
      theme.ink,
      "right",
    );
  }

  // -- the pen and the selection
  // ---------------------------------------------------------------------------------------

  paintOver(context: CanvasRenderingContext2D, { height }: Size) {
    const { axis } = this.board,
      { theme } = this.stage;
    context.fillStyle = theme.accent;
    let drawn = -1;
    for (const i of this.marked) {
      const x = Math.floor(axis.x(i));
      if (x === drawn || x < axis.left || x > axis.left + axis.width) continue;
      drawn = x;
      context.fillRect(x, this.lanesTop - 5, Math.max(2, axis.perEvent), 3);
    }
    const isHere = document.activeElement === this.board.canvas;
    if (isHere && this.lane !== null) this.paintLaneRing(context, this.lane, theme.ink, [4, 3]);
    if (this.selection?.kind === "request") this.paintLaneRing(context, Number(this.selection.id), theme.accent);
    if (this.selection?.kind === "event") {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      context.strokeRect(
        axis.x(Number(this.selection.id)) - 1,
        STEPS + 1,
        Math.max(4, axis.perEvent + 2),
        this.tick * TOPICS + 3,
      );
    }
    if (this.moment >= axis.from && this.moment <= axis.to) drawPen(context, axis.x(this.moment), height, theme);
    this.board.canvas.setAttribute("aria-valuenow", String(this.moment));
    this.board.canvas.setAttribute("aria-valuemin", String(axis.start));
    this.board.canvas.setAttribute("aria-valuemax", String(axis.end));
    this.board.canvas.setAttribute(
      "aria-valuetext",
      this.bar.words(this.moment) + (isHere && this.lane !== null ? ` · request ${requestName(this.lane)}` : ""),
    );
  }

  paintLaneRing(context: CanvasRenderingContext2D, request: number, color: string, dash: number[] = []) {
    const found = this.rows.placed.find(([lane]) => lane.id === request);
    if (!found) return;
    const { axis } = this.board,
      x = Math.max(axis.left, axis.x(found[2] ?? found[0].at[0])),
      right = Math.min(axis.left + axis.width, axis.x(endOf(found[0], this.story.end)));
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.setLineDash(dash);
    context.strokeRect(x - 1, this.lanesTop + found[1] * this.rows.height - 1.5, right - x + 2, this.rows.height);
    context.setLineDash([]);
  }

  // -- the keyboard: down and up from the events to the lanes; Enter chooses the lane's request, or the event at the
  // pen ----

  onKey(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.rows) return;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key as "ArrowUp"];
    if (by) this.moveLane(by);
    else if (event.key === "Enter") this.choose();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  moveLane(by: number) {
    const lanes = this.rows.placed.map(([lane]) => lane.id),
      at = lanes.indexOf(this.lane ?? -1) + by;
    this.lane = lanes[Math.min(at, lanes.length - 1)] ?? null;
    this.board.paint();
  }

  choose() {
    const event = this.moment - 1,
      { recording } = this.side;
    if (this.lane !== null) this.stage.select({ kind: "request", id: this.lane });
    else if (event >= recording.start) this.stage.select(eventOf(this.stage, this.side, event));
  }

  at(event: MouseEvent) {
    return this.board.clicked(event, this.under(event), this.selection);
  }

  // What lies under the mouse: a request in the lanes, an event above them.
  under(event: MouseEvent): Subject | null {
    if (targetOf(event) !== this.board.canvas || !this.rows) return null;
    const { axis } = this.board,
      moment = Math.floor(axis.momentAt(event.offsetX));
    const alarm = this.alarmAt(event);
    if (alarm !== null) return { kind: "event", id: alarm, about: "event" };
    if (event.offsetY < this.lanesTop)
      return moment >= axis.start && moment < axis.end && event.offsetX >= axis.left
        ? { kind: "event", id: moment }
        : null;
    const row = Math.floor((event.offsetY - this.lanesTop) / this.rows.height);
    const found = this.rows.placed.find(
      ([lane, place, from]) =>
        place === row &&
        (event.offsetX < axis.left || ((from ?? lane.at[0]) <= moment && moment <= endOf(lane, this.story.end))),
    );
    return found ? { kind: "request", id: found[0].id } : null;
  }

  // The sign of a violation or a failure, within a few pixels of the mouse.
  alarmAt({ offsetX, offsetY }: { offsetX: number; offsetY: number }) {
    if (offsetY >= this.lanesTop) return null;
    const { axis } = this.board,
      { troubles, recording } = this.story,
      x = (i: number) => axis.x(i) + axis.perEvent / 2;
    const near = troubles.filter((i) => ALARMS.has(recording.kind(i)) && Math.abs(x(i) - offsetX) <= NEAR);
    return near.length
      ? near.reduce((best, i) => (Math.abs(x(i) - offsetX) < Math.abs(x(best) - offsetX) ? i : best))
      : null;
  }

  csv() {
    const rows: CsvRow[] = [["request", "from_moment", "to_moment", "state"]];
    for (const lane of this.story.lanes.values())
      lane.at.forEach((at, i) =>
        rows.push([lane.id, at, lane.at[i + 1] ?? this.story.end, STATE_NAMES[lane.state[i]]]),
      );
    return rows;
  }
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
function nameLane(context: CanvasRenderingContext2D, lane: StoryLane, i: number, { x, y, w, h }: Rect, theme: Theme) {
  if (lane.state[i] !== STATE.waiting && lane.state[i] !== STATE.decode) return false;
  return label(context, requestName(lane.id), x + 3, y + h / 2 + 0.5, w - 4, `700 12px ${theme.ui}`, theme.ink);
}

function flag(context: CanvasRenderingContext2D, x: number, y: number, height: number, color: string) {
  context.fillStyle = color;
  context.fillRect(x - 0.75, y, 1.5, height);
  context.beginPath();
  context.moveTo(x - 4.5, y + height);
  context.lineTo(x + 4.5, y + height);
  context.lineTo(x, y + height - 8);
  context.fill();
}

// Pale hues, for a state is no alarm; and a pattern each, so that none is told by its hue alone: waiting is hollow,
// prefill striped,
// decode solid, preempted crossed out, loading dotted, finished a short bar.
const STATE_HUES: Record<number, string> = {
  [STATE.prefill]: "#8f7fc4",
  [STATE.decode]: "#7fa3c7",
  [STATE.preempted]: "#c9a25a",
};

export function paintState(context: CanvasRenderingContext2D, rect: Rect, state: number, theme: Theme) {
  const { x, y, w, h } = rect,
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
    tint(context, rect);
    hatch(context, rect, hue, 4, 1.6);
    frame(context, rect);
  } else if (state === STATE.preempted) {
    tint(context, rect);
    hatch(context, rect, hue, 6, 1);
    hatch(context, rect, hue, 6, 1, true);
    context.setLineDash([3, 2]);
    frame(context, rect);
  } else {
    if (state === STATE.loading)
      for (let dot = x + 2; dot < x + w - 1; dot += 5) context.fillRect(dot, y + h / 2 - 1, 2, 2);
    context.setLineDash([2, 2]);
    frame(context, rect);
  }
  context.restore();
}

function tint(context: CanvasRenderingContext2D, { x, y, w, h }: Rect) {
  context.globalAlpha = 0.28;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
}

function frame(context: CanvasRenderingContext2D, { x, y, w, h }: Rect) {
  if (w > 3 && h > 3) context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}

function legend(): Pattern[] {
  return (["waiting", "prefill", "decode", "preempted"] as const).map((name) => ({
    name,
    paint: (context, rect, theme) => paintState(context, rect, STATE[name], theme),
  }));
}
