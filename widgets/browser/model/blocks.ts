// Derived state of one block: its fill, its content's number, whether it is lost, the tokens in its slots.

import type { EventRows } from "./event_rows.ts";
import type { RequestRecord, TokenStore } from "./requests.ts";
import type { SceneState } from "./scene_state.ts";

// The request whose table gives its content. A block that outlives its last place has another one.
function homeOf(scene: SceneState, id: number) {
  const request = scene.requests.get(scene.homeRequest[id]);
  if (!scene.refCounts[id] || request?.tables[scene.homeGroup[id]]?.[scene.homeIndex[id]] === id) return request;
  const place = scene.places.head[id] < 0 ? null : scene.places.of(id)[0];
  if (place) setHome(scene, id, ...place);
  if (place) return scene.requests.get(place[0]);
  return scene.pins.has(id) ? undefined : request; // its former request's table leads elsewhere
}

// The entry of a table whose tokens a block holds.
export function setHome(scene: SceneState, block: number, id: number, group: number, index: number) {
  if (block < 0 || block === scene.nullBlock) return;
  scene.homeRequest[block] = id;
  scene.homeGroup[block] = group;
  scene.homeIndex[block] = index;
}

// withStrays: up to the last slot that anything went to, be it the wrong one.
export function fillOf(scene: SceneState, id: number, withStrays = false) {
  const strays = withStrays && scene.strays.size ? scene.strays.get(id) : undefined;
  const fill = fillByTable(scene, id);
  return strays?.size ? Math.max(fill, 1 + Math.max(...strays.keys())) : fill;
}

function fillByTable(scene: SceneState, id: number) {
  const key = scene.firstKey[id];
  if (key >= 0) return scene.groups[scene.shared.keys.groups[key]].size;
  if (!scene.refCounts[id]) return 0;
  const request = homeOf(scene, id);
  if (!request) return 0;
  const group = scene.homeGroup[id],
    { size } = scene.groups[group];
  return Math.max(0, Math.min(size, request.written[group] - scene.homeIndex[id] * size));
}

// After how many tokens a block's state is; null for a block of KV, and for a state that nothing has been written to.
export function stateOf(scene: SceneState, id: number) {
  return scene.keepsStates(id) ? (scene.states.get(id) ?? null) : null;
}

// Notes that a block holds the state after so many tokens, in an entry for states after more than `start`.
export function noteState(scene: SceneState, block: number, numTokens: number, start = 0) {
  if (block === scene.nullBlock || numTokens <= start) return;
  scene.states.set(block, numTokens);
  scene.spoiled.delete(block);
}

// The slots of a block that hold KV of rejected guesses, as [first, after the last]; all of a state that has seen one;
// null without any.
export function garbageOf(scene: SceneState, id: number): [start: number, end: number] | null {
  if (!scene.refCounts[id]) return null;
  if (scene.keepsStates(id)) return scene.spoiled.has(id) ? [0, scene.sizeOf(id)] : null;
  const request = homeOf(scene, id);
  if (!request?.rejected) return null;
  const { size } = scene.groups[scene.homeGroup[id]],
    first = scene.homeIndex[id] * size,
    start = Math.max(0, request.rejected[0] - first, request.numComputed - first),
    end = Math.min(size, request.rejected[1] - first);
  return start < end ? [start, end] : null;
}

// The tokens of a block's request, and the position of the block's first; null for a block without known content.
export function blockText(scene: SceneState, id: number): { store: TokenStore; start: number } | null {
  const cached = scene.tokenStores[id];
  if (cached) return { store: cached, start: scene.tokenStart[id] };
  const request = homeOf(scene, id);
  return request ? { store: request.store, start: scene.homeIndex[id] * scene.groups[scene.homeGroup[id]].size } : null;
}

// The image behind each of a block's tokens; null where it has none. The first token of an image names it.
export function imagesOf(scene: SceneState, id: number, count: number) {
  const text = blockText(scene, id);
  if (!text?.store.images.length) return null;
  return Array.from({ length: count }, (_, i) => text.store.imageAt(text.start + i));
}

// How many of a block's tokens are guesses that are written, and not judged yet.
export function numGuessed(scene: SceneState, id: number) {
  const request = scene.refCounts[id] ? homeOf(scene, id) : undefined;
  if (!request?.drafts.length || scene.keepsStates(id)) return 0;
  const first = scene.homeIndex[id] * scene.groups[scene.homeGroup[id]].size,
    end = first + fillByTable(scene, id);
  return Math.max(0, end - Math.max(first, request.numTokens));
}

function contentOf(scene: SceneState, id: number) {
  const key = scene.firstKey[id];
  if (key >= 0) return scene.contents.ofKey(key);
  if (!scene.refCounts[id]) return -1;
  const request = homeOf(scene, id);
  if (!request) return -1;
  const group = scene.homeGroup[id],
    { size } = scene.groups[group];
  const end = (scene.homeIndex[id] + 1) * size;
  if (Math.min(request.written[group], request.numTokens) < end) return -1;
  if (scene.keepsStates(id) && scene.states.get(id) !== end) return -1;
  return scene.contents.ofPrefix(group, request.prefixHash(size, scene.homeIndex[id]));
}

