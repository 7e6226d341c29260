// Block tables: per request and group, logical block to physical block, and every token's state: found, loaded, computed, in this step, not yet.
import { badge, element as make, put, write as say } from "../look/element.js";
import { requestName } from "../look/palette.js";
import { arrows } from "./arrows.js";
import { InSight } from "./in_sight.js";
import { Marks } from "./marks.js";
import { dressBead, groupName, groupOf, isNull, joined, keep, lookOf, middleLeftOut, moreText, runsOf } from "./pieces.js";
import { factsAt } from "./step_facts.js";
import { STATES, bar, fillBar, legend, numPlaces, numWritten, slots, snippet, stateOf } from "./token_states.js";

export const title = "Block tables";

const MAX_OPEN = 64;
const MAX_ENDED = 6;
const MAX_CARDS = 16;
const MAX_CARDS_IN_ALL = 96;
const MAX_CHIPS_IN_ALL = 640;
const MAX_SLOTS = 16;
const MAX_SAID = 80;
const ENDS = { stop: "it said its end", length: "it has all its tokens", abort: "aborted" };
const SIGNS = { running: "▶", waiting: "…", preempted: "↺", finished: "✓" };

export function create(stage, side) {
  return new Tables(stage, side);
}

class Tables {
  constructor(stage, side) {
    Object.assign(this, { stage, side });
    this.element = make("div", "le-tables");
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "Block tables: logical block to physical block, request by request");
    this.list = make("div", "le-tables-list");
    this.list.setAttribute("role", "list");
    this.element.append(legend(), this.list);
    this.rows = new Map();
    const covered = () => this.element.firstElementChild.offsetHeight, whole = (found) => (found.dataset.request === undefined ? found : found.closest(".le-tables-row"));
    this.marks = new Marks(stage, side, this.element, { covered, whole, rowOf: (about) => this.rowOf(about) });
    this.sight = new InSight(this.element, this.list, () => this.marks.again());
    arrows(this.element, stage);
  }

  paint(scene, changes, { moment }) {
    this.scene = scene;
    this.facts = factsAt(this.side.recording, moment);
    const isNewStep = this.facts.start !== this.start || changes.all;
    this.start = this.facts.start;
    if (isNewStep) this.rows.clear();
    const { shown, numHidden } = this.shownRequests(), layout = this.layoutFor(shown);
    this.element.classList.toggle("le-is-empty", !shown.length);
    const items = shown.map((id) => ({ key: id, id, signature: this.version(id, changes, layout) }));
    if (numHidden) items.push({ key: "more", signature: numHidden, more: numHidden });
    this.sight.expect(items.length);
    keep(this.list, items, (item) => (item.more ? make("p", "le-tables-more le-quiet") : makeRow(item.id)), (row, item, place) => (item.more ? say(row, moreText(item.more, "requests")) : this.sight.paint(row, () => this.paintRow(row, item.id, layout), place)));
    this.sight.settle();
    this.marks.again();
  }

  // In a comparison the same requests in the same order on both sides: last those who ended before on either.
  shownRequests() {
    const { scene, facts, stage } = this, own = shownRequests(scene, facts);
    if (!stage.isPair) return own;
    const others = stage.sides.filter((side) => side !== this.side).map((side) => ({ scene: side.scene, facts: factsAt(side.recording, side.moment) }));
    const ids = [...new Set([own, ...others.map((other) => shownRequests(other.scene, other.facts))].flatMap(({ shown }) => shown))].filter((id) => scene.requests.has(id));
    const isOver = (id) => [{ scene, facts }, ...others].every((one) => hasEnded(one, id));
    return { shown: ids.sort((a, b) => isOver(a) - isOver(b) || a - b), numHidden: own.numHidden };
  }

  // Cards while they can be taken in at a glance, chips beyond; chosen by what cannot change within a step.
  layoutFor(shown) {
    const scene = this.scene;
    let most = 0, total = 0, numRows = 0;
    for (const id of shown) {
      if (this.isFolded(id)) continue;
      scene.groups.forEach((_, group) => {
        const count = numPlaces(scene, this.facts, id, group);
        most = Math.max(most, count);
        total += count;
        numRows += 1;
      });
    }
    const size = Math.max(...scene.groups.map((_, group) => groupOf(scene, group).size), 1);
    const kind = most > MAX_CARDS || total > MAX_CARDS_IN_ALL ? "chips" : size > MAX_SLOTS ? "texts" : "slots";
    return { kind, limit: Math.max(12, Math.floor(MAX_CHIPS_IN_ALL / Math.max(1, numRows))) };
  }

  isFolded(id) {
    return hasEnded(this, id);
  }

  // A row looks different when its request changed, or one of the blocks drawn in it.
  version(id, changes, layout) {
    const known = this.rows.get(id), name = `${layout.kind}${layout.limit}`;
    const isSame = known && known.name === name && !changes.requests.has(id) && !known.blocks.some((block) => changes.blocks.has(block));
    if (isSame) return known.version;
    this.rows.set(id, { name, blocks: [], version: (this.count = (this.count || 0) + 1) });
    return this.count;
  }

  paintRow(row, id, layout) {
    const { scene, facts } = this, request = scene.requests.get(id), known = this.rows.get(id);
    if (!request || !known) return;
    const isFolded = this.isFolded(id);
    row.classList.toggle("le-tables-ended", request.status === "finished");
    paintHead(row.head, scene, facts, id);
    row.strip.hidden = row.body.hidden = row.said.hidden = isFolded;
    row.brief.hidden = !isFolded;
    const said = this.said(request);
    if (isFolded) return say(row.brief, said || "said nothing");
    paintStrip(row.strip, scene, facts, id);
    const groups = scene.groups.map((_, group) => ({ key: group, group }));
    keep(row.body, groups, () => makeGroup(), (child, { group }) => known.blocks.push(...this.paintGroup(child, id, group, layout)));
    this.paintSaid(row.said, request, said, id);
  }

  paintGroup(child, id, group, layout) {
    const { scene } = this, rule = groupOf(scene, group), isAlone = scene.groups.length === 1;
    child.label.hidden = isAlone;
    if (!isAlone) say(child.label, groupName(scene, group) + (rule.window ? `, last ${rule.window}` : ""));
    const places = this.places(id, group, layout);
    const shown = layout.kind === "chips" ? middleLeftOut(places, layout.limit) : places;
    arrange(child.cells, layout.kind, rule.size);
    keep(child.cells, shown, () => make("div"), (cell, item) => (item.more ? paintMore(cell, item.more) : this.paintPlace(cell, item, layout)));
    return shown.filter((item) => item.look).map((item) => item.id);
  }

  places(id, group, layout) {
    const { scene, facts, side, stage } = this, request = scene.requests.get(id), { size } = groupOf(scene, group);
    const table = request.tables[group] || [], isText = layout.kind !== "chips";
    const stateAt = stateOf(request, facts, id, group);
    return Array.from({ length: numPlaces(scene, facts, id, group) }, (_, index) => {
      const block = table[index], look = isNull(scene, block) ? null : lookOf(scene, block);
      const found = look ? undefined : facts.hits.get(id)?.blocks?.[group]?.[index];
      const was = facts.merged.get(`${id}:${group}:${index}`)?.was, states = [];
      const tokens = request.tokens.slice(index * size, (index + 1) * size);
      for (let i = 0; i < size; i++) states.push(index * size + i < request.tokens.length ? stateAt(index * size + i) : "none");
      const texts = isText ? tokens.slice(0, layout.kind === "slots" ? size : 24).map((token) => stage.text(side, token)) : [];
      for (const [offset, token] of look?.block.strays || []) this.putStray(states, texts, offset, token, tokens[offset]);
      const runs = layout.kind === "slots" ? states : runsOf(states);
      const signature = JSON.stringify([layout.kind, block, look || request.status, look && look.signature, was, found, runs, texts]);
      return { key: `${layout.kind}${index}`, signature, request: id, group, index, id: block, look, was, found, states, runs, texts, size, numPrompt: request.numPrompt };
    });
  }

  // What lies in a slot that was written by mistake, or was not where it should have been.
  putStray(states, texts, offset, token, expected) {
    if (token !== null && token === expected) return;
    states[offset] = token === null ? "hole" : "wrong";
    while (texts.length < offset) texts.push("");
    texts[offset] = token === null ? "–" : this.stage.text(this.side, token);
  }

  paintPlace(cell, place, layout) {
    const { look } = place, isChip = layout.kind === "chips";
    const isOutside = !look && place.id !== undefined && groupOf(this.scene, place.group).window;
    cell.className = `le-tables-${isChip ? "chip" : "card"}${look ? "" : " le-tables-unplaced"}${isOutside ? " le-tables-outside" : ""}${place.was === undefined ? "" : " le-tables-moved"}`;
    cell.dataset.anchor = `row:${place.request}:${place.group}:${place.index}`;
    if (look) cell.dataset.block = place.id;
    else delete cell.dataset.block;
    const target = make("span", "le-tables-target"), index = make("span", "le-tables-index", place.index), { index: number, size } = place;
    index.dataset.span = size > 1 ? `${number * size}–${(number + 1) * size - 1}` : `${number}`;
    index.title = `block ${number} of the request: its tokens ${index.dataset.span}`;
    if (!isChip) target.append(make("span", "le-tables-arrow", "→"));
    if (place.was !== undefined) target.append(make("s", "", `#${place.was}`));
    target.append(look ? bead(look) : make("span", "le-tables-none", this.noBlockWords(place, isChip)));
    if (isChip) cell.replaceChildren(index, target, bar(place.runs, place.size));
    else if (layout.kind === "slots") cell.replaceChildren(index, target, slots(place));
    else cell.replaceChildren(index, target, snippet(place), bar(place.runs, place.size));
  }

  // A null entry is outside the window; in a group without one, its block has just been given back.
  noBlockWords({ request, id, group, found }, isChip) {
    const isWaiting = this.scene.requests.get(request).status === "waiting" && this.facts.hits.has(request);
    const { isPair } = this.stage; // and less room
    if (isWaiting && found !== undefined && found !== this.scene.nullBlock) return isChip ? `#${found}` : isPair ? `#${found} found` : `found in #${found}`;
    if (id !== undefined && groupOf(this.scene, group).window) return isChip ? "⊘" : isPair ? "outside" : "outside window";
    if (id !== undefined) return isChip ? "–" : "given back";
    const { status, numComputed, tables } = this.scene.requests.get(request);
    const isGone = !isWaiting && (status === "finished" || status === "preempted" || (numComputed > 0 && !tables[group]?.length));
    return isChip ? "–" : isGone ? (isPair ? "freed" : "given back") : isPair ? "none yet" : "no block yet";
  }

  said(request) {
    const newest = request.tokens.slice(request.numPrompt).slice(-MAX_SAID);
    return joined(newest.map((token) => this.stage.text(this.side, token)));
  }

  // A long text is cut at its beginning: what is said last stays in sight. This step's token is set apart.
  paintSaid(target, request, said, id) {
    const fresh = this.facts.sampled.get(id) || [], tail = joined(fresh.map((token) => this.stage.text(this.side, token)));
    const isTail = tail && said.endsWith(tail);
    const saying = JSON.stringify([said, tail]);
    if (target.saying === saying) return;
    target.saying = saying;
    const words = make("span", "le-tables-words"), text = make("bdi", "", isTail ? said.slice(0, said.length - tail.length) : said);
    if (isTail) text.append(make("mark", "le-tables-fresh", tail));
    words.append(text);
    words.title = said;
    target.replaceChildren(make("span", "le-quiet", said ? "says" : " "), words);
  }

  mark(selection) {
    this.marks.mark(selection);
  }

  // Where a block stands once its row is painted.
  rowOf({ request, block }) {
    const { requests } = this.scene;
    return [...this.list.children].find(({ keptAs: id }) => request.has(id) || requests.get(id)?.tables.some((table) => table.some((held) => block.has(held))));
  }

  csv() {
    const rows = [["request", "group", "index", "block"]];
    for (const [id, request] of this.scene?.requests || [])
      request.tables.forEach((table, group) => table.forEach((block, index) => rows.push([requestName(id), groupName(this.scene, group), index, isNull(this.scene, block) ? "" : block])));
    return rows;
  }

  destroy() {
    this.sight.close();
    this.element.remove();
  }
}

