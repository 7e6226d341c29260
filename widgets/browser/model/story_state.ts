// The state of a story, which events change: requests' states, blocks' lives, steps and figures per step.

import type { EventKind } from "./events.ts";

// A request's states, each from a moment on.
export interface StoryLane {
  id: number;
  at: number[];
  state: number[];
}

// A block's lives, each from a moment on. key: an index into `keys`, -1 for none.
export interface Band {
  at: number[];
  life: number[];
  key: number[];
  owner: number[];
  refs: number[];
}

export interface BlockLife {
  refs: number;
  keys: string[];
  owners: number[];
}

interface StorySteps {
  number: number[];
  start: number[];
  end: (number | null)[];
  isRolledBack: boolean[];
}

interface Counts {
  used: number;
  peak: number;
  hit: number;
  looked: number;
  prefill: number;
  decode: number;
  sampled: number;
}

// Figures per step that ended.
export type StorySeries = Record<"step" | "moment" | keyof Counts, number[]>;

// The values to restore when a step is rolled back.
interface Undo {
  states: Map<number, number | undefined>;
  blocks: Map<number, BlockLife>;
  map: Map<string, number[]>;
  counts: Counts;
}

const COUNTS = ["used", "peak", "hit", "looked", "prefill", "decode", "sampled"] as const;

export class StoryState {
  steps!: StorySteps;
  series!: StorySeries;
  keys!: string[]; // of the prefix map, by the numbers that bands have
  keyNumbers!: Map<string, number>;
  lanes!: Map<number, StoryLane>;
  bands!: Band[]; // by block; none of a block that was never used
  numBlocks!: number;
  states!: Map<number, number>;
  blocks!: Map<number, BlockLife>;
  map!: Map<string, number[]>;
  promptLengths!: Map<number, number>;
  undo!: Undo | null; // of the step that is open
  counts!: Counts;

  clear() {
    this.steps = { number: [], start: [], end: [], isRolledBack: [] };
    this.series = {
      step: [],
      moment: [],
      used: [],
      peak: [],
      hit: [],
      looked: [],
      prefill: [],
      decode: [],
      sampled: [],
    };
    this.keys = [];
    this.keyNumbers = new Map();
    this.restart(0);
  }

  // An engine started: requests and blocks of the one before are gone, steps and figures stay.
  restart(numBlocks: number) {
    this.lanes = new Map();
    this.bands = [];
    this.numBlocks = numBlocks;
    this.states = new Map();
    this.blocks = new Map();
    this.map = new Map();
    this.promptLengths = new Map();
    this.undo = null;
    this.counts = { used: 0, peak: 0, hit: 0, looked: 0, prefill: 0, decode: 0, sampled: 0 };
  }

  // -- requests

  enter(request: number, at: number, state: number) {
    const before = this.states.get(request);
    if (before === state) return;
    if (this.undo && !this.undo.states.has(request)) this.undo.states.set(request, before);
    this.states.set(request, state);
    let lane = this.lanes.get(request);
    if (!lane) this.lanes.set(request, (lane = { id: request, at: [], state: [] }));
    if (lane.at.at(-1) === at) lane.state[lane.state.length - 1] = state;
    else {
      lane.at.push(at);
      lane.state.push(state);
    }
  }

  // -- blocks

  block(id: number) {
    let block = this.blocks.get(id);
    if (!block) this.blocks.set(id, (block = { refs: 0, keys: [], owners: [] }));
    return block;
  }

  own(block: number, request: number, at: number) {
    const { owners } = this.block(block);
    if (!owners.includes(request)) this.change(block, at, { owners: [...owners, request] });
  }

  change(id: number, at: number, parts: Partial<BlockLife>) {
    const before = this.block(id),
      block = { ...before, ...parts };
    if (this.undo && !this.undo.blocks.has(id)) this.undo.blocks.set(id, before);
    this.counts.used += Number(block.refs > 0) - Number(before.refs > 0);
    this.counts.peak = Math.max(this.counts.peak, this.counts.used);
    this.blocks.set(id, block);
    this.draw(id, at, block);
  }