// Alive, hashed, and the map serves another block.
function isLost(scene: SceneState, id: number) {
  if (!scene.refCounts[id] || scene.firstKey[id] < 0) return false;
  if (scene.map.holds(scene.firstKey[id], id)) return false;
  return !(scene.moreKeys.get(id) ?? []).some((key) => scene.map.holds(key, id));
}

// Updates the cached values of a block.
export function refresh(scene: SceneState, id: number) {
  const lost = isLost(scene, id) ? 1 : 0;
  scene.numLost += lost - scene.isLostFlag[id];
  scene.isLostFlag[id] = lost;
  const content = contentOf(scene, id);
  scene.contentOfBlock[id] = content;
  const held = scene.refCounts[id] ? content : -1;
  if (held !== scene.twins.held[id]) for (const other of scene.twins.hold(held, id)) if (other >= 0) scene.mark(other);
}

// Notes that a block has changed, or may have.
export function touch(scene: SceneState, id: number) {
  if (id < 0 || id >= scene.numBlocks) return;
  scene.mark(id);
  refresh(scene, id);
}

// The token in each written slot; null in one that holds nothing.
export function tokensOf(scene: SceneState, id: number) {
  const tokens = tokensByTable(scene, id),
    strays = scene.strays.get(id);
  if (!strays?.size) return tokens;
  while (tokens.length <= Math.max(...strays.keys())) tokens.push(null);
  for (const [offset, token] of strays) tokens[offset] = token;
  return tokens;
}

function tokensByTable(scene: SceneState, id: number): (number | null)[] {
  const store = scene.tokenStores[id],
    start = scene.tokenStart[id];
  if (store) return store.ids.slice(start, start + scene.tokenCount[id]);
  const request = homeOf(scene, id);
  if (!request) return [];
  const from = scene.homeIndex[id] * scene.groups[scene.homeGroup[id]].size;
  const end = from + fillOf(scene, id),
    tokens = request.tokensBetween(from, end);
  return request.drafts.length && end > request.numTokens // written, and not judged yet
    ? [...tokens, ...request.drafts.slice(Math.max(0, from - request.numTokens), end - request.numTokens)]
    : tokens;
}

// Notes the slots that the forward pass wrote: how full the blocks are, and which slots are not as the tables say.
export function noteSlots(scene: SceneState, [, id, group, start, runs]: EventRows["SlotsWritten"]) {
  const request = scene.own(id),
    { size } = scene.groups[group],
    table = request.tables[group];
  for (const [block, offset, length] of runs)
    if (scene.strays.size && scene.strays.has(block)) overwrite(scene, block, offset, length);
  const strays = misplaced(table, size, start, runs);
  request.written[group] = start + runs.reduce((sum, [, , length]) => sum + length, 0);
  for (const [block, offset, length] of runs) {
    keepPromise(scene, block, offset + length);
    touch(scene, block);
  }
  for (const [position, slot, rightSlot] of strays) {
    noteStray(scene, Math.floor(slot / size), slot % size, request.token(position));
    noteStray(scene, Math.floor(rightSlot / size), rightSlot % size, null);
  }
}

// Notes a block that gets its key; numWritten: the slots of it that are written.
export function notePromise(scene: SceneState, block: number, numWritten: number) {
  if (numWritten < scene.sizeOf(block)) scene.promised.set(block, Math.max(0, numWritten));
}

// Notes that a block is written up to a slot. One that holds all that its key stands for is a block like any other.
export function keepPromise(scene: SceneState, block: number, numWritten: number) {
  const before = scene.promised.get(block);
  if (before === undefined || numWritten <= before) return;
  if (numWritten < scene.sizeOf(block)) scene.promised.set(block, numWritten);
  else scene.promised.delete(block);
  scene.mark(block);
}

// Notes a token that has become known after its slot was written, as happens with asynchronous scheduling.
export function noteToken(scene: SceneState, request: RequestRecord, position: number) {
  request.tables.forEach((table, group) => {
    const block = table[Math.floor(position / scene.groups[group].size)];
    if (position < request.written[group] && block !== undefined) touch(scene, block);
  });
}

// [[position, slot it went to, slot where it will be looked for]], where the two differ (nano-vLLM PR 71).
function misplaced(table: number[], size: number, start: number, runs: [number, number, number][]) {
  const found = [];
  let position = start;
  for (const [block, offset, length] of runs) {
    const index = Math.floor(position / size),
      right = position - index * size;
    if (index < table.length && (table[index] !== block || right !== offset))
      found.push([position, block * size + offset, table[index] * size + right]);
    position += length;
  }
  return found;
}

function overwrite(scene: SceneState, block: number, offset: number, length: number) {
  const slots = new Map(scene.strays.get(block));
  for (let i = offset; i < offset + length; i++) slots.delete(i);
  scene.strays.set(block, slots);
}

// Notes that the slots of a token were computed with another one: a guess that was accepted and is not equal.
export function noteOtherToken(scene: SceneState, request: RequestRecord, position: number, token: number) {
  request.tables.forEach((table, group) => {
    const { kind, size } = scene.groups[group],
      block = table[Math.floor(position / size)];
    if (kind !== "state" && block !== undefined) noteStray(scene, block, position % size, token);
  });
}

// Maps of strays are replaced and never changed, so that copies of a scene may share them.
function noteStray(scene: SceneState, block: number, offset: number, token: number | null) {
  scene.strays.set(block, new Map(scene.strays.get(block)).set(offset, token));
  touch(scene, block);
}
