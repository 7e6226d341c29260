// What each kind of event does to a scene. Rows are [kind, ...fields], fields in the order of event_rows.ts.

import { keepPromise, noteOtherToken, notePromise, noteSlots, noteState, noteToken, setHome, touch } from "./blocks.ts";
import type { EventRows } from "./event_rows.ts";
import { ENTRY_REPLACED } from "./event_rows.ts";
import type { AnyRow, EventKind, Transfer } from "./events.ts";
import { UnknownThing } from "./events.ts";
import type { RequestStatus } from "./payloads.ts";
import { RequestRecord } from "./requests.ts";
import type { SceneState, Traffic } from "./scene_state.ts";
import { ROOT } from "./tree.ts";

const MAX_TRAFFIC = 64,
  MAX_EVICTED = 64;

// What a kind of event does to a scene.
export type Handler = (scene: SceneState, row: AnyRow) => void;

export const HANDLERS: { [Kind in EventKind]?: (scene: SceneState, row: EventRows[Kind]) => void } = {
  EngineStarted(scene, [, numBlocks, groups, edition, nullBlock]) {
    scene.edition = edition;
    scene.restart(numBlocks, groups, nullBlock);
  },

  StepStarted(scene, [, step]) {
    scene.step = step;
    scene.peak = scene.numUsed;
    scene.beginStep();
  },

  RequestAdded(scene, row) {
    const [, id, tokens, maxTokens, numGenerated, from, priority, numBeams] = row,
      store = scene.shared.storeOf(row),
      request = new RequestRecord(id, store, tokens.length, maxTokens, scene.groups.length, scene.stamp);
    if (scene.requests.has(id)) emptied(scene, id, "waiting");
    request.numPrompt -= numGenerated;
    request.priority = priority;
    if (numBeams > 1) request.firstBeam = from ?? id;
    request.leader = from;
    scene.requests.set(id, request);
    scene.changes.requests.add(id);
  },

  PrefixHit(scene, [, id, numTokens, blockIds]) {
    const request = scene.own(id);
    request.numComputed = request.hit = numTokens;
    request.written.fill(numTokens);
    request.external = 0;
    for (const table of request.tables) for (const block of table) touch(scene, block); // a load of one token in all
    if (scene.isHead) blockIds.forEach((ids, group) => linkAll(scene, request, group, ids));
  },

  RequestForked(scene, [, id, , numTokens]) {
    const request = scene.own(id);
    request.leader = null;
    request.status = "running";
    request.numComputed = numTokens;
    request.written.fill(numTokens);
  },

  BeamReplaced(scene, [, id, tokens, from]) {
    const request = scene.own(id);
    if (from !== null) request.numReplaced++;
    request.replaceGenerated(tokens);
    request.numComputed = 0;
    request.written.fill(0);
  },

  RequestScheduled(scene, [, id, start, num, isPrefill, status, numDrafts]) {
    const request = scene.own(id);
    request.status = status;
    request.drafts = request.drafts.slice(0, numDrafts);
    if (request.rejected) {
      touchFrom(scene, request, request.rejected[0]);
      request.rejected = [Math.max(request.rejected[0], start + num), request.rejected[1]];
    }
    request.isLoading = false;
    request.scheduled = { start, num, isPrefill };
    scene.scheduled.push(id);
  },

  RequestPreempted(scene, [, id]) {
    emptied(scene, id, "preempted").numPreempted++;
  },

  // One that holds its blocks for a connector keeps its tables: they are drawn until it is released.
  RequestFinished(scene, [, id, reason, holdsBlocks]) {
    const request = holdsBlocks ? scene.own(id) : emptied(scene, id, "finished");
    request.status = "finished";
    request.numComputed = 0;
    request.drafts = [];
    request.finishReason = reason;
  },

  RequestReleased(scene, [, id]) {
    emptied(scene, id, "finished");
  },

  // Views of the step that has just ended still draw it: it goes when the next one begins.
  RequestForgotten(scene, [, id]) {
    if (!scene.requests.has(id)) return;
    emptied(scene, id, "finished").isForgotten = true;
    scene.leaving = [...scene.leaving, id];
  },

  ExternalHit(scene, [, id, numTokens, isLoading]) {
    const request = scene.own(id);
    request.external = numTokens;
    request.isLoading = isLoading;
    if (isLoading) request.status = "waiting";
    else request.numComputed += numTokens;
  },

  // The load comes before anything else is written: what it fills is filled from the start.
  BlocksLoaded(scene, row) {
    const [, id, transfers] = row,
      request = scene.own(id);
    request.isLoading = false;
    for (const [group, index] of transfers)
      request.written[group] = Math.max(
        request.written[group],
        Math.min((index + 1) * scene.groups[group].size, request.numTokens),
      );
    noteTransfers(scene, request, transfers, true);
    for (const [group, index, block] of transfers) {
      if (scene.groups[group]?.kind === "state") noteState(scene, block, (index + 1) * scene.groups[group].size);
      scene.promised.delete(block);
      touch(scene, block);
    }
    noteTraffic(scene, { request: id, isLoad: true, isFailed: false, transfers });
  },

  RequestReceived(scene, [, id, transfers, , , numTokens]) {
    const request = scene.own(id);
    request.written = request.written.map((num: number) => Math.max(num, numTokens));
    for (const [group, index, block] of transfers) {
      const { kind, size } = scene.groups[group];
      if (kind === "state") noteState(scene, block, Math.min((index + 1) * size, numTokens), index * size);
      touch(scene, block);
    }
  },

  BlocksSaved(scene, [, id, transfers]) {
    noteTransfers(scene, scene.request(id), transfers, false);
    noteTraffic(scene, { request: id, isLoad: false, isFailed: false, transfers });
  },

  // Its contents get their letters with the first prompt that has them.
  TierChanged(scene, [, added, dropped, pinned]) {
    const { tierLog, keys } = scene.shared,
      moment = scene.moment + 1;
    const note = (group: number, hex: string, act: (key: number) => void) => {
      const key = keys.of(group, hex);
      if (scene.isHead) act(key);
      scene.changedKeys.push(key);
    };
    for (const [group, hex] of dropped) note(group, hex, (key) => tierLog.note(key, false, moment));
    for (const [group, hex] of added) note(group, hex, (key) => tierLog.note(key, true, moment));
    for (const [group, hex, pins] of pinned) note(group, hex, (key) => tierLog.notePins(key, pins, moment));
    scene.changes.tier = true;
  },

  LoadFailed(scene, [, id]) {
    if (scene.requests.has(id)) scene.own(id).isLoading = false;
    noteTraffic(scene, { request: id, isLoad: true, isFailed: true, transfers: [] });
  },

  BlockEvicted(scene, [, block, reason]) {
    known(scene, block);
    for (const key of scene.keysOf(block)) {
      const ids = scene.map.at(key),
        left = ids ? ids.filter((id) => id !== block) : [];
      if (left.length) scene.map.put(key, left);
      else if (ids) loseKey(scene, key, block, reason);
      scene.changedKeys.push(key);
    }
    scene.firstKey[block] = -1;
    scene.moreKeys.delete(block);
    scene.promised.delete(block);
    scene.tokenStores[block] = null;
    touch(scene, block);
  },

  BlockAllocated(scene, [, block, id, group, index]) {
    leaveQueue(scene, block);
    count(scene, block, 1);
    append(scene, block, id, group);
    scene.strays.delete(block);
    scene.states.delete(block);
    scene.spoiled.delete(block);
    setHome(scene, block, id, group, index);
    touch(scene, block);
  },

  BlocksSkipped(scene, [, id, group, numBlocks]) {
    const table = tableOf(scene, id, group);
    for (let i = 0; i < numBlocks; i++) table.push(scene.nullBlock);
  },

  BlockTouched(scene, [, block, id, group, index, refCount]) {
    if (scene.refCounts[block] === 0) leaveQueue(scene, block);
    count(scene, block, refCount);
    append(scene, block, id, group);
    setHome(scene, block, id, group, index);
    touch(scene, block);
  },

  BlockCached(scene, [, block, id, group, index, hex, mapped, isFull]) {
    known(scene, block);
    if (!scene.groups[group]) throw new UnknownThing(`there is no group ${group}`);
    const key = scene.shared.keys.of(group, hex),
      before = scene.map.at(key),
      { size } = scene.groups[group],
      request = scene.requests.get(id);
    scene.changedKeys.push(key);
    scene.mark(block);
    if (scene.firstKey[block] < 0) scene.firstKey[block] = key;
    else scene.moreKeys.set(block, [...(scene.moreKeys.get(block) ?? []), key]);
    if (isFull) setTokens(scene, block, scene.request(id), index * size, size);
    if (isFull && request) notePromise(scene, block, request.written[group] - index * size);
    if (mapped.length) scene.map.put(key, mapped);
    scene.evictedById.delete(key);
    if (scene.isHead && request) {
      scene.contents.ofKey(key, group, request.prefixHash(size, index));
      if (isFull) noteParent(scene, request, group, index, key);
    }
    if (before) for (const other of before) touch(scene, other);
    touch(scene, block);
  },

  BlockMerged(scene, [, block, into, id, group, index, refCount]) {
    known(scene, into);
    replace(scene, id, group, index, into);
    const request = scene.own(id);
    request.merged = [...request.merged, block];
    count(scene, into, refCount);
    touch(scene, block);
  },

  BlockFreed(scene, [, block, id, group, index, refCount, queueEnd, reason]) {
    count(scene, block, refCount);
    if (queueEnd !== null) enterQueue(scene, block, queueEnd);
    if (!ENTRY_REPLACED.includes(reason)) {
      const table = replace(scene, id, group, index, scene.nullBlock);
      leaveHome(scene, block, id, index);
      if (reason !== "window" && reason !== "state")
        while (table.length && table[table.length - 1] === scene.nullBlock) table.pop();
    }
  },

  // Each block keeps a reference that no table holds.
  FreeDeferred(scene, [, id, group, blocks]) {
    const held = tableOf(scene, id, group).splice(0);
    held.forEach((block: number, index: number) => {
      if (block !== scene.nullBlock) scene.places.remove(block, id, group, index);
    });
    for (const block of held) touch(scene, block);
    for (const block of blocks) pin(scene, block, 1);
  },

  BlockPinned(scene, [, block, refCount]) {
    if (scene.refCounts[block] === 0) leaveQueue(scene, block);
    count(scene, block, refCount);
    pin(scene, block, 1);
  },

  BlockUnpinned(scene, [, block, refCount, queueEnd]) {
    count(scene, block, refCount);
    if (queueEnd !== null) enterQueue(scene, block, queueEnd);
    pin(scene, block, -1);
  },

  BlockCopied(scene, [, block, into, id, group, index, isPinned]) {
    leaveQueue(scene, into);
    known(scene, into);
    replace(scene, id, group, index, into);
    count(scene, into, isPinned ? 2 : 1);
    scene.strays.delete(into);
    leaveHome(scene, block, id, index);
    setHome(scene, into, id, group, index);
    for (const one of isPinned ? [block, into] : []) pin(scene, one, 1);
  },

  BlockMoved(scene, [, block, id, group, index]) {
    replace(scene, id, group, index, scene.nullBlock);
    append(scene, block, id, group);
    leaveHome(scene, block, id, index);
    touch(scene, block);
  },

  HashesMoved(scene, [, block, into]) {
    known(scene, block);
    known(scene, into);
    for (const key of scene.keysOf(block)) {
      const ids = scene.map.at(key);
      if (ids?.includes(block)) scene.map.put(key, [...ids.filter((id) => id !== block), into]);
      scene.changedKeys.push(key);
    }
    const more = scene.moreKeys.get(block);
    if (more) scene.moreKeys.set(into, more);
    else scene.moreKeys.delete(into);
    scene.moreKeys.delete(block);
    for (const array of [scene.firstKey, scene.tokenStart, scene.tokenCount]) array[into] = array[block];
    scene.tokenStores[into] = scene.tokenStores[block];
    scene.firstKey[block] = -1;
    scene.tokenStores[block] = null;
    touch(scene, block);
    touch(scene, into);
  },

  NodeInserted(scene, [, id, parent, , , firstIndex, blocks]) {
    scene.tree.insert(id, parent, firstIndex, blocks);
    own(scene, id, blocks);
    for (const block of blocks) {
      known(scene, block);
      count(scene, block, scene.refCounts[block] + 1);
      pin(scene, block, 1);
    }
  },

  NodeSplit(scene, [, id, upper, numBlocks]) {
    scene.tree.split(id, upper, numBlocks);
    own(scene, upper, scene.tree.node(upper).blocks);
  },

  NodesTouched(scene, [, ids]) {
    scene.changes.tree = true;
    scene.tree.touch(ids);
  },

  NodeLocked(scene, [, id, request]) {
    markNodes(scene, scene.tree.lock(id, request), 1);
  },

  NodeUnlocked(scene, [, id, request]) {
    markNodes(scene, scene.tree.unlock(id, request), 0);
  },

  NodeEvicted(scene, [, id, blocks, end, , numKept]) {
    scene.tree.evict(id, numKept);
    own(scene, ROOT, blocks);
    for (const block of end === "head" ? blocks.toReversed() : blocks) {
      known(scene, block);
      count(scene, block, end === null ? scene.refCounts[block] - 1 : 0);
      if (end !== null) enterQueue(scene, block, end);
      pin(scene, block, -1);
    }
  },

  SlotsWritten(scene, row) {
    scene.slotRows.push(row);
    noteSlots(scene, row);
  },

  StateCopied(scene, [, block, into, , , numTokens]) {
    known(scene, into);
    noteState(scene, into, numTokens);
    touch(scene, block);
    touch(scene, into);
  },

  StateAdvanced(scene, [, id, group, block, , end]) {
    scene.own(id).written[group] = end;
    known(scene, block);
    noteState(scene, block, end);
    keepPromise(scene, block, end - scene.homeIndex[block] * scene.groups[group].size);
    touch(scene, block);
  },

  TokensComputed(scene, [, id, numComputed]) {
    const request = scene.own(id);
    request.numComputed = numComputed;
    if (scene.promised.size) keepPromises(scene, request);
    if (numComputed) return;
    for (const table of request.ownTables())
      if (table.every((block: number) => block === scene.nullBlock)) table.length = 0;
  },

  TokenSampled(scene, [, id, token]) {
    const request = scene.own(id);
    request.append(token);
    scene.sampled.set(id, token);
    noteToken(scene, request, request.numTokens - 1);
    const [guess, ...accepted] = request.accepted;
    request.accepted = accepted;
    if (guess !== undefined && guess !== token) noteOtherToken(scene, request, request.numTokens - 1, guess);
  },

  TokensDrafted(scene, [, id, tokens]) {
    scene.own(id).drafts = tokens;
    scene.hasDrafts = true;
  },

  // The slots of rejected guesses no longer count as filled.
  DraftsJudged(scene, [, id, numAccepted, numRejected]) {
    const request = scene.own(id);
    request.accepted = request.drafts.slice(0, numAccepted);
    request.drafts = [];
    request.numJudged += numAccepted + numRejected;
    request.numAccepted += numAccepted;
    const start = request.numTokens + numAccepted,
      end = start + numRejected;
    if (numRejected) {
      request.rejected = [start, Math.max(end, request.rejected?.[1] ?? 0)];
      request.written = request.written.map((num: number) => Math.min(num, start));
      spoil(scene, request, start);
    }
    touchFrom(scene, request, start - numAccepted);
  },

  ViolationFound(scene, [, , , , blocks]) {
    scene.violations.push(scene.moment);
    for (const id of blocks) touch(scene, id);
  },
};

