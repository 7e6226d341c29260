// The two columns: each side's name and numbers above its tables, pool, map and queue, in the same places. In a narrow
// cell they are tabs.

import { element, put, targetOf, write } from "../../look/element.ts";
import { hasMisnamed } from "../../model/alarms.ts";
import type { Side } from "../../model/side.ts";
import { AlarmCount, CrashSign } from "../alarm.ts";
import type { Overflow } from "../overflow.ts";
import { overflowOf } from "../overflow.ts";
import type { Panel } from "../panel.ts";
import { panel } from "../panel.ts";
import type { PairStage } from "../stage.ts";
import { markDifferences } from "./differences.ts";
import { PairScore } from "./score.ts";

const TABLES_FRAME = 30; // pixels of the heading and the space around the rows

export class Columns {
  stage: PairStage;
  open = 0;
  element: HTMLElement;
  heads: HTMLElement;
  columns: Column[];
  body: HTMLElement;
  fitted = { frame: "", height: 0 }; // the tables' height, for a size of the cell

  constructor(stage: PairStage) {
    this.stage = stage;
    this.element = element("div", "le-columns");
    this.heads = element("div", "le-column-heads");
    this.heads.setAttribute("role", "tablist");
    this.element.append(this.heads);
    this.columns = stage.sides.map(
      (side, i) =>
        new Column(
          stage,
          side,
          () => !stage.isNarrow || this.open === i,
          () => this.show(i),
        ),
    );
    for (const { head } of this.columns) this.heads.append(head);
    this.body = element("div", "le-column-bodies");
    this.body.append(...this.columns.map(({ element: made }) => made));
    this.element.append(this.body);
    this.heads.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(i: number) {
    if (!this.stage.isNarrow) return;
    this.open = i;
    this.stage.repaint();
  }

  onKey(event: KeyboardEvent) {
    const isArrow = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (!isArrow || !this.stage.isNarrow || !targetOf(event).closest(".le-column-head")) return;
    event.preventDefault();
    this.show((this.open + 1) % 2);
    this.columns[this.open].head.focus();
  }

  paint() {
    const { stage } = this;
    stage.root.classList.toggle(
      "le-has-tier",
      stage.sides.some(({ recording }) => recording.hasTier),
    );
    stage.root.classList.toggle(
      "le-has-misnamed",
      stage.sides.some(({ recording }) => hasMisnamed(recording)),
    );
    this.columns.forEach((column, i) => {
      column.paint();
      const isOpen = !stage.isNarrow || this.open === i;
      column.element.classList.toggle("le-is-shut", !isOpen);
      column.head.setAttribute("role", stage.isNarrow ? "tab" : "group");
      if (stage.isNarrow) column.head.setAttribute("aria-selected", String(isOpen));
      else column.head.removeAttribute("aria-selected");
      column.head.tabIndex = stage.isNarrow && isOpen ? 0 : -1;
    });
    markDifferences(stage, this.columns);
    if (!stage.isNarrow) alignGroups(this.columns);
    this.fitTables();
    this.reveal();
    if (!stage.painting.isHurried) for (const column of this.columns) column.paintOverflow();
  }

  // The tables are as high as their rows have ever been in a cell of this size, as far as there is room; the pool has
  // the rest. They never shrink, so that what lies below them keeps its place.
  fitTables() {
    const { root, track } = this.stage,
      { isNarrow } = this.stage,
      frame = [root.clientWidth, root.className.includes("le-presenting"), isNarrow, track.generations].join();
    if (frame !== this.fitted.frame) this.fitted = { frame, height: 0 };
    const height = Math.ceil(Math.max(...this.columns.map((column) => column.tablesHeight)));
    if (height <= this.fitted.height) return;
    this.fitted.height = height;
    root.style.setProperty("--le-tables-need", `${height}px`);
  }

  // The rows of the requests that the caption is about are scrolled into view, and nothing else moves.
  reveal() {
    const { track, position, sides } = this.stage,
      row = track.row(position),
      before = track.row(position - 1)?.[0] ?? track.starts;
    if (!row) return;
    sides.forEach(({ recording }, side) => {
      if (!this.columns[side].isToReveal(position)) return;
      const requests = new Set<number>();
      for (let i = Math.max(before[side], recording.start); i < Math.min(row[0][side], recording.end); i++) {
        const request = recording.field(i, "request_id");
        if (request !== undefined && request >= 0) requests.add(request);
      }
      this.columns[side].reveal([...requests]);
    });
  }
}

export class Column {
  stage: PairStage;
  side: Side;
  head: HTMLElement;
  name: HTMLSpanElement;
  role: HTMLElement;
  score: PairScore;
  alarms: [AlarmCount, CrashSign];
  element: HTMLElement;
  panels: Panel[];
  queue: HTMLElement;
  overflow: Overflow[];
  revealed?: number; // the position whose requests were scrolled into view

