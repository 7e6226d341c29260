// The state at a moment as a reader sees it: blocks with content, owners and slots, requests, queue, map, tier, score.

import { fillOf, refresh, tokensOf } from "./blocks.ts";
import { ContentIndex } from "./contents.ts";
import type { EventFields, EventRows } from "./event_rows.ts";
import type { Phase, Transfer } from "./events.ts";
import type { Handler } from "./fold.ts";
import type { AnyRow } from "./payloads.ts";
import { Places } from "./places.ts";
import { PrefixMap } from "./prefix_map.ts";
import { LinkedQueue } from "./queue.ts";
import type { Recording } from "./recording.ts";
import type { RequestRecord, TokenStore } from "./requests.ts";
import { Tier } from "./tier.ts";
import { Twins } from "./twins.ts";

export class Changes {
  all: boolean;
  blocks = new Set<number>();
  requests = new Set<number>();
  keys = new Set<string>();
  queue: boolean;
  tier: boolean;

  constructor(all = false) {
    this.all = all;
    this.queue = all;
    this.tier = all;
  }
}

// One block's arrays, by id; `restart` makes them.
const BLOCK_ARRAYS = [
  "refCounts",
  "firstKey",
  "homeRequest",
  "homeGroup",
  "homeIndex",
  "tokenStart",
  "tokenCount",
  "freedAt",
] as const;
export const KEPT_ARRAYS = [...BLOCK_ARRAYS, "contentOfBlock", "isLostFlag"] as const;

let stamps = 0;

// One KV-cache group: its kind, its block size, and its window in tokens (null without one).
export interface Group {
  kind: string;
  size: number;
  window: number | null;
}

// A block's place in a table.
export type Place = [request: number, group: number, index: number];

// A block as a reader sees it.
export interface Block {
  id: number;
  refCount: number;
  places: Place[];
  isFree: boolean;
  isMapped: boolean;
  content: number;
  fill: number;
  isHashed: boolean;
  isLost: boolean;
  isCachedFree: boolean;
  isDuplicate: boolean;
  owners: number[];
  groups: number[];
  tokens: (number | null)[];
  keys: string[];
  strays: Map<number, number | null> | null;
  size: number;
  freedAt: number;
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

// An event names a request that is not there.
class UnknownThing extends Error {}

export class Scene {
  recording: Recording;
  contents: ContentIndex;
  isHead = false;
  moment = 0;
  version: number;
  edition = "";
  violations: number[] = [];
  tier: Tier;
  map: PrefixMap;
  queue = new LinkedQueue();
  places = new Places();
  twins = new Twins();
  changes = new Changes(true);
  changedBlocks: number[] = [];
  changedKeys: number[] = [];
  peak!: number;
  stamp!: number;
  scheduled!: number[];
  leaving!: number[];
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
  evictedById!: Map<number, Evicted>;
  traffic!: Traffic[];
  numLost!: number;
  refCounts!: Int32Array;
  firstKey!: Int32Array;
  homeRequest!: Int32Array;
  homeGroup!: Int32Array;
  homeIndex!: Int32Array;
  tokenStart!: Int32Array;
  tokenCount!: Int32Array;
  freedAt!: Int32Array;
  contentOfBlock!: Int32Array;
  isLostFlag!: Uint8Array;
  isChanged!: Uint8Array;
  tokenStores!: (TokenStore | null)[];

  constructor(recording: Recording, contents: ContentIndex = new ContentIndex()) {
    this.recording = recording;
    this.contents = contents;
    this.version = recording.version; // of what the recording has forgotten
    this.tier = new Tier(recording.tierLog);
    this.map = new PrefixMap(recording.keys);
    this.empty(0, [], -1);
  }

  // -- what it is at once -----------------------------------------------------------------------------------------

  get numUsed() {
    return this.numBlocks - this.queue.size - (this.nullBlock >= 0 ? 1 : 0);
  }

  get score() {
    return { used: this.numUsed, peak: this.peak, findable: this.map.size, lost: this.numLost };
  }

  // {slots: [{request, group, start, runs}], sampled: Map(request -> token)} of this step so far.
  get written() {
    return { slots: this.slots, sampled: this.sampled };
  }

  get slots() {
    return this.slotRows.map(([, request, group, start, runs]) => ({ request, group, start, runs }));
  }

  // Map("group:hex" -> {block, moment, reason}): what the map lost last, the oldest first.
  get evicted() {
    return new Map([...this.evictedById].map(([key, how]) => [this.recording.keys.text(key), how]));
  }