// Before this step. One that this side does not have is not in its way.
function hasEnded({ scene, facts }, id) {
  const request = scene.requests.get(id);
  return !request || (request.status === "finished" && !facts.finished.has(id));
}

// The oldest of those who wait or run, and the last who ended.
function shownRequests(scene, facts) {
  const open = [], ended = []; // those who ended before this step come last, a line each
  for (const [id, request] of scene.requests) (request.status === "finished" && !facts.finished.has(id) ? ended : open).push(id);
  const byId = (a, b) => a - b, shown = [...open.slice(0, MAX_OPEN).sort(byId), ...ended.slice(-MAX_ENDED).sort(byId)];
  return { shown, numHidden: Math.max(0, open.length - MAX_OPEN) };
}

function makeRow(id) {
  const row = make("article", "le-tables-row");
  row.setAttribute("role", "listitem");
  Object.assign(row, { head: makeHead(id), strip: make("div", "le-tables-strip"), body: make("div", "le-tables-body"), said: make("div", "le-tables-said"), brief: make("div", "le-tables-brief") });
  row.append(row.head, row.said, row.strip, row.body, row.brief);
  return row;
}

function makeHead(id) {
  const head = make("header", "le-tables-head");
  head.dataset.request = id;
  Object.assign(head, { status: make("b", "le-tables-status"), doing: make("span", "le-tables-doing"), facts: make("span", "le-tables-facts") });
  head.append(badge(id), head.status, head.doing, head.facts);
  return head;
}