// Applies one event. StepRolledBack has no handler: its state is fetched by Recording.
export function apply(scene: SceneState, handle: Handler | null, row: AnyRow) {
  if (handle) applyPossible(scene, handle, row);
  if (scene.numUsed > scene.peak) scene.peak = scene.numUsed;
  scene.moment++;
}

// An impossible event, as faulty parts emit, stops at the first thing that it names and that is not there; its changes
// before that stay, as in labengine/record/fold.py.
function applyPossible(scene: SceneState, handle: Handler, row: AnyRow) {
  try {
    handle(scene, row);
  } catch (error) {
    // TypeError: a table that is not there
    if (!(error instanceof UnknownThing || error instanceof TypeError)) throw error;
  }
}

// The states after more tokens than the first `end` have seen a rejected guess.
function spoil(scene: SceneState, { tables }: RequestRecord, end: number) {
  tables.forEach((table, group) => {
    if (scene.groups[group].kind !== "state") return;
    for (const block of table)
      if ((scene.states.get(block) ?? 0) > end) {
        scene.spoiled.add(block);
        touch(scene, block);
      }
  });
}

// The blocks of a request from the one with a token's slot on.
function touchFrom(scene: SceneState, { tables }: RequestRecord, position: number) {
  tables.forEach((table, group) => {
    for (const block of table.slice(Math.floor(position / scene.groups[group].size))) touch(scene, block);
  });
}