  // -- a block ----------------------------------------------------------------------------------------------------

  block(id: number): Block {
    const refCount = this.refCounts[id],
      keys = this.keysOf(id),
      isFree = this.queue.has(id);
    const isMapped = keys.some((key) => this.map.holds(key, id)),
      places = this.places.of(id);
    const isDrawn = refCount > 0 || keys.length > 0;
    return {
      id,
      refCount,
      places,
      isFree,
      isMapped,
      content: this.contentOfBlock[id],
      fill: this.fill(id),
      isHashed: keys.length > 0,
      isLost: this.isLostFlag[id] === 1,
      isCachedFree: isFree && isMapped,
      isDuplicate: refCount > 0 && this.twins.count(this.contentOfBlock[id]) > 1,
      owners: isDrawn ? [...new Set(places.map(([request]) => request))] : [],
      groups: isDrawn ? [...new Set(places.map(([, group]) => group))].sort((a, b) => a - b) : [],
      tokens: isDrawn ? tokensOf(this, id) : [],
      keys: keys.map((key) => this.recording.keys.text(key)),
      strays: this.strays.get(id) ?? null,
      size: this.sizeOf(id),
      freedAt: this.freedAt[id],
    };
  }

  // Slots written, as far as a reader has to look.
  fill(id: number) {
    if (!this.refCounts[id] && this.firstKey[id] < 0) return 0;
    return fillOf(this, id, true);
  }

  // The number of the block's content; -1 while it is not full.
  content(id: number) {
    return this.contentOfBlock[id];
  }

  isMapped(id: number) {
    return this.keysOf(id).some((key) => this.map.holds(key, id));
  }

  // Slots a block has in the group it is used by.
  sizeOf(id: number) {
    const key = this.firstKey[id],
      group = key >= 0 ? this.recording.keys.groups[key] : Math.max(0, this.homeGroup[id]);
    return this.groups[group]?.size ?? 1;
  }

  // Numbers of the keys it is known by.
  keysOf(id: number): number[] {
    const first = this.firstKey[id];
    if (first < 0) return [];
    return this.moreKeys.size && this.moreKeys.has(id) ? [first, ...(this.moreKeys.get(id) ?? [])] : [first];
  }

  // The number of the content behind "group:hex"; -1 for one that was never seen.
  contentOf(text: string) {
    return this.contents.known(this.recording.keys.find(text));
  }

  // Another live block of the same content, the one of lowest id; -1 without one.
  twinOf(id: number) {
    const content = this.contentOfBlock[id];
    if (content < 0 || this.twins.count(content) < (this.refCounts[id] ? 2 : 1)) return -1;
    for (let other = 0; other < this.numBlocks; other++)
      if (other !== id && this.refCounts[other] && this.contentOfBlock[other] === content) return other;
    return -1;
  }

  // -- moving on --------------------------------------------------------------------------------------------------

  // By one event. StepRolledBack is for whoever can fetch the state: Recording.
  apply(row: AnyRow) {
    const handle = this.recording.handlers[row[0]];
    if (handle) this.handle(handle, row);
    if (this.numUsed > this.peak) this.peak = this.numUsed;
    this.moment++;
  }

  // An event that cannot have happened, as wrong parts emit them, changes what it can.
  handle(handle: Handler, row: AnyRow) {
    try {
      handle(this, row);
    } catch (error) {
      // TypeError: a table that is not there
      if (!(error instanceof UnknownThing || error instanceof TypeError)) throw error;
    }
  }

  // What changed since the last call.
  takeChanges() {
    const { changes, changedBlocks, changedKeys } = this;
    for (const id of changedBlocks) {
      this.isChanged[id] = 0;
      changes.blocks.add(id);
    }
    for (const key of changedKeys) changes.keys.add(this.recording.keys.text(key));
    this.changes = new Changes();
    this.changedBlocks = [];
    this.changedKeys = [];
    return changes;
  }

  // A block is not as it was, or may not be.
  touch(id: number) {
    if (id < 0 || id >= this.numBlocks) return;
    this.mark(id);
    refresh(this, id);
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

  // A request to change: copies of this scene keep the one they know.
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
    if (this.isHead) this.contents = this.recording.beginContents(this.moment);
    else this.contents = this.recording.contentsAt(this.moment + 1);
    this.empty(numBlocks, groups, nullBlock);
    this.changes = new Changes(true);
  }

  // A pool of free blocks and nobody there.
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