function paintHead(head, scene, facts, id) {
  const request = scene.requests.get(id), now = facts.scheduled.get(id), written = numWritten(request, facts, id);
  const status = facts.preempted.has(id) ? "preempted" : request.status;
  say(head.status, `${SIGNS[status] || ""} ${status}`);
  head.status.title = request.status === "finished" && request.finishReason ? ENDS[request.finishReason] || request.finishReason : "";
  say(head.doing, now ? (now.isPrefill ? `prefill ${now.num}` : `decode ${now.num}`) : "");
  head.doing.classList.toggle("le-tables-is-doing", Boolean(now));
  const external = request.external ?? facts.external.get(id)?.num ?? 0, counts = countsOf(request, written, external), again = request.numPreempted;
  say(head.facts, progress(counts) + (again ? ` · ↺${again}×` : ""));
  put(head.facts, "title", progressInFull(counts) + (again ? `; preempted ${again === 1 ? "once" : `${again} times`}` : ""));
}

function countsOf(request, written, external) {
  const found = request.hit || 0;
  return { total: request.tokens.length, found, external, computed: Math.max(0, written - found - (request.external || 0)), isLoading: request.isLoading, isOver: request.status === "finished" };
}

// How many of its tokens have keys and values, and where they come from: short, for these numbers are compared, and must not be cut.
function progress({ total, found, external, computed, isLoading, isOver }) {
  if (isOver) return `${total} tokens`;
  const kept = [found && `${found} cached`, external && `${external} ${isLoading ? "loading" : "loaded"}`].filter(Boolean);
  if (!kept.length) return `${computed} of ${total} computed`;
  return `${[...kept, ...(computed ? [`${computed} new`] : [])].join(" + ")} of ${total}`;
}

