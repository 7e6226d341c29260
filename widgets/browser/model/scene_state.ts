// The state that events change: blocks, requests, queue, map and tier at one moment. Scene adds the derived values.

import type { EventFields, EventRows } from "./event_rows.ts";
import type { Phase, Transfer } from "./events.ts";
import { UnknownThing } from "./events.ts";
import { PrefixMap, Tier } from "./key_maps.ts";
import { ContentIndex } from "./keys.ts";
import { Places, Twins } from "./places.ts";
import { LinkedQueue } from "./queue.ts";
import type { RequestRecord, TokenStore } from "./requests.ts";
import type { Shared } from "./shared.ts";
import { PrefixTree } from "./tree.ts";

export class Changes {
  blocks = new Set<number>();
  requests = new Set<number>();
  keys = new Set<string>();
  queue = this.all;
  tier = this.all;
  tree = this.all;

  constructor(public all = false) {}
}

// One block's arrays, by id; `resize` makes them.
const BLOCK_ARRAYS = [
  "refCounts",
  "firstKey",
  "homeRequest",
  "homeGroup",
  "homeIndex",
  "tokenStart",
  "tokenCount",
  "freedAt",
  "nodeOf",
] as const;

export const KEPT_ARRAYS = [...BLOCK_ARRAYS, "contentOfBlock", "isLostFlag"] as const;

let stamps = 0;

// One KV-cache group: its kind, its block size, and its window in tokens (null without one).
export interface Group {
  kind: string;
  size: number;
  window: number | null;
}

// How the prefix map lost a hash.
export interface Evicted {
  block: number;
  moment: number;
  reason: string;
}

// A load from the external tier, or a save to it.
export interface Traffic {
  event: number;
  request: number;
  isLoad: boolean;
  isFailed: boolean;
  transfers: Transfer[];
}

export class SceneState {
  isHead = false; // the head numbers contents as they appear; other scenes find them numbered
  moment = 0;
  edition = "";
  hasDrafts = false; // a proposer has guessed tokens
  violations: number[] = []; // numbers of the ViolationFound events
  queue = new LinkedQueue();
  places = new Places();
  twins = new Twins();
  changes = new Changes(true);
  changedBlocks: number[] = [];
  changedKeys: number[] = [];
  peak!: number; // the most blocks used within this step
  stamp!: number; // requests of another stamp are shared with a copy of the scene
  scheduled!: number[];
  leaving!: number[]; // requests that go when the next step begins
  slotRows!: EventRows["SlotsWritten"][];
  sampled!: Map<number, number>;
  step!: number;
  phase!: Phase | null;
  groups!: Group[];
  numBlocks!: number;
  nullBlock!: number;
  requests!: Map<number, RequestRecord>;
  moreKeys!: Map<number, number[]>;
  strays!: Map<number, Map<number, number | null>>;
  states!: Map<number, number>; // per block that keeps a state: after how many tokens, where one has been written
  spoiled!: Set<number>; // of these blocks, the ones whose state has seen a rejected guess
  promised!: Map<number, number>; // blocks that have a key before all of their slots are written: how many are
  pins!: Map<number, number>; // per block: references that no table holds
  tree!: PrefixTree;
  evictedById!: Map<number, Evicted>;
  traffic!: Traffic[];
  numLost!: number;
  refCounts!: Int32Array;
  firstKey!: Int32Array;
  homeRequest!: Int32Array; // the table entry whose tokens a block holds
  homeGroup!: Int32Array;
  homeIndex!: Int32Array;
  tokenStart!: Int32Array;
  tokenCount!: Int32Array;
  freedAt!: Int32Array;
  nodeOf!: Int32Array; // the node of the prefix tree that has a block; 0 for none
  contentOfBlock!: Int32Array;
  isLostFlag!: Uint8Array;
  isChanged!: Uint8Array; // 1: in changedBlocks
  tokenStores!: (TokenStore | null)[];
  version = this.shared.version; // of what the recording has forgotten
  tier = new Tier(this.shared.tierLog);
  map = new PrefixMap(this.shared.keys);

  constructor(
    readonly shared: Shared,
    public contents: ContentIndex = new ContentIndex(),
  ) {
    this.empty(0, [], -1);
  }

  get numUsed() {
    return this.numBlocks - this.queue.size - this.tree.numEvictable - (this.nullBlock >= 0 ? 1 : 0);
  }

