// The KV-cache groups side by side: each one's rule, the blocks in its tables, its share of the map, and every table in it.
import { badge, element as make, write as say } from "../look/element.ts";
import { arrows } from "./arrows.ts";
import { dressBead, groupName, groupOf, isNull, keep, lookOf, middleLeftOut, moreText } from "./pieces.ts";
import { Marks } from "./marks.ts";
import { factsAt } from "./step_facts.ts";

export const title = "KV-cache groups";

const MAX_REQUESTS = 64;
const MAX_BEADS_IN_ALL = 640;
const KINDS = {
  full: "keeps every token",
  sliding_window: "keeps what its window reads",
  mamba: "keeps one state",
  chunked_local: "keeps the current chunk",
};

export function create(stage, side) {
  return new Groups(stage, side);
}

class Groups {
  constructor(stage, side) {
    Object.assign(this, { stage, side, held: new Map(), counts: [], rows: new Map() });
    this.element = make("div", "le-groups");
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "KV-cache groups side by side");
    this.marks = new Marks(stage, side, this.element);
    arrows(this.element, stage);
  }

  paint(scene, changes, { moment }) {
    const facts = factsAt(this.side.recording, moment),
      isNewStep = facts.start !== this.start;
    if (!changes.all && !isNewStep && !changes.requests.size && !changes.blocks.size && !changes.keys.size) return;
    Object.assign(this, { scene, facts, changes, start: facts.start });
    if (changes.all) this.rows.clear();
    this.count(changes);
    this.countKeys(changes);
    const ids = [...scene.requests.keys()].filter(
      (id) => scene.requests.get(id).status !== "finished" || facts.finished.has(id),
    );
    const shown = ids.slice(0, MAX_REQUESTS),
      limit = Math.max(6, Math.floor(MAX_BEADS_IN_ALL / Math.max(1, shown.length * scene.groups.length)));
    this.element.style.setProperty("--le-groups", scene.groups.length);
    keep(
      this.element,
      scene.groups.map((_, group) => ({ key: group, group })),
      () => makeColumn(),
      (column, { group }) => this.paintColumn(column, group, shown, ids.length - shown.length, limit),
    );
    this.marks.again();
  }

  // Distinct blocks per group, kept up to date from the requests that changed.
  count(changes) {
    const { scene } = this;
    if (changes.all || this.counts.length !== scene.groups.length) {
      this.held.clear();
      this.counts = scene.groups.map(() => new Map());
    }
    for (const id of changes.all || !this.held.size ? scene.requests.keys() : changes.requests) {
      for (const [group, block] of this.held.get(id) || []) add(this.counts[group], block, -1);
      const request = scene.requests.get(id),
        now = [];
      request?.tables.forEach((table, group) =>
        table.forEach((block) => isNull(scene, block) || now.push([group, block])),
      );
      for (const [group, block] of now) add(this.counts[group], block, 1);
      if (now.length) this.held.set(id, now);
      else this.held.delete(id);
    }
  }

  countKeys(changes) {
    const { map } = this.scene;
    if (changes.all || !this.keys) {
      this.known = new Set(map.keys());
      this.keys = this.scene.groups.map(() => 0);
      for (const key of this.known) this.keys[groupOfKey(key)] += 1;
      return;
    }
    for (const key of changes.keys) {
      if (map.has(key) === this.known.has(key)) continue;
      this.keys[groupOfKey(key)] += map.has(key) ? 1 : -1;
      this.known[map.has(key) ? "add" : "delete"](key);
    }
  }

  paintColumn(column, group, shown, numHidden, limit) {
    const { scene } = this,
      { kind, size, window } = groupOf(scene, group),
      numBlocks = this.counts[group].size;
    say(column.name, `${groupName(scene, group)} attention`);
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
    say(column.keys, String(this.keys[group]));
    column.share.style.setProperty("--le-share", `${(100 * numBlocks) / Math.max(1, scene.numBlocks)}%`);
    const rows = shown.map((id) => this.rowOnce(id, group, limit));
    if (numHidden) rows.push({ key: "more", signature: numHidden, more: numHidden });
    keep(
      column.rows,
      rows,
      (row) => (row.more ? make("p", "le-quiet") : makeRow(row.key)),
      (child, row) => (row.more ? say(child, moreText(row.more, "requests")) : this.paintRow(child, row)),
    );
  }

  // A row is worked out again when its request changed, or one of the blocks drawn in it.
  rowOnce(id, group, limit) {
    const name = `${id}:${group}`,
      known = this.rows.get(name),
      { changes } = this;
    if (
      known &&
      known.limit === limit &&
      !changes.all &&
      !changes.requests.has(id) &&
      !known.row.shown.some(({ block }) => changes.blocks.has(block))
    )
      return known.row;
    const row = this.row(id, group, limit);
    this.rows.set(name, { row, limit });
    return row;
  }

  row(id, group, limit) {
    const { scene } = this,
      request = scene.requests.get(id),
      { size, window } = groupOf(scene, group),
      table = request.tables[group] || [];
    const numAhead = leading(scene, table),
      end = request.numComputed,
      first = window ? Math.max(0, end - window + 1) : 0;
    const entries = table.slice(numAhead).map((block, i) => ({ key: numAhead + i, index: numAhead + i, block }));
    const shown = middleLeftOut(entries, limit, 0.3).map((item) =>
      item.more
        ? item
        : {
            ...item,
            look: isNull(scene, item.block) ? null : lookOf(scene, item.block),
            isRead: (item.index + 1) * size > first,
          },
    );
    const signature = JSON.stringify([
      shown.map((item) => [item.key, item.more, item.look && item.look.signature, item.isRead]),
      numAhead,
      end,
    ]);
    return { key: id, id, shown, signature, numAhead, first, end, window };
  }

  paintRow(child, { shown, numAhead, first, end, window }) {
    child.ahead.hidden = !numAhead;
    say(child.ahead, `⊘ ×${numAhead}`);
    child.ahead.title = `${numAhead} ${numAhead === 1 ? "entry is" : "entries are"} null: outside the window, nobody reads there`;
    const items = shown.map((item) => ({
      ...item,
      signature: JSON.stringify([item.look && item.look.signature, item.isRead, item.more]),
    }));
    keep(child.beads, items, () => make("span"), paintEntry);
    child.classList.toggle("le-groups-is-empty", !shown.length && !numAhead);
    say(child.range, end ? (window ? `next reads ${first} to ${end}` : `${end} computed`) : "nothing computed");
  }

  mark(selection) {
    this.marks.mark(selection);
  }

  destroy() {
    this.element.remove();
  }
}

