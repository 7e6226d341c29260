// Differences between two states: blocks, requests and entries of the map.
import type { Scene } from "./scene.ts";

// The subjects that differ between two states.
export interface Differences {
  blocks: Set<number>;
  requests: Set<number>;
  keys: Set<string>;
}

export function differing(scene: Scene, reference: Scene): Differences {
  return { blocks: blocks(scene, reference), requests: requests(scene, reference), keys: keys(scene, reference) };
}

function blocks(scene: Scene, reference: Scene) {
  const found = new Set<number>();
  for (let id = 0; id < scene.numBlocks; id++)
    if (
      scene.refCounts[id] !== reference.refCounts[id] ||
      scene.contentOfBlock[id] !== reference.contentOfBlock[id] ||
      scene.isLostFlag[id] !== reference.isLostFlag[id]
    )
      found.add(id);
  return found;
}

// Blocks that differ between two sides at the same time. A free block's content counts only while a look-up finds it.
export function unlike(scene: Scene, other: Scene) {
  const found = new Set<number>();
  for (let id = 0; id < Math.min(scene.numBlocks, other.numBlocks); id++) {
    const isOther = scene.refCounts[id] !== other.refCounts[id] || scene.isLostFlag[id] !== other.isLostFlag[id];
    if (isOther || foundIn(scene, id) !== foundIn(other, id)) found.add(id);
  }
  return found;
}

function foundIn(scene: Scene, id: number) {
  return scene.refCounts[id] || scene.isMapped(id) ? scene.contentOfBlock[id] : -1;
}

function requests(scene: Scene, reference: Scene) {
  const found = new Set<number>();
  for (const [id, request] of scene.requests) {
    const before = reference.requests.get(id);
    if (
      !before ||
      before.status !== request.status ||
      before.numTokens !== request.numTokens ||
      before.numComputed !== request.numComputed ||
      String(before.tables) !== String(request.tables)
    )
      found.add(id);
  }
  return found;
}

function keys(scene: Scene, reference: Scene) {
  const found = new Set<string>();
  for (const [key, ids] of scene.map) if (String(reference.map.get(key)) !== String(ids)) found.add(key);
  for (const [key] of reference.map) if (!scene.map.has(key)) found.add(key);
  return found;
}
