// The whole run at a glance: requests' states, blocks' lives and figures per step, extended as events come. No DOM.
// Event i is the cell [i, i + 1) of the time axis, and shows the state right after it.
import type { EventRows } from "./event_rows.ts";
import type { EventKind } from "./events.ts";
import type { Recording } from "./recording.ts";
import type { Scene } from "./scene.ts";

export const STATE = { waiting: 0, prefill: 1, decode: 2, preempted: 3, finished: 4, loading: 5 };
export const STATE_NAMES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"];
export const LIFE = { free: 0, live: 1, cached: 2, lost: 3 };
export const LIFE_NAMES = ["free", "in use", "freed, still cached", "in use, but lost: no look-up finds it"];
export const SHARED = -2;
export const NOBODY = -1;

// What an event is about, for the ticks: 0 frame of a step, 1 requests, 2 blocks, 3 the model, 4 the external tier, 5
// trouble.
const TOPICS: Record<EventKind, number> = {
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
  RequestForgotten: 1,
  ExternalHit: 4,
  BlocksLoaded: 4,
  BlocksSaved: 4,
  LoadFailed: 5,
  PrefixCacheReset: 5,
  BlockEvicted: 2,
  BlockAllocated: 2,
  BlocksSkipped: 2,
  BlockTouched: 2,
  BlockCached: 2,
  BlockMerged: 2,
  BlockFreed: 2,
  SlotsWritten: 3,
  ForwardRan: 3,
  TokensComputed: 1,
  TokenSampled: 3,
  ViolationFound: 5,
};
export const TOPIC_NAMES = ["step", "request", "block", "model", "external tier", "trouble"];

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
  isTakenBack: boolean[];
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

// What a step that is taken back changes back.
interface Undo {
  states: Map<number, number | undefined>;
  blocks: Map<number, BlockLife>;
  map: Map<string, number[]>;
  counts: Counts;
}

type Apply<Kind extends EventKind> = (story: Story, row: EventRows[Kind], i: number) => void;

const COUNTS = ["used", "peak", "hit", "looked", "prefill", "decode", "sampled"] as const;
const stories = new WeakMap<Recording, Story>();

// One story per recording, brought up to date: whoever asks first pays for the events that are new.
export function storyOf(recording: Recording) {
  let story = stories.get(recording);
  if (!story) stories.set(recording, (story = new Story(recording)));
  return story.extend();
}

export class Story {
  recording: Recording;
  version = 0;
  start!: number;
  end!: number;
  topics!: Uint8Array;
  steps!: StorySteps;
  series!: StorySeries;
  keys!: string[];
  keyNumbers!: Map<string, number>;
  troubles!: number[];
  readers!: { topic: number; apply: Apply<never> | undefined }[];
  lanes!: Map<number, StoryLane>;
  bands!: Band[];
  numBlocks!: number;
  states!: Map<number, number>;
  blocks!: Map<number, BlockLife>;
  map!: Map<string, number[]>;
  promptLengths!: Map<number, number>;
  undo!: Undo | null;
  counts!: Counts;

  constructor(recording: Recording) {
    this.recording = recording;
    this.begin();
  }

  // From the oldest event that the recording has.
  begin() {
    const { recording } = this;
    this.version += 1;
    this.start = this.end = recording.start;
    this.topics = new Uint8Array(1024);
    this.steps = { number: [], start: [], end: [], isTakenBack: [] };
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
    this.troubles = [];
    this.readers = recording.kinds.names.map((name) => ({
      topic: TOPICS[name as EventKind] ?? 0,
      apply: APPLY[name as EventKind] as Apply<never> | undefined,
    }));
    this.restart(0);
    this.takeStock(recording.sceneAt(recording.start));
  }

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

  takeStock(scene: Scene) {
    this.numBlocks = scene.numBlocks;
    for (const [key, ids] of scene.map) this.map.set(key, [...ids]);
    for (const [id, request] of scene.requests) {
      this.promptLengths.set(id, request.numPrompt);
      const isPrefill = request.numComputed < request.numPrompt;
      this.enter(
        id,
        this.start,
        request.status === "running" ? (isPrefill ? STATE.prefill : STATE.decode) : STATE[request.status],
      );
      for (const table of request.tables)
        for (const block of table) if (block >= 0 && block !== scene.nullBlock) this.own(block, id, this.start);
    }
    for (let id = 0; id < scene.numBlocks; id++)
      if (scene.refCounts[id]) this.change(id, this.start, { refs: scene.refCounts[id] });
    for (const [key, ids] of scene.map)
      for (const id of ids) this.change(id, this.start, { keys: [...this.block(id).keys, key] });
    this.counts.peak = this.counts.used;
  }

  own(block: number, request: number, at: number) {
    const { owners } = this.block(block);
    if (!owners.includes(request)) this.change(block, at, { owners: [...owners, request] });
  }

  extend() {
    const { recording } = this;
    const isOutgrown = this.end - this.start > 2 * Math.max(10000, recording.end - recording.start);
    if (recording.start < this.start || recording.end < this.end || recording.start > this.end || isOutgrown)
      this.begin();
    if (recording.end > this.topics.length + this.start) this.grow(recording.end - this.start);
    while (this.end < recording.end) {
      const row = recording.row(this.end),
        { topic, apply } = this.readers[row[0]];
      this.topics[this.end - this.start] = topic;
      if (topic === 5) this.troubles.push(this.end);
      apply?.(this, recording.kinds.ordered(row) as never, this.end); // the table pairs each kind with its rows
      this.end += 1;
    }
    return this;
  }