function add(counts, block, by) {
  const count = (counts.get(block) || 0) + by;
  if (count > 0) counts.set(block, count);
  else counts.delete(block);
}

const groupOfKey = (key) => Number(key.slice(0, key.indexOf(":")));

// Null entries at a table's beginning: their number says it all.
function leading(scene, table) {
  const at = table.findIndex((block) => !isNull(scene, block));
  return at < 0 ? table.length : at;
}

function paintEntry(cell, { look, more, isRead }) {
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
  const column = make("section", "le-groups-column"),
    figures = make("div", "le-groups-figures");
  Object.assign(column, {
    name: make("h4", "le-groups-name"),
    rule: make("p", "le-groups-rule"),
    blocks: make("b"),
    keys: make("b"),
    share: make("span", "le-groups-share"),
    rows: make("div", "le-groups-rows"),
  });
  const parts = [
    [column.blocks, "blocks in tables"],
    [column.keys, "hashes in the map"],
  ].map(([value, words]) => {
    const part = make("span", "le-groups-figure");
    part.append(value, ` ${words}`);
    return part;
  });
  figures.append(...parts, column.share);
  column.append(column.name, column.rule, figures, column.rows);
  return column;
}

function makeRow(id) {
  const child = make("div", "le-groups-row");
  Object.assign(child, {
    ahead: make("span", "le-groups-ahead"),
    beads: make("span", "le-groups-beads"),
    range: make("span", "le-groups-range"),
  });
  child.append(badge(id), child.ahead, child.beads, child.range);
  return child;
}