  constructor(stage: PairStage, side: Side, isShown: () => boolean, choose: () => void) {
    this.stage = stage;
    this.side = side;
    this.head = element("div", "le-column-head");
    this.head.dataset.side = String(side.index);
    this.name = element("span", "le-column-name");
    this.role = element("span", "le-column-role");
    this.score = new PairScore(side);
    const line = element("span", "le-column-line");
    this.alarms = [new AlarmCount(stage, side), new CrashSign(stage, side)];
    line.append(this.name, this.role, ...this.alarms.map(({ element: made }) => made));
    this.head.append(line, this.score.element);
    this.head.addEventListener("click", choose);
    this.element = element("div", "le-column");
    this.element.dataset.side = String(side.index);
    const lower = element("div", "le-lower"),
      { index } = side;
    const names = ["tables", "pool", "tier", "map", "queue"];
    this.panels = names.map((name) => panel(stage, name, index));
    for (const { shown } of this.panels) shown.isShown = isShown;
    for (const [i, made] of this.panels.entries()) if (names[i] !== "queue") explain(made);
    for (const made of this.panels)
      (made.matches(".le-map-panel, .le-queue-panel") ? lower : this.element).append(made);
    this.element.append(lower);
    this.queue = lower.querySelector<HTMLElement>(".le-queue-panel h3 > span") as HTMLElement;
    this.overflow = this.panels.map((made, i) => overflowIn(made, names[i])).filter((one) => one !== null);
  }

  paintOverflow() {
    for (const one of this.overflow) one.paint();
  }

  // Once for each position, when the tables show it: a slow view is painted a frame later than the rest.
  isToReveal(position: number) {
    const isPainted = this.panels[0].shown.from === this.side.moment;
    if (!isPainted || position === this.revealed) return false;
    this.revealed = position;
    return true;
  }

  // Of all its rows, with the heading, in pixels; 0 while it is not shown.
  get tablesHeight() {
    const [{ shown, offsetHeight }] = this.panels,
      list = shown.view.element.querySelector<HTMLElement>(".le-tables-list");
    if (!list || !offsetHeight) return 0;
    return list.getBoundingClientRect().height + TABLES_FRAME * (list.currentCSSZoom ?? 1);
  }

  reveal(requests: number[]) {
    const list = this.element.querySelector<HTMLElement>(".le-tables");
    if (!list || list.scrollHeight <= list.clientHeight) return;
    const [request] = requests.slice(-1),
      shown =
        list.querySelector<HTMLElement>(`.le-tables-row[data-request="${request}"]`) ??
        list.querySelector<HTMLElement>(`.le-badge[data-request="${request}"]`)?.closest(".le-tables-row");
    if (!shown) return;
    const frame = list.getBoundingClientRect(),
      rect = shown.getBoundingClientRect();
    if (rect.bottom > frame.bottom) list.scrollTop += Math.min(rect.bottom - frame.bottom, rect.top - frame.top);
    if (rect.top < frame.top) list.scrollTop -= frame.top - rect.top;
  }

  paint() {
    const { names, roles } = this.stage.track,
      { index } = this.side;
    write(this.name, names[index]);
    write(this.role, roles[index]);
    for (const made of [this.name, this.role])
      put(made, "title", [names[index], roles[index]].filter(Boolean).join(": "));
    this.score.paint();
    for (const one of this.alarms) one.paint();
    this.score.element.classList.toggle("le-is-doubtful", this.alarms[0].found.length > 0);
    write(this.queue, `Free queue: ${this.side.scene.queue.size}`);
  }
}

// The map's rows of a group begin on the same line on both sides: the shorter group leaves room.
function alignGroups(columns: Column[]) {
  const lists = columns.map(({ element: column }) => [...column.querySelectorAll<HTMLElement>(".le-map-row")]),
    groups = new Set(lists.flat().map(({ dataset }) => dataset.group));
  for (const row of lists.flat()) if (row.style.marginBottom) row.style.marginBottom = "";
  if (groups.size < 2) return;
  for (const group of groups) {
    const rows = lists.map((list) => list.filter(({ dataset }) => dataset.group === group)),
      most = Math.max(...rows.map(({ length }) => length));
    for (const own of rows)
      if (own.length && own.length < most)
        own[own.length - 1].style.marginBottom = `calc(${most - own.length} * var(--le-map-row))`;
  }
}

// A request may fit in part, so in the tables none is counted.
function overflowIn(made: Panel, name: string) {
  if (name === "queue") return overflowOf(made, name, (sign) => made.append(sign));
  return overflowOf(made, name, undefined, name === "tables" ? "" : undefined);
}

// The first clause of the heading's explanation as text beside it, where there is room.
function explain(made: Panel) {
  const heading = made.querySelector<HTMLElement>("h3 > span") as HTMLElement,
    both = element("span", "le-explaining");
  heading.replaceWith(both);
  both.append(heading, element("span", "le-explained", heading.title.replace(/[;.].*$/, "")));
}