  grow(needed: number) {
    const topics = new Uint8Array(Math.max(needed, 2 * this.topics.length));
    topics.set(this.topics);
    this.topics = topics;
  }

  topic(i: number) {
    return this.topics[i - this.start];
  }

  // The last step that has begun before the moment, as an index into steps; -1 for none.
  stepIndex(moment: number) {
    return countUpTo(this.steps.start, moment - 1) - 1;
  }

  stateAt(request: number, moment: number) {
    const lane = this.lanes.get(request),
      index = lane ? countUpTo(lane.at, moment - 1) - 1 : -1;
    return lane && index >= 0 ? lane.state[index] : null;
  }

  lifeAt(block: number, moment: number) {
    const band = this.bands[block],
      index = band ? countUpTo(band.at, moment - 1) - 1 : -1;
    return index < 0
      ? { life: LIFE.free, key: null, owner: NOBODY, refs: 0 }
      : {
          life: band.life[index],
          key: this.keys[band.key[index]] ?? null,
          owner: band.owner[index],
          refs: band.refs[index],
        };
  }

  // -- requests
  // --------------------------------------------------------------------------------------------------------

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
  // ----------------------------------------------------------------------------------------------------------

  block(id: number) {
    let block = this.blocks.get(id);
    if (!block) this.blocks.set(id, (block = { refs: 0, keys: [], owners: [] }));
    return block;
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
    const owner = block.owners.length > 1 ? SHARED : (block.owners[0] ?? NOBODY);
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
  // -----------------------------------------------------------------------------------------------------------

  openStep(number: number, at: number) {
    const { steps, counts } = this;
    steps.number.push(number);
    steps.start.push(at);
    steps.end.push(null);
    steps.isTakenBack.push(false);
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

  // The state is again what it was before the step; what was seen of it stays on the axis.
  takeBack(at: number) {
    const { steps, undo } = this,
      last = steps.end.length - 1;
    if (last >= 0) {
      steps.end[last] = at + 1;
      steps.isTakenBack[last] = true;
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

// How many of the ascending numbers are at most this one.
export function countUpTo(numbers: number[], most: number) {
  let low = 0,
    high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

function without<T>(list: T[], item: T) {
  return list.filter((other) => other !== item);
}

const APPLY: { [Kind in EventKind]?: Apply<Kind> } = {
  EngineStarted: (story, [, numBlocks]) => story.restart(numBlocks),
  StepStarted: (story, [, step], i) => story.openStep(step, i),
  StepEnded: (story, _row, i) => story.endStep(i),
  StepRolledBack: (story, _row, i) => story.takeBack(i),
  RequestAdded(story, [, request, tokens], i) {
    story.promptLengths.set(request, tokens.length);
    story.enter(request, i, STATE.waiting);
  },
  PrefixHit({ counts, promptLengths }, [, request, numTokens]) {
    const length = promptLengths.get(request) ?? 0;
    counts.hit += Math.min(numTokens, length);
    counts.looked += length;
  },
  ExternalHit(story, [, request, , isLoading], i) {
    if (isLoading) story.enter(request, i, STATE.loading);
  },
  LoadFailed: (story, [, request], i) => story.enter(request, i, STATE.waiting),
  RequestScheduled(story, [, request, , numTokens, isPrefill], i) {
    story.enter(request, i, isPrefill ? STATE.prefill : STATE.decode);
    story.counts[isPrefill ? "prefill" : "decode"] += numTokens;
  },
  RequestPreempted: (story, [, request], i) => story.enter(request, i, STATE.preempted),
  RequestFinished: (story, [, request], i) => story.enter(request, i, STATE.finished),
  RequestForgotten: ({ promptLengths }, [, request]) => void promptLengths.delete(request),
  TokenSampled: ({ counts }) => void (counts.sampled += 1),
  BlockAllocated: (story, [, block, request], i) => story.change(block, i, { refs: 1, keys: [], owners: [request] }),
  BlockTouched(story, [, block, request, , , refs], i) {
    story.change(block, i, { refs, owners: [...without(story.block(block).owners, request), request] });
  },
  BlockCached(story, [, block, , group, , hash, mapped], i) {
    const key = `${group}:${hash}`;
    story.change(block, i, { keys: [...story.block(block).keys, key] });
    if (mapped.length) story.remap(key, mapped, i);
  },
  BlockMerged(story, [, block, into, request, , , refs], i) {
    story.change(block, i, { owners: without(story.block(block).owners, request) });
    story.change(into, i, { refs, owners: [...without(story.block(into).owners, request), request] });
  },
  BlockFreed(story, [, block, request, , , refs], i) {
    story.change(block, i, { refs, owners: refs ? without(story.block(block).owners, request) : [] });
  },
  BlockEvicted(story, [, block], i) {
    for (const key of story.block(block).keys) story.remap(key, without(story.map.get(key) ?? [], block), i);
    story.change(block, i, { keys: [] });
  },
};