  // Numbers of the keys it is known by.
  keysOf(id: number): number[] {
    const first = this.firstKey[id];
    if (first < 0) return [];
    return this.moreKeys.size && this.moreKeys.has(id) ? [first, ...(this.moreKeys.get(id) ?? [])] : [first];
  }

  // The group that a block is used by, or was last.
  groupOf(id: number) {
    const key = this.firstKey[id];
    return key >= 0 ? this.shared.keys.groups[key] : Math.max(0, this.homeGroup[id]);
  }

  // Slots a block has in the group it is used by.
  sizeOf(id: number) {
    return this.groups[this.groupOf(id)]?.size ?? 1;
  }

  // Whether the block is for one state instead of the KV of `size` tokens.
  keepsStates(id: number) {
    return this.groups[this.groupOf(id)]?.kind === "state";
  }

  // Returns the changes since the last call.
  takeChanges() {
    const { changes, changedBlocks, changedKeys } = this;
    for (const id of changedBlocks) {
      this.isChanged[id] = 0;
      changes.blocks.add(id);
    }
    for (const key of changedKeys) changes.keys.add(this.shared.keys.text(key));
    this.changes = new Changes();
    this.changedBlocks = [];
    this.changedKeys = [];
    return changes;
  }

  mark(id: number) {
    if (this.isChanged[id]) return;
    this.isChanged[id] = 1;
    this.changedBlocks.push(id);
  }

  // The request of this number. Throws UnknownThing where there is none.
  request(id: number): RequestRecord {
    const request = this.requests.get(id);
    if (!request) throw new UnknownThing(`there is no request ${id}`);
    return request;
  }

  // Returns a request that may be changed: copies of this scene keep their own.
  own(id: number) {
    this.changes.requests.add(id);
    const request = this.request(id);
    if (request.stamp === this.stamp) return request;
    const own = request.copy(this.stamp);
    this.requests.set(id, own);
    return own;
  }

  // From now on its requests are shared with a copy.
  share() {
    this.stamp = ++stamps;
  }

  beginStep() {
    for (const id of this.leaving) {
      if (!this.requests.get(id)?.isForgotten) continue;
      this.requests.delete(id);
      this.changes.requests.add(id);
    }
    for (const id of this.scheduled) if (this.requests.has(id)) this.own(id).scheduled = null;
    this.scheduled = [];
    this.leaving = [];
    this.slotRows = [];
    this.sampled = new Map();
  }

  restart(numBlocks: number, groups: EventFields["EngineStarted"]["groups"], nullBlock: number) {
    if (this.isHead) this.contents = this.shared.beginContents(this.moment);
    else this.contents = this.shared.contentsAt(this.moment + 1);
    this.empty(numBlocks, groups, nullBlock);
    this.changes = new Changes(true);
  }

  // An empty state: all blocks are free, and there are no requests.
  empty(numBlocks: number, groups: EventFields["EngineStarted"]["groups"], nullBlock: number) {
    const ids = Array.from({ length: numBlocks }, (_, id) => id).filter((id) => id !== nullBlock);
    this.share();
    this.step = 0;
    this.phase = null;
    this.groups = groups.map(([kind, size, window]) => ({ kind, size, window }));
    this.numBlocks = numBlocks;
    this.nullBlock = nullBlock;
    this.requests = new Map();
    this.resize(numBlocks);
    this.queue = new LinkedQueue(numBlocks);
    this.queue.load(ids);
    this.map.load({ keys: [], lists: [] });
    this.places.reset(numBlocks);
    this.moreKeys = new Map();
    this.strays = new Map();
    this.states = new Map();
    this.spoiled = new Set();
    this.promised = new Map();
    this.pins = new Map();
    this.tree = new PrefixTree();
    this.evictedById = new Map();
    this.traffic = [];
    this.twins.reset(numBlocks);
    this.peak = this.numLost = 0;
    this.scheduled = [];
    this.leaving = [];
    this.slotRows = [];
    this.sampled = new Map();
  }

  resize(numBlocks: number) {
    for (const name of BLOCK_ARRAYS) this[name] = new Int32Array(numBlocks);
    for (const name of ["firstKey", "homeRequest", "freedAt"] as const) this[name].fill(-1);
    this.contentOfBlock = new Int32Array(numBlocks).fill(-1);
    this.isLostFlag = new Uint8Array(numBlocks);
    this.isChanged = new Uint8Array(numBlocks);
    this.changedBlocks = [];
    this.tokenStores = new Array(numBlocks).fill(null);
  }
}
