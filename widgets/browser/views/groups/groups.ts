// The KV-cache groups side by side: each one's rule, the blocks in its tables, its share of the map, and every table in
// it.

import { element as make, write as say } from "../../look/element.ts";
import { groupName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { arrows } from "../arrows.ts";
import { Marks } from "../marks.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { badge, dressBead, groupOf, isNull, keep, lookOf, middleLeftOut, moreText } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt } from "../step_facts.ts";
import type { PaintMoment, ViewHost } from "../view.ts";

export const title = "KV-cache groups";

const MAX_REQUESTS = 64;
const MAX_BEADS_IN_ALL = 640;
const KINDS: Record<string, string> = {
  full: "keeps every token",
  sliding_window: "keeps what its window reads",
  state: "keeps one state per request",
  mamba: "keeps one state",
  chunked_local: "keeps the current chunk",
};

export function create(stage: ViewHost, side: Side) {
  return new Groups(stage, side);
}

// An entry of a table, or the mark for entries left out.
interface Entry extends Keyed {
  index?: number;
  block?: number;
  look?: Look | null;
  isRead?: boolean;
  more?: number;
}

interface GroupRow {
  key: number;
  id: number;
  shown: Entry[];
  signature: string;
  numAhead: number;
  first: number;
  end: number;
  window: number | null;
}

type GroupColumn = ReturnType<typeof makeColumn>;
type GroupRowElement = ReturnType<typeof makeRow>;

class Groups {
  stage: ViewHost;
  side: Side;
  held = new Map<number, [group: number, block: number][]>();
  counts: Map<number, number>[] = [];
  rows = new Map<string, { row: GroupRow; limit: number }>();
  element = make("div", "le-groups");
  marks: Marks;
  scene!: Scene;
  facts!: StepFacts;
  changes!: Changes;
  start!: number;
  known!: Set<string>;
  keys?: number[]; // hashes in the map, per group

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "KV-cache groups side by side");
    this.marks = new Marks(stage, side, this.element);
    arrows(this.element, stage);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const facts = factsAt(this.side.recording, moment),
      isNewStep = facts.start !== this.start;
    if (!changes.all && !isNewStep && !changes.requests.size && !changes.blocks.size && !changes.keys.size) return;
    this.scene = scene;
    this.facts = facts;
    this.changes = changes;
    this.start = facts.start;
    if (changes.all) this.rows.clear();
    this.count(changes);
    this.countKeys(changes);
    const ids = [...scene.requests.keys()].filter(
      (id) => scene.request(id).status !== "finished" || scene.request(id).isHolding || facts.finished.has(id),
    );
    const shown = ids.slice(0, MAX_REQUESTS),
      limit = Math.max(6, Math.floor(MAX_BEADS_IN_ALL / Math.max(1, shown.length * scene.groups.length)));
    this.element.style.setProperty("--le-groups", String(scene.groups.length));
    keep(
      this.element,
      scene.groups.map((_, group) => ({ key: group, group })),
      () => makeColumn(),
      (column, { group }) => this.paintColumn(column, group, shown, ids.length - shown.length, limit),
    );
    this.marks.again();
  }

  // Distinct blocks per group, kept up to date from the requests that changed.
  count(changes: Changes) {
    const { scene } = this;
    if (changes.all || this.counts.length !== scene.groups.length) {
      this.held.clear();
      this.counts = scene.groups.map(() => new Map<number, number>());
    }
    for (const id of changes.all || !this.held.size ? scene.requests.keys() : changes.requests) {
      for (const [group, block] of this.held.get(id) || []) add(this.counts[group], block, -1);
      const request = scene.requests.get(id),
        now: [group: number, block: number][] = [];
      request?.tables.forEach((table, group) =>
        table.forEach((block) => {
          if (!isNull(scene, block)) now.push([group, block]);
        }),
      );
      for (const [group, block] of now) add(this.counts[group], block, 1);
      if (now.length) this.held.set(id, now);
      else this.held.delete(id);
    }
  }

  countKeys(changes: Changes) {
    const { map, groups } = this.scene;
    if (changes.all || !this.keys) {
      this.known = new Set(map.keys());
      this.keys = groups.map(() => 0);
      for (const key of this.known) this.keys[groupOfKey(key)] += 1;
      return;
    }
    for (const key of changes.keys) {
      if (map.has(key) === this.known.has(key)) continue;
      this.keys[groupOfKey(key)] += map.has(key) ? 1 : -1;
      if (map.has(key)) this.known.add(key);
      else this.known.delete(key);
    }
  }

  paintColumn(column: GroupColumn, group: number, shown: number[], numHidden: number, limit: number) {
    const { scene } = this,
      { kind, size, window } = groupOf(scene, group),
      numBlocks = this.counts[group].size;
    const layers = scene.groups[group].kind === "state" ? "layers" : "attention";
    say(column.name, `${groupName(scene.groups, group)} ${layers}`);
    say(
      column.rule,
      [
        KINDS[kind] || kind,
        `blocks of ${size}`,
        window ? `window ${window} = ${+(window / size).toFixed(1)} blocks` : "",
      ]
        .filter(Boolean)
        .join(" · "),
    );
    say(column.blocks, String(numBlocks));
    say(column.keys, this.keys?.[group] ?? 0);
    column.share.style.setProperty("--le-share", `${(100 * numBlocks) / Math.max(1, scene.numBlocks)}%`);
    const rows: (GroupRow | LeftOut)[] = shown.map((id) => this.rowOnce(id, group, limit));
    if (numHidden) rows.push({ key: "more", signature: numHidden, more: numHidden });
    keep<GroupRow | LeftOut, HTMLElement>(
      column.rows,
      rows,
      (row) => ("more" in row ? make("p", "le-quiet") : makeRow(row.id)),
      (child, row) =>
        "more" in row ? say(child, moreText(row.more, "requests")) : this.paintRow(child as GroupRowElement, row),
    );
  }

  // A row is worked out again when its request changed, or one of the blocks drawn in it.
  rowOnce(id: number, group: number, limit: number) {
    const name = `${id}:${group}`,
      known = this.rows.get(name),
      { changes } = this;
    if (
      known &&
      known.limit === limit &&
      !changes.all &&
      !changes.requests.has(id) &&
      !known.row.shown.some(({ block }) => block !== undefined && changes.blocks.has(block))
    )
      return known.row;
    const row = this.row(id, group, limit);
    this.rows.set(name, { row, limit });
    return row;
  }

  row(id: number, group: number, limit: number): GroupRow {
    const { scene } = this,
      request = scene.request(id),
      { size, window } = groupOf(scene, group),
      table = request.tables[group] || [];
    const numAhead = leading(scene, table),
      end = request.numComputed,
      first = window ? Math.max(0, end - window + 1) : 0;
    const entries: Entry[] = table
      .slice(numAhead)
      .map((block, i) => ({ key: numAhead + i, index: numAhead + i, block }));
    const shown = middleLeftOut(entries, limit, 0.3).map(
      (item: Entry): Entry =>
        item.more
          ? item
          : {
              ...item,
              look: isNull(scene, item.block) ? null : lookOf(scene, item.block as number),
              isRead: ((item.index ?? 0) + 1) * size > first,
            },
    );
    const signature = JSON.stringify([
      shown.map((item) => [item.key, item.more, item.look?.signature, item.isRead]),
      numAhead,
      end,
    ]);
    return { key: id, id, shown, signature, numAhead, first, end, window };
  }

  paintRow(child: GroupRowElement, { shown, numAhead, first, end, window }: GroupRow) {
    child.ahead.hidden = !numAhead;
    say(child.ahead, `⊘ ×${numAhead}`);
    const entries = numAhead === 1 ? "entry is" : "entries are";
    child.ahead.title = `${numAhead} ${entries} null: outside the window, no token reads there`;
    const items = shown.map((item) => ({
      ...item,
      signature: JSON.stringify([item.look?.signature, item.isRead, item.more]),
    }));
    keep(child.beads, items, () => make("span"), paintEntry);
    child.classList.toggle("le-groups-is-empty", !shown.length && !numAhead);
    say(child.range, end ? (window ? `next reads ${first} to ${end}` : `${end} computed`) : "nothing computed");
  }

  mark(selection: Selection | null) {
    this.marks.mark(selection);
  }

  destroy() {
    this.element.remove();
  }
}