function linkAll(scene: SceneState, request: RequestRecord, group: number, ids: number[]) {
  ids.forEach((block, index) => {
    if (block === scene.nullBlock || scene.firstKey[block] < 0) return;
    scene.contents.link(group, request.prefixHash(scene.groups[group].size, index), scene.firstKey[block]);
  });
}

function emptied(scene: SceneState, id: number, status: RequestStatus) {
  const request = scene.own(id),
    held = [...request.merged];
  request.tables.forEach((table: number[], group: number) =>
    table.forEach((block, index) => {
      if (block === scene.nullBlock) return;
      scene.places.remove(block, id, group, index);
      held.push(block);
    }),
  );
  request.clear(status);
  for (const block of held) touch(scene, block);
  return request;
}

// What is computed is written: a recording of another engine does not say into which slots.
function keepPromises(scene: SceneState, { tables, written, numComputed }: RequestRecord) {
  tables.forEach((table, group) => {
    if (written[group] >= numComputed) return;
    const { size } = scene.groups[group];
    table.forEach((block, index) => keepPromise(scene, block, numComputed - index * size));
  });
}

function noteTransfers(scene: SceneState, request: RequestRecord, transfers: Transfer[], isLoad: boolean) {
  for (const [group, index, , hex] of transfers) {
    if (!hex) continue; // a block that is filled in part
    const key = scene.shared.keys.of(group, hex);
    if (scene.isHead) {
      noteHeld(scene, key, isLoad);
      scene.contents.ofKey(key, group, request.prefixHash(scene.groups[group].size, index));
    }
    scene.changedKeys.push(key);
  }
  scene.changes.tier = true;
}