  draw(id: number, at: number, block: BlockLife) {
    const isMapped = block.keys.some((key) => this.map.get(key)?.includes(id));
    const life = block.refs
      ? block.keys.length && !isMapped
        ? LIFE.lost
        : LIFE.live
      : isMapped
        ? LIFE.cached
        : LIFE.free;
    const key = life === LIFE.free || !block.keys.length ? -1 : this.keyNumber(block.keys[0]);
    const owner = block.owners.length > 1 ? SHARED : (block.owners[0] ?? NO_OWNER);
    const band = (this.bands[id] ??= { at: [], life: [], key: [], owner: [], refs: [] }),
      last = band.at.length - 1;
    if (
      last >= 0 &&
      band.life[last] === life &&
      band.key[last] === key &&
      band.owner[last] === owner &&
      band.refs[last] === block.refs
    )
      return;
    if (last < 0 && life === LIFE.free) return;
    const place = last >= 0 && band.at[last] === at ? last : last + 1;
    band.at[place] = at;
    band.life[place] = life;
    band.key[place] = key;
    band.owner[place] = owner;
    band.refs[place] = block.refs;
  }

  keyNumber(key: string) {
    let number = this.keyNumbers.get(key);
    if (number === undefined) this.keyNumbers.set(key, (number = this.keys.push(key) - 1));
    return number;
  }

  remap(key: string, ids: number[], at: number) {
    const before = this.map.get(key) ?? [];
    if (this.undo && !this.undo.map.has(key)) this.undo.map.set(key, before);
    if (ids.length) this.map.set(key, ids);
    else this.map.delete(key);
    for (const id of new Set([...before, ...ids])) this.change(id, at, {});
  }

  // -- steps

  openStep(number: number, at: number) {
    const { steps, counts } = this;
    steps.number.push(number);
    steps.start.push(at);
    steps.end.push(null);
    steps.isRolledBack.push(false);
    this.undo = { states: new Map(), blocks: new Map(), map: new Map(), counts: { ...counts } };
    Object.assign(counts, { peak: counts.used, prefill: 0, decode: 0, sampled: 0 });
  }

  endStep(at: number) {
    const { steps, series, counts } = this,
      last = steps.end.length - 1;
    if (last >= 0) steps.end[last] = at + 1;
    this.undo = null;
    series.step.push(steps.number[last] ?? 0);
    series.moment.push(at + 1);
    for (const name of COUNTS) series[name].push(counts[name]);
  }

  // Restores the state before the step; its events stay on the axis.
  rollBack(at: number) {
    const { steps, undo } = this,
      last = steps.end.length - 1;
    if (last >= 0) {
      steps.end[last] = at + 1;
      steps.isRolledBack[last] = true;
    }
    this.undo = null;
    if (!undo) return;
    for (const [key, ids] of undo.map)
      if (ids.length) this.map.set(key, ids);
      else this.map.delete(key);
    for (const [id, block] of undo.blocks) this.change(id, at, block);
    for (const [request, state] of undo.states)
      if (state === undefined) this.lanes.delete(request);
      else this.enter(request, at, state);
    this.counts = undo.counts;
  }
}

export const STATE = { waiting: 0, prefill: 1, decode: 2, preempted: 3, finished: 4, loading: 5 };

export const STATE_NAMES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"];

export const LIFE = { free: 0, live: 1, cached: 2, lost: 3 };

export const LIFE_NAMES = ["free", "in use", "freed, still cached", "in use, but lost: no look-up finds it"];

// Owners of a block that are no request.
export const SHARED = -2;

export const NO_OWNER = -1;

// What an event is about, for the ticks: 0 frame of a step, 1 requests, 2 blocks, 3 the model, 4 the external tier, 5
// trouble.
export const TOPICS: Record<EventKind, number> = {
  EngineStarted: 0,
  StepStarted: 0,
  StepEnded: 0,
  StepFailed: 5,
  StepRolledBack: 5,
  RequestAdded: 1,
  PrefixHit: 1,
  RequestScheduled: 1,
  RequestPreempted: 5,
  RequestFinished: 1,
  RequestReleased: 1,
  RequestForgotten: 1,
  ExternalHit: 4,
  BlocksLoaded: 4,
  BlocksSaved: 4,
  TierChanged: 4,
  LoadFailed: 5,
  PrefixCacheReset: 5,
  BlockEvicted: 2,
  BlockAllocated: 2,
  BlocksSkipped: 2,
  BlockTouched: 2,
  BlockCached: 2,
  BlockMerged: 2,
  BlockFreed: 2,
  FreeDeferred: 2,
  BlockPinned: 2,
  BlockUnpinned: 2,
  BlockCopied: 2,
  HashesMoved: 2,
  SlotsWritten: 3,
  ForwardRan: 3,
  TokensComputed: 1,
  TokenSampled: 3,
  ViolationFound: 5,
};

export const TOPIC_NAMES = ["step", "request", "block", "model", "external tier", "trouble"];
