// Joined to the model in a page by the tests: the state of a scene as the Python reference writes it, and walks over recordings.

const table = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});

export function checksum(text) {
  let sum = 0xffffffff;
  for (let i = 0; i < text.length; i++) sum = (sum >>> 8) ^ table[(sum ^ text.charCodeAt(i)) & 255];
  return (sum ^ 0xffffffff) >>> 0;
}

export function blockState(scene, id) {
  const block = scene.block(id),
    flags = (block.isHashed ? 1 : 0) | (block.isMapped ? 2 : 0) | (block.isLost ? 4 : 0);
  const tokens = block.tokens.slice(0, 16).map((token) => (token === null ? "\u2013" : String(token)));
  const { refCount, content, fill, owners, groups, isDuplicate, pins, isEvictable } = block;
  return [id, refCount, content, fill, flags, owners, tokens, groups, isDuplicate, pins, isEvictable];
}

export function stateOf(scene) {
  const blocks = Array.from({ length: scene.numBlocks }, (_, id) => blockState(scene, id));
  const requests = [...scene.requests.values()]
    .filter((r) => !r.isForgotten)
    .map((r) => [r.id, r.status, r.tokens, r.numPrompt, r.numComputed, r.tables]);
  const { used, peak, findable, lost, evictable } = scene.score;
  return [
    scene.step,
    scene.phase,
    [used, peak, findable, lost, evictable],
    blocks,
    requests,
    scene.queue.first(),
    [...scene.map],
    [...scene.tier.keys()],
    treeOf(scene.tree),
  ];
}

function treeOf(tree) {
  const nodes = tree
    .byAge()
    .map(([id, { parent, firstIndex, blocks, numLocks }]) => [id, parent, firstIndex, blocks, numLocks]);
  return [nodes, [...tree.holds].sort(([a], [b]) => a - b)];
}

// Contents numbered as they come in this state.
export function renumbered(state) {
  const numbers = new Map([[-1, -1]]),
    number = (content) => {
      if (!numbers.has(content)) numbers.set(content, numbers.size - 1);
      return numbers.get(content);
    };
  return state.with(
    3,
    state[3].map((block) => block.with(2, number(block[2]))),
  );
}

// What events alone decide, as Python's fold has it.
export function core([step, , , , requests, queue, map, , tree], scene) {
  const rejected = [...scene.requests.values()].filter((r) => r.rejected).map((r) => [r.id, ...r.rejected]);
  const states = Array.from(scene.refCounts, (_, id) => [scene.states.get(id) ?? null, scene.spoiled.has(id)]);
  const blocks = Array.from(scene.refCounts, (refs, id) => {
    const { keys, pins } = scene.block(id),
      start = scene.tokenStart[id];
    return [refs, keys, scene.tokenStores[id]?.ids.slice(start, start + scene.tokenCount[id]) ?? [], pins];
  });
  return [step, blocks, requests, queue, map, rejected, states, tree];
}

// ASCII only, as Python writes it.
export function written(scene, change = (state) => state) {
  return JSON.stringify(change(stateOf(scene), scene)).replace(
    /[^\x00-\x7f]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

// Small and repeatable.
export function dice(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * n);
  };
}

// The first moment at which a scene that is moved from one to the next does not show what it should; null for none.
export function walk(recording, sums, moments, scene = recording.sceneAt(moments[0]), change = undefined) {
  const shown = new Map();
  for (const moment of moments) {
    const changes = recording.move(scene, moment),
      text = written(scene, change),
      wrong = untold(scene, changes, shown);
    if (scene.moment !== moment || checksum(text) !== sums[moment - recording.start])
      return { moment, text, way: "state" };
    if (wrong !== null) return { moment, text: wrong, way: "changes" };
  }
  return null;
}

// Everything that looks different must be among the changes: blocks, requests, keys, queue, tier.
function untold(scene, changes, shown) {
  let wrong = null;
  const see = (name, value, isAnnounced) => {
    const text = JSON.stringify(value);
    if (shown.has(name) && shown.get(name) !== text && !isAnnounced && !changes.all)
      wrong ??= `${name}: ${shown.get(name)} -> ${text}`;
    shown.set(name, text);
  };
  for (let id = 0; id < scene.numBlocks; id++) {
    const { freedAt, ...block } = scene.block(id);
    see(`block ${id}`, block, changes.blocks.has(id));
  }
  for (const [id, r] of scene.requests) {
    const {
      scheduled,
      hit,
      external,
      isLoading,
      finishReason,
      numPreempted,
      status,
      tokens,
      numComputed,
      tables,
      written,
    } = r;
    see(
      `request ${id}`,
      { scheduled, hit, external, isLoading, finishReason, numPreempted, status, tokens, numComputed, tables, written },
      changes.requests.has(id),
    );
  }
  for (const [key, ids] of scene.map) see(`key ${key}`, ids, changes.keys.has(key));
  see("keys", [...scene.map.keys()], changes.keys.size > 0);
  see("queue", scene.queue.first(), changes.queue);
  see("tier", [...scene.tier.keys()], changes.tier);
  see("tree", treeOf(scene.tree), changes.tree);
  return wrong;
}

export function range(start, stop) {
  const step = start <= stop ? 1 : -1;
  return Array.from({ length: Math.abs(stop - start) + 1 }, (_, i) => start + step * i);
}