function noteHeld({ shared: { tierLog }, moment }: SceneState, key: number, isLoad: boolean) {
  if (isLoad) tierLog.noteLoaded(key, moment + 1);
  else tierLog.note(key, true, moment + 1);
}

function noteTraffic(scene: SceneState, traffic: Omit<Traffic, "event">) {
  scene.traffic.push({ event: scene.moment, ...traffic });
  if (scene.traffic.length > MAX_TRAFFIC) scene.traffic.shift();
  scene.changes.tier = true;
}

function loseKey(scene: SceneState, key: number, block: number, reason: string) {
  scene.map.drop(key);
  scene.evictedById.delete(key);
  scene.evictedById.set(key, { block, moment: scene.moment, reason });
  if (scene.evictedById.size > MAX_EVICTED) {
    const [oldest] = scene.evictedById.keys();
    scene.evictedById.delete(oldest);
  }
}

function known(scene: SceneState, block: number) {
  if (!(block >= 0 && block < scene.numBlocks)) throw new UnknownThing(`there is no block ${block}`);
}

function count(scene: SceneState, block: number, refCount: number) {
  known(scene, block);
  scene.refCounts[block] = refCount;
  touch(scene, block);
}

function tableOf(scene: SceneState, id: number, group: number) {
  const table = scene.own(id).ownTables()[group];
  if (!table) throw new UnknownThing(`there is no group ${group}`);
  return table;
}