function add(counts: Map<number, number>, block: number, by: number) {
  const count = (counts.get(block) || 0) + by;
  if (count > 0) counts.set(block, count);
  else counts.delete(block);
}

const groupOfKey = (key: string) => Number(key.slice(0, key.indexOf(":")));

// Null entries at a table's beginning: their number says it all.
function leading(scene: Scene, table: number[]) {
  const at = table.findIndex((block) => !isNull(scene, block));
  return at < 0 ? table.length : at;
}

function paintEntry(cell: HTMLElement, { look, more, isRead }: Entry) {
  if (look) dressBead(cell, look);
  else {
    delete cell.dataset.block;
    cell.className = "le-groups-none";
    cell.replaceChildren(more ? `… ${more.toLocaleString("en")} …` : "⊘");
  }
  cell.classList.toggle("le-groups-unread", Boolean(look) && isRead === false);
  if (look)
    cell.title = look.isDoubled
      ? "in the tables of two groups: one will overwrite the other"
      : isRead === false
        ? "held, but outside the next token's window"
        : "";
}

function makeColumn() {
  const figures = make("div", "le-groups-figures");
  const column = Object.assign(make("section", "le-groups-column"), {
    name: make("h4", "le-groups-name"),
    rule: make("p", "le-groups-rule"),
    blocks: make("b"),
    keys: make("b"),
    share: make("span", "le-groups-share"),
    rows: make("div", "le-groups-rows"),
  });
  const named: [value: HTMLElement, words: string][] = [
    [column.blocks, "blocks in tables"],
    [column.keys, "hashes in the map"],
  ];
  const parts = named.map(([value, words]) => {
    const part = make("span", "le-groups-figure");
    part.append(value, ` ${words}`);
    return part;
  });
  figures.append(...parts, column.share);
  column.append(column.name, column.rule, figures, column.rows);
  return column;
}

function makeRow(id: number) {
  const child = Object.assign(make("div", "le-groups-row"), {
    ahead: make("span", "le-groups-ahead"),
    beads: make("span", "le-groups-beads"),
    range: make("span", "le-groups-range"),
  });
  child.append(badge(id), child.ahead, child.beads, child.range);
  return child;
}
