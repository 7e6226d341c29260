// Block tables, hash map and free queue as DOM: text only ever enters as textContent.
import { contentName, hueOf, inkOn, shapeOf } from "./palette.js";
import { blockSize, groupLabel, joined } from "./state.js";

const MAX_CARDS = 16;
const MAX_CHIPS = 160;
const MAX_MAP_ROWS = 120;
const STATUS_SIGNS = { running: "▶", waiting: "…", preempted: "↺", finished: "✓" };

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Keeps one child per item, by key and in order; update writes only where the item's signature is new.
function reconcile(parent, items, keyOf, signatureOf, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    const signature = signatureOf(item);
    if (child.signature !== signature) {
      child.signature = signature;
      update(child, item);
    }
  }
  for (const child of old.values()) child.remove();
}

export class Tables {
  constructor({ requests, map, queue, tier }) {
    Object.assign(this, { requests, map, queue, tier, versions: new Map() });
  }

  // changed: ids of the blocks that look different, or null for any.
  draw(state, changed) {
    this.drawRequests(state, changed);
    this.drawMap(state);
    this.drawQueue(state);
    this.drawTier(state);
  }

  drawRequests(state, changed) {
    const rows = [...state.rows.values()].sort((a, b) => a.request - b.request || a.group - b.group);
    this.requests.classList.toggle("le-is-empty", !rows.length);
    const limit = Math.max(16, Math.floor(MAX_CHIPS / Math.max(1, rows.length)));
    reconcile(this.requests, rows, (row) => row.key, (row) => this.rowVersion(row, changed, limit), () => makeRow(), (child, row) => updateRow(child, row, state, limit));
    if (state.moved !== this.moved && state.moved !== null) reveal(this.requests, [...this.requests.children].find((child) => child.dataset.key === state.moved));
    this.moved = state.moved;
  }

  // A row looks different when it changed, for it is replaced then, or when one of its blocks did.
  rowVersion(row, changed, limit) {
    const known = this.versions.get(row.key), isSame = known && known.row === row && known.limit === limit;
    if (isSame && changed && !row.table.some((id) => changed.has(id))) return known.version;
    const version = (known ? known.version : 0) + 1;
    this.versions.set(row.key, { row, limit, version });
    return version;
  }

  drawMap(state) {
    const entries = [...state.map.values()].sort((a, b) => a.content - b.content).slice(-MAX_MAP_ROWS);
    this.map.classList.toggle("le-is-empty", !entries.length);
    const signature = (entry) => entry.content + ":" + entry.ids.map((id) => id + look(state.blocks[id])).join();
    reconcile(this.map, entries, (entry) => entry.key, signature, () => element("div", "le-entry"), (child, entry) => updateEntry(child, entry, state));
  }

  drawQueue(state) {
    const items = state.queue.ids.map((id, i) => ({ id, isNext: i === 0 }));
    if (state.queue.total > items.length) items.push({ id: "more", more: state.queue.total - items.length });
    this.queue.classList.toggle("le-is-empty", !items.length);
    const signature = (item) => (item.more ? `+${item.more}` : `${item.isNext}${look(state.blocks[item.id])}`);
    reconcile(this.queue, items, (item) => item.id, signature, () => element("span", "le-chip"), (child, item) => updateQueueChip(child, item, state));
  }

  // What the external tier is known to hold, the newest last; the panel is there only if there is a tier.
  drawTier(state) {
    const { entries, total } = state.tier;
    this.tier.parentElement.hidden = !total;
    const items = entries.map(([key, content]) => ({ key, content }));
    if (total > items.length) items.unshift({ key: "more", more: total - items.length });
    reconcile(this.tier, items, (item) => item.key, (item) => item.more || item.content, () => element("span", "le-chip"), (child, item) => updateTierChip(child, item, state));
  }
}

// Scrolls a panel, and nothing but the panel, until the child is seen.
function reveal(panel, child) {
  if (!child) return;
  const { top, bottom } = panel.getBoundingClientRect(), rect = child.getBoundingClientRect();
  if (rect.bottom > bottom) panel.scrollTop += Math.min(rect.bottom - bottom, rect.top - top);
  if (rect.top < top) panel.scrollTop -= top - rect.top;
}

