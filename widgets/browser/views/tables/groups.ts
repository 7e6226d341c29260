// The block tables by KV-cache group: each group's rule, the blocks in its tables, its hashes in the map, and its
// tables.

import { element as make, write as say } from "../../look/element.ts";
import { groupName } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { badge, dressBead, groupOf, isNull, keep, lookOf, middleLeftOut, moreText } from "../pieces.ts";

const MAX_BEADS_IN_ALL = 640;
const KINDS: Record<string, string> = {
  full: "keeps every token",
  sliding_window: "keeps what its window reads",
  state: "keeps one state per request",
};

// An entry of a table, or the mark for entries left out.
interface Entry extends Keyed {
  index?: number;
  block?: number;
  look?: Look | null;
  isRead?: boolean;
  more?: number;
}

interface GroupRow extends Keyed {
  id: number;
  shown: Entry[];
  numAhead: number;
  first: number;
  end: number;
  window: number | null;
}

type GroupColumn = ReturnType<typeof makeColumn>;
type GroupRowElement = ReturnType<typeof makeRow>;

// Paints a column per group: a row for each of these requests, and how many more there are.
export function paintGroups(parent: HTMLElement, scene: Scene, shown: number[], numHidden: number) {
  const { groups } = scene,
    limit = Math.max(6, Math.floor(MAX_BEADS_IN_ALL / Math.max(1, shown.length * groups.length))),
    numKeys = groups.map(() => 0);
  for (const key of scene.map.keys()) numKeys[groupOfKey(key)] += 1;
  keep(
    parent,
    groups.map((_, group) => ({ key: group, group })),
    () => makeColumn(),
    (column, { group }) => {
      paintRule(column, scene, group, numKeys[group]);
      const rows: (GroupRow | LeftOut)[] = shown.map((id) => rowOf(scene, id, group, limit));
      if (numHidden) rows.push({ key: "more", signature: numHidden, more: numHidden });
      paintRows(column, rows);
    },
  );
}

const groupOfKey = (key: string) => Number(key.slice(0, key.indexOf(":")));

function paintRule(column: GroupColumn, scene: Scene, group: number, numKeys: number) {
  const { kind, size, window } = groupOf(scene, group),
    numBlocks = blocksOf(scene, group).size;
  say(column.name, `${groupName(scene.groups, group)} ${kind === "state" ? "layers" : "attention"}`);
  const rule = [KINDS[kind] || kind, `blocks of ${size}`];
  if (window) rule.push(`window ${window} = ${+(window / size).toFixed(1)} blocks`);
  say(column.rule, rule.join(" · "));
  say(column.blocks, String(numBlocks));
  say(column.keys, numKeys);
  column.share.style.setProperty("--le-share", `${(100 * numBlocks) / Math.max(1, scene.numBlocks)}%`);
}

function blocksOf(scene: Scene, group: number) {
  const blocks = new Set<number>();
  for (const { tables } of scene.requests.values())
    for (const block of tables[group] ?? []) if (!isNull(scene, block)) blocks.add(block);
  return blocks;
}

function paintRows(column: GroupColumn, rows: (GroupRow | LeftOut)[]) {
  keep<GroupRow | LeftOut, HTMLElement>(
    column.rows,
    rows,
    (row) => ("more" in row ? make("p", "le-quiet") : makeRow(row.id)),
    (child, row) =>
      "more" in row ? say(child, moreText(row.more, "requests")) : paintRow(child as GroupRowElement, row),
  );
}

function rowOf(scene: Scene, id: number, group: number, limit: number): GroupRow {
  const request = scene.request(id),
    { size, window } = groupOf(scene, group),
    table = request.tables[group] || [];
  const numAhead = leading(scene, table),
    end = request.numComputed,
    first = window ? Math.max(0, end - window + 1) : 0;
  const entries: Entry[] = table.slice(numAhead).map((block, i) => ({ key: numAhead + i, index: numAhead + i, block }));
  const shown = middleLeftOut(entries, limit, 0.3).map((item: Entry) => {
    if (item.more) return { ...item, signature: `more ${item.more}` };
    const look = isNull(scene, item.block) ? null : lookOf(scene, item.block as number),
      isRead = ((item.index ?? 0) + 1) * size > first;
    return { ...item, look, isRead, signature: `${look?.signature} ${isRead}` };
  });
  const signature = JSON.stringify([shown.map((item) => [item.key, item.signature]), numAhead, end]);
  return { key: id, id, shown, signature, numAhead, first, end, window };
}

// Null entries at a table's beginning: their number says it all.
function leading(scene: Scene, table: number[]) {
  const at = table.findIndex((block) => !isNull(scene, block));
  return at < 0 ? table.length : at;
}

function paintRow(child: GroupRowElement, { shown, numAhead, first, end, window }: GroupRow) {
  child.ahead.hidden = !numAhead;
  say(child.ahead, `⊘ ×${numAhead}`);
  const entries = numAhead === 1 ? "entry is" : "entries are";
  child.ahead.title = `${numAhead} ${entries} null: outside the window, where no token reads`;
  keep(child.beads, shown, () => make("span"), paintEntry);
  say(child.range, end ? (window ? `next reads ${first} to ${end}` : `${end} computed`) : "nothing computed");
}

function paintEntry(cell: HTMLElement, { look, more, isRead }: Entry) {
  if (look) dressBead(cell, look);
  else {
    delete cell.dataset.block;
    cell.className = "le-groups-none le-fine";
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
  const [blocks, keys] = [make("b"), make("b")],
    figure = (value: HTMLElement, words: string) => make("span", "le-groups-figure", {}, value, ` ${words}`),
    share = make("span", "le-groups-share"),
    name = make("h4", "le-groups-name"),
    rule = make("p", "le-groups-rule le-fine"),
    figures = [figure(blocks, "blocks in tables"), figure(keys, "hashes in the map"), share],
    rows = make("div"),
    column = make(
      "section",
      "le-groups-column",
      {},
      name,
      rule,
      make("div", "le-groups-figures le-wrap le-fine", {}, ...figures),
      rows,
    );
  return Object.assign(column, { name, rule, blocks, keys, share, rows });
}

function makeRow(id: number) {
  const parts = {
    ahead: make("span", "le-groups-ahead le-fine"),
    beads: make("span", "le-groups-beads le-wrap"),
    range: make("span", "le-groups-range le-fine"),
  };
  return Object.assign(make("div", "le-groups-row", {}, badge(id), ...Object.values(parts)), parts);
}