// Puts another block, or null, into the entry.
function replace(scene: SceneState, id: number, group: number, index: number, block: number) {
  const table = tableOf(scene, id, group),
    before = table[index];
  if (before === undefined) throw new UnknownThing(`table ${group} of request ${id} has no entry ${index}`);
  if (before !== scene.nullBlock) scene.places.remove(before, id, group, index);
  table[index] = block;
  if (block !== scene.nullBlock) scene.places.add(block, id, group, index);
  touch(scene, before);
  touch(scene, block);
  return table;
}

function pin(scene: SceneState, block: number, change: number) {
  known(scene, block);
  const pins = (scene.pins.get(block) ?? 0) + change;
  if (pins > 0) scene.pins.set(block, pins);
  else scene.pins.delete(block);
  touch(scene, block);
}

// From now on the blocks are those of this node.
function own(scene: SceneState, node: number, blocks: readonly number[]) {
  for (const block of blocks) scene.nodeOf[block] = node;
  markAll(scene, blocks);
}

// The blocks of the nodes that have so many locks now look different.
function markNodes(scene: SceneState, ids: number[], numLocks: number) {
  scene.changes.tree = true;
  for (const id of ids) {
    const node = scene.tree.node(id);
    markAll(scene, node.numLocks === numLocks ? node.blocks : []);
  }
}