function progressInFull({ total, found, external, computed, isLoading }) {
  const parts = [found && `${found} found in the cache`, external && `${external} ${isLoading ? "being loaded" : "loaded"} from the external tier`, `${computed} computed`].filter(Boolean);
  return `of ${total} tokens: ${parts.join(", ")}`;
}

// All of a request's tokens as one bar.
function paintStrip(strip, scene, facts, id) {
  const request = scene.requests.get(id), stateAt = stateOf(request, facts, id, 0), total = request.tokens.length;
  const marks = new Set([0, request.hit || 0, (request.hit || 0) + (request.external || 0), request.numComputed, total]);
  const now = facts.scheduled.get(id);
  if (now) marks.add(now.start).add(now.start + now.num);
  const edges = [...marks].filter((at) => at >= 0 && at <= total).sort((a, b) => a - b);
  const runs = edges.slice(1).map((end, i) => [stateAt(edges[i]), end - edges[i]]);
  fillBar(strip, runs, Math.max(1, total));
  strip.title = runs.map(([state, length]) => `${length} ${STATES.find(([name]) => name === state)[1]}`).join(", ");
}

// Written where it is new: a style written again would have all cells styled again.
function arrange(cells, kind, size) {
  const arranged = `${kind}${size}`, columns = size > 8 ? 4 : size > 1 ? 2 : 1;
  if (cells.arranged === arranged) return;
  cells.arranged = arranged;
  cells.className = `le-tables-cells le-tables-${kind}`;
  cells.style.setProperty("--le-columns", columns);
  cells.style.setProperty("--le-lines", kind === "slots" ? Math.ceil(size / columns) : 3);
  cells.style.setProperty("--le-card", size > 8 ? "212px" : "122px");
}

function makeGroup() {
  const child = make("section", "le-tables-group");
  Object.assign(child, { label: make("h4", "le-tables-label"), cells: make("div", "le-tables-cells") });
  child.append(child.label, child.cells);
  return child;
}

function bead(look) {
  const made = make("span");
  dressBead(made, look);
  delete made.dataset.block; // the cell around it stands for the block
  return made;
}

function paintMore(cell, more) {
  cell.className = "le-tables-left-out le-quiet";
  delete cell.dataset.block;
  cell.replaceChildren(`… ${more.toLocaleString("en")} more …`);
}
