// The two columns: each side's name and numbers above its tables, pool, map and queue, in the same places. In a narrow
// cell they are tabs.

import { element, put, takeKey, targetOf, write } from "../../look/element.ts";
import { hasMisnamed } from "../../model/alarms.ts";
import type { Side } from "../../model/side.ts";
import { AlarmCount, CrashSign } from "../alarm.ts";
import { treeOrMap } from "../layouts.ts";
import type { Overflow } from "../overflow.ts";
import { overflowOf } from "../overflow.ts";
import type { Panel } from "../panel.ts";
import { panel } from "../panel.ts";
import type { PairStage } from "../stage.ts";
import { markDifferences } from "./differences.ts";
import { PairScore } from "./score.ts";

const TABLES_FRAME = 30; // pixels of the heading and the space around the rows

export class Columns {
  open = 0;
  fitted = { frame: "", height: 0 }; // the tables' height, for a size of the cell
  columns = this.stage.sides.map((side, i) => {
    const isShown = () => !this.stage.isNarrow || this.open === i;
    return new Column(this.stage, side, isShown, () => this.show(i));
  });
  heads = element("div", "le-column-heads", { role: "tablist" }, ...this.columns.map(({ head }) => head));
  body = element("div", "le-column-bodies", {}, ...this.columns.map((column) => column.element));
  element = element("div", "le-columns", {}, this.heads, this.body);

  constructor(readonly stage: PairStage) {
    this.heads.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(i: number) {
    if (!this.stage.isNarrow) return;
    this.open = i;
    this.stage.repaint();
  }

  onKey(event: KeyboardEvent) {
    if (!this.stage.isNarrow || !targetOf(event).closest(".le-column-head")) return;
    const turn = () => {
      this.show((this.open + 1) % 2);
      this.columns[this.open].head.focus();
    };
    takeKey(event, { ArrowLeft: turn, ArrowRight: turn });
  }

  paint() {
    const { stage } = this;
    const recordings = stage.sides.map(({ recording }) => recording),
      hasTier = recordings.some((one) => one.hasTier);
    stage.root.classList.toggle("le-has-tier", hasTier);
    stage.root.classList.toggle(
      "le-has-tree",
      recordings.some((one) => one.hasTree),
    );
    stage.root.classList.toggle("le-has-misnamed", recordings.some(hasMisnamed));
    this.columns.forEach((column, i) => {
      column.paint();
      const isOpen = !stage.isNarrow || this.open === i;
      column.element.classList.toggle("le-is-shut", !isOpen);
      column.head.role = stage.isNarrow ? "tab" : "group";
      column.head.ariaSelected = stage.isNarrow ? String(isOpen) : null;
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

const PANELS = ["tables", "pool", "tier", "map", "tree", "queue"];
const LOWER = ["map", "tree", "queue"];

class Column {
  name = element("span", "le-column-name le-clip");
  role = element("span", "le-column-role");
  score = new PairScore(this.side);
  alarms = [new AlarmCount(this.stage, this.side), new CrashSign(this.stage, this.side)] as const;
  line = element("span", "le-column-line", {}, this.name, this.role, ...this.alarms.map((one) => one.element));
  head = element("div", "le-column-head", {}, this.line, this.score.element);
  panels = PANELS.map((name) => panel(this.stage, name, this.side.index));
  showTree: () => boolean;
  element = element("div", "le-column", {}, ...this.panels.filter((_, i) => !LOWER.includes(PANELS[i])));
  lower = element("div", "le-lower", {}, ...this.panels.filter((_, i) => LOWER.includes(PANELS[i])));
  queue = this.lower.querySelector<HTMLElement>(".le-queue-panel h3 > span") as HTMLElement;
  overflow: Overflow[];
  revealed?: number; // the position whose requests were scrolled into view

  constructor(
    readonly stage: PairStage,
    readonly side: Side,
    isShown: () => boolean,
    choose: () => void,
  ) {
    for (const one of [this.head, this.element]) one.dataset.side = String(side.index);
    this.head.addEventListener("click", choose);
    for (const { shown } of this.panels) shown.isShown = isShown;
    this.showTree = treeOrMap(Object.fromEntries(this.panels.map((made, i) => [PANELS[i], made])), side, isShown);
    for (const [i, made] of this.panels.entries()) if (PANELS[i] !== "queue") explain(made);
    this.element.append(this.lower);
    this.overflow = this.panels.map((made, i) => overflowIn(made, PANELS[i])).filter((one) => one !== null);
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
    this.showTree();
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