function markAll(scene: SceneState, blocks: readonly number[]) {
  for (const block of blocks) if (block >= 0 && block < scene.numBlocks) scene.mark(block);
  scene.changes.tree = true;
}

function append(scene: SceneState, block: number, id: number, group: number) {
  const table = tableOf(scene, id, group);
  scene.places.add(block, id, group, table.push(block) - 1);
}

// A block whose home the entry was shows the tokens of another table that has it.
function leaveHome(scene: SceneState, block: number, id: number, index: number) {
  const isHome = scene.homeRequest[block] === id && scene.homeIndex[block] === index;
  if (isHome && scene.places.head[block] >= 0) setHome(scene, block, ...scene.places.of(block)[0]);
}

function setTokens(scene: SceneState, block: number, request: RequestRecord, start: number, size: number) {
  const count = Math.max(0, Math.min(size, request.numTokens - start));
  scene.tokenStores[block] = count ? request.store : null;
  scene.tokenStart[block] = start;
  scene.tokenCount[block] = count;
}

// A chain's link: the key of the block before it in the table, or where that has left the table, the one noted last.
function noteParent(scene: SceneState, request: RequestRecord, group: number, index: number, key: number) {
  const before = index ? request.tables[group][index - 1] : -1,
    last = request.lastKeys[group];
  let parent = index ? -2 : -1;
  if (before >= 0 && before !== scene.nullBlock && scene.firstKey[before] >= 0) parent = scene.firstKey[before];
  else if (index && last?.index === index - 1) parent = last.key;
  scene.shared.parents.note(key, parent);
  scene.own(request.id).lastKeys = Object.assign([...request.lastKeys], { [group]: { index, key } });
}

function leaveQueue(scene: SceneState, block: number) {
  scene.queue.remove(block);
  scene.freedAt[block] = -1;
  scene.changes.queue = true;
}

function enterQueue(scene: SceneState, block: number, end: "head" | "tail") {
  scene.queue.remove(block);
  if (end === "head") scene.queue.unshift(block);
  else scene.queue.push(block);
  scene.freedAt[block] = scene.moment;
  scene.changes.queue = true;
}
