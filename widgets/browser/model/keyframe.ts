// Scenes put away: what cannot be derived, packed close; and the kernel's own kind of keyframe, brought into a scene.
import { refresh } from "./blocks.ts";
import { RequestRecord } from "./requests.ts";
import { KEPT_ARRAYS } from "./scene.ts";
import { TokenStore } from "./tokens.ts";

const SMALL = [
  "moment",
  "contents",
  "edition",
  "step",
  "phase",
  "groups",
  "numBlocks",
  "nullBlock",
  "peak",
  "numLost",
  "scheduled",
  "leaving",
  "version",
];

// Independent of the scene from now on.
export function packed(scene) {
  scene.share();
  const kept = { tokenStores: scene.tokenStores.slice() };
  for (const name of KEPT_ARRAYS) kept[name] = scene[name].slice();
  for (const name of SMALL) kept[name] = scene[name];
  return Object.assign(kept, {
    requests: new Map(scene.requests),
    moreKeys: new Map(scene.moreKeys),
    strays: new Map(scene.strays),
    evictedById: new Map(scene.evictedById),
    queue: scene.queue.packed(),
    map: scene.map.packed(),
    tierSize: scene.tier.size,
    traffic: scene.traffic.slice(),
    slotRows: scene.slotRows.slice(),
    sampled: new Map(scene.sampled),
    violations: scene.violations.slice(),
    numContents: scene.contents.size,
  });
}

// Makes the scene what it was when `kept` was packed.
export function restore(scene, kept) {
  if (scene.numBlocks !== kept.numBlocks) scene.resize(kept.numBlocks);
  scene.share();
  for (const name of KEPT_ARRAYS) scene[name].set(kept[name]);
  for (const name of SMALL) scene[name] = kept[name];
  for (let id = 0; id < kept.numBlocks; id++) scene.tokenStores[id] = kept.tokenStores[id];
  for (const name of ["traffic", "slotRows", "violations"]) scene[name] = kept[name].slice();
  for (const name of ["requests", "moreKeys", "strays", "evictedById", "sampled"]) scene[name] = new Map(kept[name]);
  scene.scheduled = kept.scheduled.slice();
  scene.queue.load(kept.queue, kept.numBlocks);
  scene.map.load(kept.map);
  scene.tier.size = kept.tierSize;
  rebuild(scene);
  scene.changes.all = scene.changes.queue = scene.changes.tier = true;
}

// Where blocks stand and which are equal follows from the rest.
function rebuild(scene) {
  const { places, twins, refCounts, contentOfBlock } = scene;
  places.reset(scene.numBlocks);
  for (const request of scene.requests.values()) addPlaces(scene, request);
  twins.reset(scene.numBlocks);
  for (let id = 0; id < scene.numBlocks; id++)
    if (refCounts[id] && contentOfBlock[id] >= 0) twins.hold(contentOfBlock[id], id);
}

function addPlaces({ places, nullBlock }, { id, tables }) {
  for (let group = 0; group < tables.length; group++) {
    const table = tables[group];
    for (let index = 0; index < table.length; index++)
      if (table[index] >= 0 && table[index] !== nullBlock) places.add(table[index], id, group, index);
  }
}

// A Fold as the kernel wrote it. What it does not tell (where free blocks stood, what went astray) is not known.
export function takeUp(scene, wire) {
  const { keys } = scene.recording;
  scene.empty(wire.ref_counts.length, wire.groups, wire.null_block);
  scene.step = wire.step;
  scene.refCounts.set(wire.ref_counts);
  scene.queue.load(wire.free_queue);
  for (const told of wire.requests) takeUpRequest(scene, told);
  for (const [id, pairs] of wire.block_keys) {
    const [first, ...more] = pairs.map(([group, hex]) => keys.of(group, hex));
    scene.firstKey[id] = first;
    if (more.length) scene.moreKeys.set(id, more);
  }
  for (const [id, ids] of wire.block_tokens) {
    scene.tokenStores[id] = new TokenStore(ids);
    scene.tokenCount[id] = ids.length;
  }
  for (const [group, hex, ids] of wire.prefix_map) numberKey(scene, keys.of(group, hex), group, ids);
  for (let id = 0; id < scene.numBlocks; id++) refresh(scene, id);
  scene.peak = scene.numUsed;
}

function takeUpRequest(scene, [id, status, tokens, numPrompt, numComputed, tables]) {
  const request = new RequestRecord(
    id,
    new TokenStore(tokens.slice()),
    tokens.length,
    null,
    scene.groups.length,
    scene.stamp,
  );
  Object.assign(request, { status, numPrompt, numComputed, tables: tables.map((table) => table.slice()) });
  request.written.fill(numComputed);
  scene.requests.set(id, request);
  addPlaces(scene, request);
  tables.forEach((table, group) => table.forEach((block, index) => settle(scene, block, id, group, index)));
}

function settle(scene, block, id, group, index) {
  if (block < 0 || block === scene.nullBlock) return;
  scene.homeRequest[block] = id;
  scene.homeGroup[block] = group;
  scene.homeIndex[block] = index;
}

function numberKey(scene, key, group, ids) {
  scene.map.put(key, ids);
  for (const block of ids) {
    const request = scene.requests.get(scene.homeRequest[block]);
    if (!request) scene.contents.ofKey(key);
    else
      scene.contents.ofKey(
        key,
        scene.homeGroup[block],
        request.prefixHash(scene.groups[scene.homeGroup[block]].size, scene.homeIndex[block]),
      );
  }
}
