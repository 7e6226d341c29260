// Slots that the forward pass wrote: how full a request's blocks are, and the slots that are not as the tables say.

export function noteSlots(scene, [, id, group, start, runs]) {
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
  for (const [block] of runs) scene.touch(block);
  if (isMisplaced) noteStrays(scene, request, table, size, start, runs);
}

// [[position, slot it went to, slot where it will be looked for]], where the two differ (nano-vLLM PR 71).
export function misplaced(table, size, start, runs) {
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

function overwrite(scene, block, offset, length) {
  const slots = new Map(scene.strays.get(block));
  for (let i = offset; i < offset + length; i++) slots.delete(i);
  scene.strays.set(block, slots);
}

// Maps of strays are replaced and never changed, so that copies of a scene may share them.
function noteStrays(scene, request, table, size, start, runs) {
  for (const [position, slot, rightSlot] of misplaced(table, size, start, runs)) {
    for (const [at, token] of [
      [slot, request.token(position)],
      [rightSlot, null],
    ]) {
      const block = Math.floor(at / size);
      scene.strays.set(block, new Map(scene.strays.get(block)).set(at - block * size, token));
      scene.touch(block);
    }
  }
}
