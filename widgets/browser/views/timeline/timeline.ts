// The run as a score: steps, a tick per event on the line of its topic, a lane per request, and a band per block. Drag
// to scrub.

import { element, takeKey, targetOf, write } from "../../look/element.ts";
import { TOPIC_NAMES } from "../../model/event_rows.ts";
import { requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { Story } from "../../model/story.ts";
import { STATE_NAMES, storyOf } from "../../model/story.ts";
import { aboutOf, Mentioned } from "../about.ts";
import type { Ink } from "../canvas.ts";
import type { CsvRow, PaintMoment, Subject, ViewHost } from "../view.ts";
import { eventOf, moveToMoment } from "../view.ts";
import { Bands, rowsOfBlocks } from "./bands.ts";
import type { TimeBar } from "./bar.ts";
import { timeBar } from "./bar.ts";
import { Board, drawPen, labelSteps, shownSteps } from "./board.ts";
import { Lanes, legend as laneLegend } from "./lanes.ts";
import { legend as lifeLegend } from "./lives.ts";

export const title = "Timeline";

const STEPS = 15,
  NUM_TOPICS = TOPIC_NAMES.length,
  TALL = 290;
const LANES = 0.33; // of the room below the events, at most
const GAP = 6; // between lanes and bands
const REDRAW_MS = 200;
const NEAR = 5; // pixels from an alarm's sign
// the one strong colour; whatever else is trouble is ordinary
const ALARMS = new Set(["ViolationFound", "StepFailed", "StepRolledBack", "LoadFailed"]);
const SHORT: Record<string, string> = { "external tier": "tier" };

export function create(stage: ViewHost, side: Side) {
  return new Timeline(stage, side);
}

class Timeline {
  moment = 0;
  selection: Selection | null = null;
  marked: number[] = [];
  mentioned = new Mentioned();
  cursor: Selection | null = null; // of the keyboard: a lane or a band
  element = element("div", "le-timeline");
  board: Board;
  bar: TimeBar;
  density = element("span", "le-time-density le-clip");
  scene!: Scene;
  news?: string;
  lanes: Lanes;
  bands: Bands;
  redrawTimer = 0;
  drawnAt = 0;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    this.board = new Board(stage, {
      paintAll: (ink) => this.paintAll(ink),
      paintOverlay: (ink) => this.paintOverlay(ink),
      moveTo: (moment) => moveToMoment(stage, side, moment),
    });
    this.lanes = new Lanes(this.board.axis);
    this.bands = new Bands(this.board.axis);
    this.bar = timeBar(stage, side, this.board, () => this.moment, [...laneLegend(), ...lifeLegend()]);
    const { canvas } = this.board;
    this.bar.element.firstElementChild?.after(this.density);
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

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const { recording } = this.side,
      { axis } = this.board;
    this.scene = scene;
    this.moment = moment;
    const news = `${recording.start}:${recording.end}`;
    if (axis.fit(recording.start, recording.end, recording.header.is_live !== false) || changes.all)
      this.board.isStale = true;
    if (axis.reach(moment)) this.board.isStale = true;
    if (news !== this.news) this.takeNews();
    this.news = news;
    this.board.paint();
    this.bar.update(moment);
  }

  // Rows of single blocks are drawn at once; a large pool's, which cost more, a few times a second.
  takeNews() {
    this.findMarked();
    if (!this.bands.rows?.isBinned || performance.now() - this.drawnAt > REDRAW_MS) this.board.isStale = true;
    else
      this.redrawTimer ||= setTimeout(() => {
        this.redrawTimer = 0;
        this.board.refresh();
      }, REDRAW_MS);
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
    return STEPS + 8 + this.tick * NUM_TOPICS;
  }

  // The events that name the selection.
  findMarked() {
    this.marked = this.mentioned.find(this.side.recording, this.selection);
  }

  resize() {
    this.element.classList.toggle("le-is-low", this.element.clientHeight < 120);
    if (this.news) this.board.paint();
  }

  destroy() {
    clearTimeout(this.redrawTimer);
    this.bar.destroy();
    this.element.remove();
  }

  // -- the quiet part

  paintAll(ink: Ink) {
    const { story } = this,
      { width, height } = this.board.size,
      style = { color: ink.theme.soft, align: "right" } as const;
    this.drawnAt = performance.now();
    this.lay(story, width, height);
    this.paintSteps(ink, height);
    this.paintTicks(ink, story);
    if (this.tick > 8)
      TOPIC_NAMES.forEach((name, topic) =>
        ink.label(SHORT[name] ?? name, this.board.axis.left - 6, STEPS + 6 + topic * this.tick, style),
      );
    this.lanes.paint(ink, width);
    this.bands.paint(ink, this.scene, width);
    write(this.density, this.bands.meaning);
  }

  // Lanes have what they need, up to a share of the room; the rows of blocks have the rest.
  lay(story: Story, width: number, height: number) {
    const { axis } = this.board,
      room = height - this.lanesTop - GAP;
    axis.left = Math.max(this.tick > 8 ? 58 : 34, Bands.roomFor(story));
    axis.width = Math.max(1, width - axis.left - 6);
    this.lanes.lay(story, this.lanesTop, Math.max(8, LANES * room));
    const top = this.lanes.bottom + GAP;
    this.bands.lay(story, top, height - top - 2);
  }

  paintSteps(ink: Ink, height: number) {
    const { faint, line, soft } = ink.theme,
      shown = shownSteps(this.side.recording, this.board.axis);
    for (const { step, x, right } of shown) {
      if (step.step % 2 && right - x > 1) ink.fill(x, 0, right - x, height, faint);
      if (right - x > 3) ink.fill(x, 0, 1, STEPS, line);
      if (step.isRolledBack) ink.hatch({ x, y: 0, w: right - x, h: this.lanesTop - 4 }, soft, 5, 1);
    }
    labelSteps(ink, shown, STEPS / 2 + 1);
  }

  // A mark per event on its topic's line; where many share a pixel, one.
  paintTicks(ink: Ink, story: Story) {
    const { theme } = ink,
      { axis } = this.board,
      first = Math.max(story.start, Math.floor(axis.from)),
      last = Math.min(story.end, Math.ceil(axis.to));
    const { tick } = this,
      drawn = new Int32Array(NUM_TOPICS).fill(-1),
      width = Math.max(1, Math.min(16, axis.perEvent - (axis.perEvent > 3 ? 2 : 0)));
    for (let i = first; i < last; i++) {
      const topic = story.topic(i),
        x = axis.x(i) + (axis.perEvent > 3 ? (axis.perEvent - width) / 2 : 0),
        pixel = Math.floor(x);
      if (pixel === drawn[topic] && axis.perEvent < 1) continue;
      drawn[topic] = pixel;
      if (x < axis.left) continue;
      const isAlarm = topic === 5 && ALARMS.has(story.recording.kind(i)),
        color = topic === 0 ? theme.line : isAlarm ? theme.alarm : theme.soft;
      if (topic === 5) flag(ink, x + width / 2, STEPS + 3, tick * NUM_TOPICS, color);
      else ink.fill(x, STEPS + 3 + topic * tick, width, tick > 8 ? 6 : 3, color);
    }
  }

  // -- the pen and the selection

  paintOverlay(ink: Ink) {
    const { axis, canvas, size } = this.board,
      { context, theme } = ink;
    context.fillStyle = theme.accent;
    let drawn = -1;
    for (const i of this.marked) {
      const x = Math.floor(axis.x(i));
      if (x === drawn || x < axis.left || x > axis.left + axis.width) continue;
      drawn = x;
      context.fillRect(x, this.lanesTop - 5, Math.max(2, axis.perEvent), 3);
    }
    const cursor = document.activeElement === canvas ? this.cursor : null,
      about = cursor?.kind === "block" ? cursor : this.selection?.kind === "block" ? this.selection : null;
    if (cursor?.kind === "request") this.lanes.paintRing(ink, Number(cursor.id), theme.ink, [4, 3]);
    if (this.selection?.kind === "request") this.lanes.paintRing(ink, Number(this.selection.id), theme.accent);
    this.paintBlocks(ink, size.width, about);
    if (this.selection?.kind === "event") {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      context.strokeRect(
        axis.x(Number(this.selection.id)) - 1,
        STEPS + 1,
        Math.max(4, axis.perEvent + 2),
        this.tick * NUM_TOPICS + 3,
      );
    }
    if (this.moment >= axis.from && this.moment <= axis.to) drawPen(ink, axis.x(this.moment), size.height);
    canvas.ariaValueNow = String(this.moment);
    canvas.ariaValueMin = String(axis.start);
    canvas.ariaValueMax = String(axis.end);
    canvas.ariaValueText = [this.bar.words(this.moment), ...this.wordsOf(cursor ?? about)].join(" · ");
  }

  // The block that is chosen, or those that the selection names.
  paintBlocks(ink: Ink, width: number, chosen: Selection | null) {
    if (chosen) this.bands.ring(ink, Number(chosen.id), width);
    else for (const block of aboutOf(this.selection, this.side).block) this.bands.tag(ink, block);
  }

  wordsOf(subject: Selection | null) {
    if (subject?.kind === "request") return [`request ${requestName(Number(subject.id))}`];
    const isThere = subject?.kind === "block" && Number(subject.id) < this.story.numBlocks;
    return isThere ? [this.bands.describe(Number(subject.id), this.moment, this.scene)] : [];
  }

  // -- the keyboard: down and up from the events to the lanes, and on to the blocks

  onKey(event: KeyboardEvent) {
    const move = (by: number) => () => this.moveCursor(by);
    if (this.lanes.story) takeKey(event, { ArrowUp: move(-1), ArrowDown: move(1), Enter: () => this.choose() });
  }

  moveCursor(by: number) {
    const { cursor } = this,
      rows: Selection[] = [
        ...this.lanes.placed.map(([lane]): Selection => ({ kind: "request", id: lane.id })),
        ...(this.bands.rows?.ids ?? []).map((id): Selection => ({ kind: "block", id })),
      ],
      at = rows.findIndex(({ kind, id }) => kind === cursor?.kind && id === cursor.id) + by;
    this.cursor = rows[Math.min(at, rows.length - 1)] ?? null;
    this.board.paint();
  }

  choose() {
    const event = this.moment - 1,
      { recording } = this.side;
    if (this.cursor) this.stage.select(this.cursor);
    else if (event >= recording.start) this.stage.select(eventOf(this.stage, this.side, event));
  }

  at(event: MouseEvent) {
    return this.board.clicked(event, this.under(event), this.selection);
  }

  // What lies under the mouse: an event, below it a request in the lanes, below these a block.
  under(event: MouseEvent): Subject | null {
    if (targetOf(event) !== this.board.canvas || !this.lanes.story) return null;
    const { axis } = this.board,
      moment = Math.floor(axis.momentAt(event.offsetX));
    const alarm = this.alarmAt(event);
    if (alarm !== null) return { kind: "event", id: alarm, about: "event" };
    if (event.offsetY < this.lanesTop)
      return moment >= axis.start && moment < axis.end && event.offsetX >= axis.left
        ? { kind: "event", id: moment }
        : null;
    const request = this.lanes.requestAt(event.offsetX, event.offsetY);
    if (request !== undefined) return { kind: "request", id: request };
    const block = this.bands.blockAt(event.offsetX, event.offsetY);
    return block === undefined ? null : { kind: "block", id: block };
  }

  // The sign of a violation or a failure, within a few pixels of the mouse.
  alarmAt({ offsetX, offsetY }: { offsetX: number; offsetY: number }) {
    if (offsetY >= this.lanesTop) return null;
    const { axis } = this.board,
      { troubles, recording } = this.story,
      x = (i: number) => axis.x(i) + axis.perEvent / 2;
    const near = troubles.filter((i) => ALARMS.has(recording.kind(i)) && Math.abs(x(i) - offsetX) <= NEAR);
    return near.length
      ? near.reduce((nearest, i) => (Math.abs(x(i) - offsetX) < Math.abs(x(nearest) - offsetX) ? i : nearest))
      : null;
  }

  csv() {
    const rows: CsvRow[] = [["of", "id", "from_moment", "to_moment", "state", "hash", "owner", "ref_count"]];
    for (const lane of this.story.lanes.values())
      lane.at.forEach((at, i) =>
        rows.push(["request", lane.id, at, lane.at[i + 1] ?? this.story.end, STATE_NAMES[lane.state[i]]]),
      );
    return [...rows, ...rowsOfBlocks(this.story)];
  }
}

function flag(ink: Ink, x: number, y: number, height: number, color: string) {
  ink.fill(x - 0.75, y, 1.5, height, color);
  ink.polygon(color, [x - 4.5, y + height], [x + 4.5, y + height], [x, y + height - 8]);
}