function updateTierChip(child, item, state) {
  child.replaceChildren();
  child.className = "le-chip";
  if (item.more) return child.append(`${item.more} more …`);
  child.classList.add("le-kept");
  child.dataset.anchor = `tier:${item.key}`;
  child.title = `content ${contentName(item.content)}` + (state.groups.length > 1 ? `, of the ${groupLabel(state, Number(item.key.split(":")[0]))} group` : "");
  child.style.setProperty("--hue", hueOf(item.content));
  child.append(contentName(item.content));
}

function look(block) {
  return block ? `${block.content}${block.refCount ? "l" : "f"}${block.isLost ? "x" : ""}${block.isHashed ? "h" : ""}${block.isDoubled ? "2" : ""}` : "-";
}

export function badgeElement(request, name) {
  const made = element("span", `le-badge le-${shapeOf(request)}`);
  made.append(element("span", "", name));
  return made;
}

export function letterElement(content) {
  const made = element("span", "le-letter", contentName(content));
  made.style.background = hueOf(content);
  made.style.color = inkOn(hueOf(content));
  return made;
}

// Same fill and border as in the pool.
function dress(target, block) {
  target.style.setProperty("--hue", block && block.content >= 0 ? hueOf(block.content) : "transparent");
  target.classList.toggle("le-live", Boolean(block && block.refCount));
  target.classList.toggle("le-freed", Boolean(block && !block.refCount));
  target.classList.toggle("le-lost", Boolean(block && block.isLost));
  target.classList.toggle("le-full", Boolean(block && block.content >= 0));
  target.classList.toggle("le-doubled", Boolean(block && block.isDoubled));
}

function makeRow() {
  const row = element("div", "le-row");
  row.setAttribute("role", "listitem");
  row.append(element("div", "le-row-head"), element("div", "le-cells"), element("div", "le-generated"));
  return row;
}

function updateRow(child, row, state, limit) {
  const [head, cells, generated] = child.children;
  const progress = row.num_computed ? `${row.num_computed} of ${row.num_tokens} tokens computed` : `${row.num_tokens} tokens`;
  head.replaceChildren(
    badgeElement(row.request, row.name),
    element("span", `le-status le-status-${row.status}`, `${STATUS_SIGNS[row.status] || ""} ${row.status}`),
    element("span", "le-progress", progress),
  );
  if (state.groups.length > 1) head.insertBefore(element("span", "le-group", groupTitle(state, row.group)), head.lastElementChild);
  child.classList.toggle("le-ended", row.status === "finished");
  const places = rowPlaces(row, blockSize(state, row.group));
  const isCards = row.texts.length > 0 && places.length <= MAX_CARDS;
  cells.classList.toggle("le-cards", isCards);
  const shown = isCards ? places : middleLeftOut(places.slice(0, row.table.length), limit);
  reconcile(cells, shown, (place) => `${isCards}${place.index}`, (place) => JSON.stringify([place, look(state.blocks[place.id])]), () => element("div"), (cell, place) => updateCell(cell, place, row, state, isCards));
  generated.replaceChildren();
  generated.hidden = row.group > 0;
  if (row.generated && row.group === 0) generated.append(element("span", "le-quiet", "says"), saidElement(row.generated));
}

function groupTitle(state, group) {
  const [, , window] = state.groups[group];
  return groupLabel(state, group) + (window ? ` (last ${window} tokens)` : "");
}

// What is said last is what stays in sight: a long text is cut at its beginning.
function saidElement(text) {
  const made = element("span", "le-said");
  made.append(element("bdi", "", text));
  made.title = text;
  return made;
}

// A long table shows its beginning and its end, where new blocks come.
function middleLeftOut(places, limit) {
  const more = places.length - limit, half = Math.floor(limit / 2);
  if (more <= 0) return places;
  return [...places.slice(0, half), { index: "more", more }, ...places.slice(places.length - (limit - half))];
}

