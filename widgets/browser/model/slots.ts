// Slots that the forward pass wrote: how full a request's blocks are, and the slots that are not as the tables say.

import { touch } from "./blocks.ts";
import type { EventRows } from "./event_rows.ts";
import type { RequestRecord } from "./requests.ts";
import type { SceneState } from "./scene_state.ts";

export function noteSlots(scene: SceneState, [, id, group, start, runs]: EventRows["SlotsWritten"]) {
  const request = scene.own(id),
    { size } = scene.groups[group],
    table = request.tables[group];
  let position = start,
    isMisplaced = false;
  for (const [block, offset, length] of runs) {
    if (scene.strays.size && scene.strays.has(block)) overwrite(scene, block, offset, length);
    const index = Math.floor(position / size);
    if (index < table.length && (table[index] !== block || position - index * size !== offset)) isMisplaced = true;
    position += length;
  }
  request.written[group] = position;
  for (const [block] of runs) touch(scene, block);
  if (isMisplaced) noteStrays(scene, request, table, size, start, runs);
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

// Maps of strays are replaced and never changed, so that copies of a scene may share them.
function noteStrays(
  scene: SceneState,
  request: RequestRecord,
  table: number[],
  size: number,
  start: number,
  runs: [number, number, number][],
) {
  for (const [position, slot, rightSlot] of misplaced(table, size, start, runs)) {
    const written: [slot: number, token: number | null][] = [
      [slot, request.token(position)],
      [rightSlot, null],
    ];
    for (const [at, token] of written) {
      const block = Math.floor(at / size);
      scene.strays.set(block, new Map(scene.strays.get(block)).set(at - block * size, token));
      touch(scene, block);
    }
  }
}
