// Keyframes: scenes packed without derivable values; and the kernel's keyframes, converted to scenes.

import { noteState, refresh, setHome } from "./blocks.ts";
import type { WireKeyframe } from "./event_rows.ts";
import type { PackedMap } from "./key_maps.ts";
import type { Image } from "./payloads.ts";
import { RequestRecord, TokenStore } from "./requests.ts";
import type { SceneState } from "./scene_state.ts";
import { KEPT_ARRAYS } from "./scene_state.ts";
import { PrefixTree } from "./tree.ts";

// The parts of a scene to keep besides the arrays by block; all else is derived from them.
const KEPT = [
  "moment",
  "contents",
  "edition",
  "hasDrafts",
  "step",
  "phase",
  "groups",
  "numBlocks",
  "nullBlock",
  "peak",
  "numLost",
  "version",
  "scheduled",
  "leaving",
  "tokenStores",
  "requests",
  "moreKeys",
  "strays",
  "states",
  "spoiled",
  "promised",
  "pins",
  "tree",
  "evictedById",
  "traffic",
  "slotRows",
  "sampled",
  "violations",
] as const;

type KeptArrays = Pick<SceneState, (typeof KEPT_ARRAYS)[number]>;
type KeptFields = Pick<SceneState, (typeof KEPT)[number]>;

// A packed scene.
export type Keyframe = KeptArrays & KeptFields & { queue: Int32Array; map: PackedMap; numContents: number };

// Independent of the scene from now on.
export function packed(scene: SceneState): Keyframe {
  scene.share();
  const arrays = Object.fromEntries(KEPT_ARRAYS.map((name) => [name, scene[name].slice()])) as KeptArrays,
    { queue, map, contents } = scene;
  return { ...arrays, ...copied(scene), queue: queue.packed(), map: map.packed(), numContents: contents.size };
}

function copied(kept: KeptFields) {
  return Object.fromEntries(KEPT.map((name) => [name, copyOf(kept[name])])) as unknown as KeptFields;
}

function copyOf(value: KeptFields[keyof KeptFields]) {
  if (value instanceof Map) return new Map(value as Map<unknown, unknown>);
  if (value instanceof Set) return new Set(value);
  if (value instanceof PrefixTree) return value.copy();
  return Array.isArray(value) ? value.slice() : value;
}

// Restores the scene to the state packed in `kept`.
export function restore(scene: SceneState, kept: Keyframe) {
  if (scene.numBlocks !== kept.numBlocks) scene.resize(kept.numBlocks);
  scene.share();
  for (const name of KEPT_ARRAYS) scene[name].set(kept[name]);
  Object.assign(scene, copied(kept));
  scene.queue.load(kept.queue, kept.numBlocks);
  scene.map.load(kept.map);
  scene.tier.length = scene.shared.tierLog.countAt(kept.moment);
  rebuild(scene);
  scene.changes.all = scene.changes.queue = scene.changes.tier = scene.changes.tree = true;
}

// The places of blocks and equal contents are derived from the rest.
function rebuild(scene: SceneState) {
  const { places, twins, refCounts, contentOfBlock } = scene;
  places.reset(scene.numBlocks);
  for (const request of scene.requests.values()) addPlaces(scene, request);
  twins.reset(scene.numBlocks);
  for (let id = 0; id < scene.numBlocks; id++)
    if (refCounts[id] && contentOfBlock[id] >= 0) twins.hold(contentOfBlock[id], id);
}

function addPlaces({ places, nullBlock }: SceneState, { id, tables }: { id: number; tables: number[][] }) {
  for (let group = 0; group < tables.length; group++) {
    const table = tables[group];
    for (let index = 0; index < table.length; index++)
      if (table[index] >= 0 && table[index] !== nullBlock) places.add(table[index], id, group, index);
  }
}

// A Fold as the kernel wrote it. It lacks the former places of free blocks, misplaced writes, and what is
// registered and not written.
export function takeUp(scene: SceneState, wire: WireKeyframe) {
  const { keys } = scene.shared;
  scene.empty(wire.ref_counts.length, wire.groups, wire.null_block);
  scene.step = wire.step;
  scene.refCounts.set(wire.ref_counts);
  scene.queue.load(wire.free_queue);
  scene.pins = new Map(wire.pins);
  scene.tree = PrefixTree.of(wire.tree ?? []);
  for (const [id, { blocks }] of scene.tree.nodes) for (const block of blocks) scene.nodeOf[block] = id;
  const images = new Map(wire.images);
  for (const request of wire.requests) takeUpRequest(scene, request, images.get(request[0]));
  for (const [id, priority] of wire.priorities ?? []) scene.own(id).priority = priority;
  for (const [id, tokens] of wire.drafts ?? []) scene.own(id).drafts = tokens;
  for (const [id, first] of wire.beams ?? []) scene.own(id).firstBeam = first;
  for (const [id, start, end] of wire.rejected ?? []) scene.own(id).rejected = [start, end];
  if (wire.states) takeUpStates(scene, wire.states);
  else for (const { tables, numComputed } of scene.requests.values()) assumeStates(scene, tables, numComputed);
  scene.hasDrafts = Boolean(wire.drafts?.length);
  for (const [id, pairs] of wire.block_keys) {
    const [first, ...more] = pairs.map(([group, hex]) => keys.of(group, hex));
    scene.firstKey[id] = first;
    if (more.length) scene.moreKeys.set(id, more);
  }
  for (const [id, ids] of wire.block_tokens) {
    scene.tokenStores[id] = new TokenStore(ids);
    scene.tokenCount[id] = ids.length;
  }
  for (const [group, hex, ids] of wire.prefix_map) numberKey(scene, keys.of(group, hex), ids);
  for (let id = 0; id < scene.numBlocks; id++) refresh(scene, id);
  scene.peak = scene.numUsed;
}

function takeUpRequest(
  scene: SceneState,
  [id, status, tokens, numPrompt, numComputed, tables]: WireKeyframe["requests"][number],
  images: Image[] = [],
) {
  const request = new RequestRecord(
    id,
    new TokenStore(tokens.slice(), images),
    tokens.length,
    null,
    scene.groups.length,
    scene.stamp,
  );
  Object.assign(request, { status, numPrompt, numComputed, tables: tables.map((table) => table.slice()) });
  request.written.fill(numComputed);
  scene.requests.set(id, request);
  addPlaces(scene, request);
  tables.forEach((table, group) => table.forEach((block, index) => setHome(scene, block, id, group, index)));
}

function takeUpStates(scene: SceneState, states: NonNullable<WireKeyframe["states"]>) {
  scene.states = new Map(states.map(([block, numTokens]) => [block, numTokens]));
  scene.spoiled = new Set(states.filter(([, , isSpoiled]) => isSpoiled).map(([block]) => block));
}

// The states that a request needs: an older recording does not say which ones were written.
function assumeStates(scene: SceneState, tables: number[][], numComputed: number) {
  tables.forEach((table, group) => {
    const { kind, size } = scene.groups[group];
    if (kind === "state")
      table.forEach((block, index) => noteState(scene, block, Math.min((index + 1) * size, numComputed), index * size));
  });
}

function numberKey(scene: SceneState, key: number, ids: number[]) {
  scene.map.put(key, ids);
  for (const block of ids) {
    const request = scene.requests.get(scene.homeRequest[block]),
      group = scene.homeGroup[block];
    if (!request) scene.contents.ofKey(key);
    else scene.contents.ofKey(key, group, request.prefixHash(scene.groups[group].size, scene.homeIndex[block]));
  }
}
