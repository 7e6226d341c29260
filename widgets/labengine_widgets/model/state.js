// The browser's copy of what is to be seen. Frames change it; records in it are replaced and never changed, so a copy is cheap.
import { FLAGS } from "./palette.js";

export function emptyState() {
  return {
    sentence: "", phase: null, step: 0, score: [0, 0, 0, 0], groups: [], numBlocks: 0, nullBlock: -1, omitted: 0,
    blocks: [], rows: new Map(), map: new Map(), queue: { ids: [], total: 0 }, tier: { entries: [], total: 0 }, focus: [], moved: null,
  };
}

export function copyState(state) {
  return { ...state, blocks: state.blocks.slice(), rows: new Map(state.rows), map: new Map(state.map) };
}

export function fullState(frame) {
  const state = emptyState();
  state.groups = frame.groups;
  state.numBlocks = frame.num_blocks;
  state.nullBlock = frame.null_block ?? -1;
  state.omitted = frame.omitted || 0;
  applyFrame(state, frame);
  return state;
}

// Moves `state` on by one frame and returns the ids of the blocks that look different now.
export function applyFrame(state, frame) {
  const changed = new Set(state.focus);
  for (const name of ["sentence", "phase", "step", "score"]) state[name] = frame[name];
  for (const cell of frame.blocks || []) {
    state.blocks[cell[0]] = toBlock(cell);
    changed.add(cell[0]);
  }
  for (const [key, row] of state.rows) if (row.was.size) state.rows.set(key, { ...row, was: new Map() });
  for (const diff of frame.rows || []) state.rows.set(diff.key, toRow(state.rows.get(diff.key), diff));
  for (const key of frame.gone || []) state.rows.delete(key);
  for (const [key, content, ids] of frame.map || []) ids.length ? state.map.set(key, { key, content, ids }) : state.map.delete(key);
  if (frame.queue) state.queue = frame.queue;
  if (frame.tier) state.tier = frame.tier;
  state.moved = frame.moves ? (frame.rows || []).find((diff) => diff.table)?.key ?? null : null;
  state.focus = frame.focus || [];
  for (const id of state.focus) changed.add(id);
  return changed;
}

// A block that nobody holds and no look-up could want is nothing to draw.
function toBlock([id, refCount, content, fill, flags, owners, tokens, groups = []]) {
  if (!refCount && !(flags & FLAGS.mapped)) return undefined;
  return {
    id, refCount, content, fill, owners, tokens, groups,
    isDoubled: groups.length > 1, isHashed: Boolean(flags & FLAGS.hashed), isMapped: Boolean(flags & FLAGS.mapped), isLost: Boolean(flags & FLAGS.lost),
  };
}

function toRow(old, diff) {
  const row = old ? { ...old } : { table: [], texts: [] };
  for (const name of ["key", "request", "group", "name", "status", "num_tokens", "num_computed", "generated"])
    if (name in diff) row[name] = diff[name];
  row.was = new Map();
  row.table = row.table.slice(0, diff.length);
  for (const [i, id] of diff.table || []) {
    if (old && i < old.table.length && old.table[i] !== id) row.was.set(i, old.table[i]);
    row.table[i] = id;
  }
  row.texts = row.texts.slice(0, diff.num_texts);
  for (const [i, tokens] of diff.texts || []) row.texts[i] = tokens;
  return row;
}

export function blockSize(state, group = 0) {
  return state.groups.length ? state.groups[group][1] : 1;
}

// A group in few letters: full, window, window 2.
export function groupLabel(state, group) {
  const kinds = state.groups.map(([kind]) => kind), alike = kinds.reduce((ids, kind, i) => (kind === kinds[group] ? [...ids, i] : ids), []);
  const name = kinds[group] === "sliding_window" ? "window" : "full";
  return alike.length > 1 ? `${name} ${alike.indexOf(group) + 1}` : name;
}

// Tokens as running text; a model without words has numbers, which need a space between them.
export function joined(tokens) {
  return tokens.join(tokens.every((token) => /^\d+$/.test(token)) ? " " : "");
}
