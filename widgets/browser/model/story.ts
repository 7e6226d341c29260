// The run at a glance: requests' states, blocks' lives and figures per step, extended as events come. No DOM.
// Event i is the cell [i, i + 1) of the time axis, and shows the state right after it, in the story's own scene.

import { countUpTo } from "./arrays.ts";
import { TOPICS } from "./event_rows.ts";
import type { AnyRow, EventKind } from "./events.ts";
import type { Recording } from "./recording.ts";
import type { RequestRecord } from "./requests.ts";
import type { Scene } from "./scene.ts";
import type { Changes } from "./scene_state.ts";

export const STATE = { waiting: 0, prefill: 1, decode: 2, preempted: 3, finished: 4, loading: 5 };

export const STATE_NAMES = Object.keys(STATE);

export const LIFE = { free: 0, live: 1, cached: 2, lost: 3 };

export const LIFE_NAMES = ["free", "in use", "freed, still cached", "in use, but lost: no look-up finds it"];

// Owners of a block that are not requests.
export const SHARED = -2;

export const NO_OWNER = -1;

// A request's states, each from a moment on; state: one of STATE.
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

const COUNTS = ["used", "evictable", "peak", "hit", "looked", "prefill", "decode", "sampled"] as const;
const NONE = Object.fromEntries(COUNTS.map((name) => [name, 0])) as Counts;
const TROUBLE = 5;

type Counts = Record<(typeof COUNTS)[number], number>;

// Figures per step that ended.
export type StorySeries = Record<"step" | "moment" | keyof Counts, number[]>;

const stories = new WeakMap<Recording, Story>();

// One story per recording, updated on demand: the first caller after new events pays for reading them.
export function storyOf(recording: Recording) {
  let story = stories.get(recording);
  if (!story) stories.set(recording, (story = new Story(recording)));
  return story.extend();
}

export class Story {
  version = 0; // + 1 whenever the story starts over
  start!: number;
  end!: number;
  troubles!: number[]; // the events whose topic is trouble
  series!: StorySeries;
  keys!: string[]; // of the prefix map, by the numbers that bands have
  keyNumbers!: Map<string, number>;
  lanes!: Map<number, StoryLane>;
  bands!: Band[]; // by block; none of a block that was never used
  scene!: Scene; // at the story's end
  counts!: Counts;
  before!: Counts; // those at the step's start

  constructor(readonly recording: Recording) {
    this.begin();
  }

  get numBlocks() {
    return this.scene.numBlocks;
  }

  // From the oldest event that the recording has.
  begin() {
    const { recording } = this;
    this.version += 1;
    this.start = this.end = recording.start;
    this.troubles = [];
    this.series = Object.fromEntries(["step", "moment", ...COUNTS].map((name) => [name, []])) as unknown as StorySeries;
    this.keys = [];
    this.keyNumbers = new Map();
    this.scene = recording.sceneAt(recording.start);
    this.restart(this.start);
  }

  // An engine is there: requests and blocks of the one before are gone, steps and figures stay.
  restart(at: number) {
    this.lanes = new Map();
    this.bands = [];
    this.counts = { ...NONE };
    this.before = { ...NONE };
    this.drawAll(at);
  }

  extend() {
    const { recording } = this;
    const isOutgrown = this.end - this.start > 2 * Math.max(10000, recording.end - recording.start);
    if (recording.start < this.start || recording.end < this.end || recording.start > this.end || isOutgrown)
      this.begin();
    while (this.end < recording.end) {
      const row = recording.row(this.end);
      this.note(recording.kinds.names[row[0]] as EventKind, recording.kinds.ordered(row), this.end);
      this.end += 1;
    }
    return this;
  }

  // What event number i says of the run as a whole, and what it has changed.
  note(kind: EventKind, row: AnyRow, i: number) {
    if (TOPICS[kind] === TROUBLE) this.troubles.push(i);
    const changes = this.recording.move(this.scene, i + 1);
    if (kind === "EngineStarted") this.restart(i);
    else if (kind === "StepStarted") this.openStep();
    else if (kind === "StepRolledBack") this.rollBack();
    else this.count(kind, row);
    if (changes.all) this.drawAll(i);
    else if (kind !== "StepStarted") this.draw(changes, i); // what a step computes stays said until the next one does
    if (kind === "StepEnded") this.endStep(row[1] as number, i);
  }

  // -- requests and blocks

  draw({ blocks, requests }: Changes, at: number) {
    for (const id of blocks) this.drawBlock(id, at);
    for (const id of requests) this.drawRequest(id, at);
  }

  drawAll(at: number) {
    for (let id = 0; id < this.numBlocks; id++) this.drawBlock(id, at);
    for (const id of this.scene.requests.keys()) this.drawRequest(id, at);
  }