function rowPlaces(row, size) {
  const count = row.status === "finished" ? row.table.length : Math.max(row.table.length, row.texts.length);
  return Array.from({ length: count }, (_, index) => ({
    index, id: row.table[index], was: row.was.get(index), tokens: row.texts[index] || [],
    numComputed: Math.max(0, Math.min(size, row.num_computed - index * size)),
  }));
}

function updateCell(cell, place, row, state, isCard) {
  const block = state.blocks[place.id];
  cell.className = isCard ? "le-card" : "le-chip";
  cell.replaceChildren();
  if (place.more) return leaveOut(cell, place.more);
  if (place.id >= 0) {
    cell.dataset.block = place.id;
    cell.dataset.anchor = `row:${row.request}:${row.group}:${place.index}`;
    dress(cell, block);
  } else {
    delete cell.dataset.block;
    cell.classList.add("le-unplaced");
  }
  if (isCard) cell.append(element("span", "le-index", place.index), tokensElement(place));
  const target = element("span", "le-target");
  if (place.was >= 0) target.append(element("s", "", `#${place.was}`), " ");
  target.append(place.id === undefined ? "no block" : place.id < 0 ? (isCard ? "outside window" : "–") : isCard ? `→ #${place.id}` : `#${place.id}`);
  cell.append(target);
}

function leaveOut(cell, number) {
  delete cell.dataset.block;
  delete cell.dataset.anchor;
  cell.classList.add("le-unplaced");
  cell.append(`… ${number} more …`);
}

// Tokens whose keys and values are not computed yet are written lightly.
function tokensElement({ tokens, numComputed }) {
  const made = element("span", "le-text"), done = tokens.slice(0, numComputed), rest = tokens.slice(numComputed);
  made.append(joined(done).trimStart(), element("i", "le-pending", (done.length && rest.length && /^\d/.test(rest[0]) ? " " : "") + (done.length ? joined(rest) : joined(rest).trimStart())));
  return made;
}

function updateEntry(child, entry, state) {
  child.dataset.anchor = `map:${entry.key}`;
  const [group, hex] = entry.key.split(":");
  const parts = [letterElement(entry.content), element("code", "le-hash", `${state.groups.length > 1 ? group + ":" : ""}${hex.slice(0, 8)}`), element("span", "le-quiet", "→")];
  for (const id of entry.ids) {
    const block = state.blocks[id];
    const chip = element("span", "le-chip", `#${id}`);
    chip.dataset.block = id;
    dress(chip, block);
    parts.push(chip);
    if (block && !block.refCount) parts.push(element("span", "le-quiet", "freed"));
  }
  child.replaceChildren(...parts);
}

function updateQueueChip(child, item, state) {
  child.replaceChildren();
  child.className = "le-chip";
  if (item.more) return child.append(`+${item.more}`);
  const block = state.blocks[item.id];
  child.dataset.block = item.id;
  child.dataset.anchor = `queue:${item.id}`;
  dress(child, block);
  if (item.isNext) child.append(element("b", "le-next", "next"));
  child.append(`#${item.id}`);
  if (block && block.content >= 0) child.append(element("i", "le-mini", contentName(block.content)));
}

// One block in words, for the tooltip.
export function describe(id, state) {
  const block = state.blocks[id], place = state.queue.ids.indexOf(id);
  if (id === state.nullBlock) return `#${id} · the null block: it pads block tables, and is never given to anybody`;
  const queued = place === 0 ? "next to be used" : place > 0 ? `number ${place + 1} in the free queue` : "in the free queue";
  if (!block) return `#${id} · free, holds nothing · ${queued}`;
  const parts = [`#${id}`, block.refCount ? `ref count ${block.refCount}` : `freed, content kept · ${queued}`];
  parts.push(block.content >= 0 ? `content ${contentName(block.content)}` : `${block.fill} of ${blockSize(state, block.groups[0])} slots written`);
  if (block.groups.length && state.groups.length > 1) parts.push(`in the tables of ${block.groups.map((group) => groupLabel(state, group)).join(" and ")}`);
  if (block.content >= 0 && !block.isHashed) parts.push("hash not registered yet");
  if (block.isLost) parts.push("LOST: alive, but the map does not lead here");
  return parts.join(" · ") + (block.tokens.length ? `\n${joined(block.tokens)}` : "");
}