  drawRequest(id: number, at: number) {
    const request = this.scene.requests.get(id);
    if (!request) return;
    const state = stateOf(request),
      lane = this.lanes.get(id);
    if (!lane) this.lanes.set(id, { id, at: [at], state: [state] });
    else if (lane.state.at(-1) === state) return;
    else {
      const place = lane.at.at(-1) === at ? lane.at.length - 1 : lane.at.length;
      lane.at[place] = at;
      lane.state[place] = state;
    }
  }

  drawBlock(id: number, at: number) {
    const { scene } = this,
      refs = scene.refCounts[id],
      known = scene.firstKey[id],
      isMapped = scene.isMapped(id);
    const isLost = refs > 0 && known >= 0 && !isMapped;
    const life = isLost ? LIFE.lost : !scene.isKept(id) ? LIFE.live : isMapped ? LIFE.cached : LIFE.free;
    const key = life === LIFE.free || known < 0 ? -1 : this.keyNumber(scene.shared.keys.text(known)),
      owner = this.ownerOf(id);
    const last = (this.bands[id]?.at.length ?? 0) - 1;
    if (last < 0 && life === LIFE.free) return;
    const band = (this.bands[id] ??= { at: [], life: [], key: [], owner: [], refs: [] });
    if (
      last >= 0 &&
      band.life[last] === life &&
      band.key[last] === key &&
      band.owner[last] === owner &&
      band.refs[last] === refs
    )
      return;
    const place = last >= 0 && band.at[last] === at ? last : last + 1;
    band.at[place] = at;
    band.life[place] = life;
    band.key[place] = key;
    band.owner[place] = owner;
    band.refs[place] = refs;
  }

  ownerOf(block: number) {
    const { head, next, request } = this.scene.places;
    let owner = NO_OWNER;
    for (let node = head[block]; node >= 0; node = next[node]) {
      if (owner >= 0 && owner !== request[node]) return SHARED;
      owner = request[node];
    }
    return owner;
  }

  keyNumber(key: string) {
    let number = this.keyNumbers.get(key);
    if (number === undefined) this.keyNumbers.set(key, (number = this.keys.push(key) - 1));
    return number;
  }

  // -- steps and figures

  openStep() {
    this.before = { ...this.counts };
    Object.assign(this.counts, { prefill: 0, decode: 0, sampled: 0 });
  }

  count(kind: EventKind, row: AnyRow) {
    const { counts } = this;
    if (kind === "PrefixHit") {
      const [, request, numTokens] = row as [number, number, number],
        length = this.scene.requests.get(request)?.numPrompt ?? 0;
      counts.hit += Math.min(numTokens, length);
      counts.looked += length;
    } else if (kind === "RequestScheduled") {
      const [, , , numTokens, isPrefill] = row as [number, number, number, number, boolean];
      counts[isPrefill ? "prefill" : "decode"] += numTokens;
    } else if (kind === "TokenSampled") counts.sampled += 1;
  }

  endStep(step: number, at: number) {
    const { series, counts, scene } = this;
    counts.used = scene.numUsed;
    counts.evictable = scene.tree.numEvictable;
    counts.peak = scene.peak;
    series.step.push(step);
    series.moment.push(at + 1);
    for (const name of COUNTS) series[name].push(counts[name]);
  }

  // The step's events stay on the axis; a request that came in it is gone.
  rollBack() {
    this.counts = { ...this.before };
    const step = this.recording.stepAt(this.end);
    for (const { id, at } of this.lanes.values())
      if (at[0] >= (step?.start ?? 0) && !this.scene.requests.has(id)) this.lanes.delete(id);
  }

  // -- to read

  topic(i: number) {
    return TOPICS[this.recording.kind(i) as EventKind] ?? 0;
  }

  lifeAt(block: number, moment: number) {
    const band = this.bands[block],
      index = band ? countUpTo(band.at, moment - 1) - 1 : -1;
    return index < 0
      ? { life: LIFE.free, key: null, owner: NO_OWNER, refs: 0 }
      : {
          life: band.life[index],
          key: this.keys[band.key[index]] ?? null,
          owner: band.owner[index],
          refs: band.refs[index],
        };
  }
}

function stateOf(request: RequestRecord) {
  const { status, scheduled, numComputed, numPrompt } = request;
  if (status === "finished" || status === "preempted") return STATE[status];
  if (request.isLoading) return STATE.loading;
  if (scheduled) return scheduled.isPrefill ? STATE.prefill : STATE.decode;
  if (status === "running") return numComputed < numPrompt ? STATE.prefill : STATE.decode;
  const isBegun = numComputed > (request.hit ?? 0) + request.external; // a chunk of its prompt is computed
  return isBegun ? STATE.prefill : STATE.waiting;
}
