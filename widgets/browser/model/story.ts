// The whole run at a glance: requests' states, blocks' lives and figures per step, extended as events come. No DOM.
// Event i is the cell [i, i + 1) of the time axis, and shows the state right after it.
export const STATE = { waiting: 0, prefill: 1, decode: 2, preempted: 3, finished: 4, loading: 5 };
export const STATE_NAMES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"];
export const LIFE = { free: 0, live: 1, cached: 2, lost: 3 };
export const LIFE_NAMES = ["free", "in use", "freed, still cached", "in use, but lost: no look-up finds it"];
export const SHARED = -2;
export const NOBODY = -1;

// What an event is about, for the ticks: 0 frame of a step, 1 requests, 2 blocks, 3 the model, 4 the external tier, 5 trouble.
const TOPICS = {
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

const stories = new WeakMap();

// One story per recording, brought up to date: whoever asks first pays for the events that are new.
export function storyOf(recording) {
  let story = stories.get(recording);
  if (!story) stories.set(recording, (story = new Story(recording)));
  return story.extend();
}

export class Story {
  constructor(recording) {
    this.recording = recording;
    this.version = 0;
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
    this.readers = recording.header.kinds.map(([name, ...fields]) => readerOf(name, fields));
    this.restart(0);
    this.takeStock(recording.sceneAt(recording.start));
  }

  restart(numBlocks) {
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

  takeStock(scene) {
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

  own(block, request, at) {
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
        reader = this.readers[row[0]];
      this.topics[this.end - this.start] = reader.topic;
      if (reader.topic === 5) this.troubles.push(this.end);
      if (reader.apply) reader.apply(this, row, reader.field, this.end);
      this.end += 1;
    }
    return this;
  }

  grow(needed) {
    const topics = new Uint8Array(Math.max(needed, 2 * this.topics.length));
    topics.set(this.topics);
    this.topics = topics;
  }

  topic(i) {
    return this.topics[i - this.start];
  }

  // The last step that has begun before the moment, as an index into steps; -1 for none.
  stepIndex(moment) {
    return countUpTo(this.steps.start, moment - 1) - 1;
  }

  stateAt(request, moment) {
    const lane = this.lanes.get(request),
      index = lane ? countUpTo(lane.at, moment - 1) - 1 : -1;
    return index < 0 ? null : lane.state[index];
  }

  lifeAt(block, moment) {
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

  // -- requests --------------------------------------------------------------------------------------------------------

  enter(request, at, state) {
    const before = this.states.get(request);
    if (before === state) return;
    if (this.undo && !this.undo.states.has(request)) this.undo.states.set(request, before);
    this.states.set(request, state);
    let lane = this.lanes.get(request);
    if (!lane) this.lanes.set(request, (lane = { id: request, at: [], state: [] }));
    if (lane.at.at(-1) === at) lane.state[lane.state.length - 1] = state;
    else lane.at.push(at), lane.state.push(state);
  }

  // -- blocks ----------------------------------------------------------------------------------------------------------

  block(id) {
    let block = this.blocks.get(id);
    if (!block) this.blocks.set(id, (block = { refs: 0, keys: [], owners: [] }));
    return block;
  }

  change(id, at, parts) {
    const before = this.block(id),
      block = { ...before, ...parts };
    if (this.undo && !this.undo.blocks.has(id)) this.undo.blocks.set(id, before);
    this.counts.used += (block.refs > 0) - (before.refs > 0);
    this.counts.peak = Math.max(this.counts.peak, this.counts.used);
    this.blocks.set(id, block);
    this.draw(id, at, block);
  }

  draw(id, at, block) {
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
    (band.at[place] = at),
      (band.life[place] = life),
      (band.key[place] = key),
      (band.owner[place] = owner),
      (band.refs[place] = block.refs);
  }

  keyNumber(key) {
    let number = this.keyNumbers.get(key);
    if (number === undefined) this.keyNumbers.set(key, (number = this.keys.push(key) - 1));
    return number;
  }

  remap(key, ids, at) {
    const before = this.map.get(key) ?? [];
    if (this.undo && !this.undo.map.has(key)) this.undo.map.set(key, before);
    if (ids.length) this.map.set(key, ids);
    else this.map.delete(key);
    for (const id of new Set([...before, ...ids])) this.change(id, at, {});
  }

  // -- steps -----------------------------------------------------------------------------------------------------------

  openStep(number, at) {
    const { steps, counts } = this;
    steps.number.push(number), steps.start.push(at), steps.end.push(null), steps.isTakenBack.push(false);
    this.undo = { states: new Map(), blocks: new Map(), map: new Map(), counts: { ...counts } };
    Object.assign(counts, { peak: counts.used, prefill: 0, decode: 0, sampled: 0 });
  }

  endStep(at) {
    const { steps, series, counts } = this,
      last = steps.end.length - 1;
    if (last >= 0) steps.end[last] = at + 1;
    this.undo = null;
    series.step.push(steps.number[last] ?? 0), series.moment.push(at + 1);
    for (const name of ["used", "peak", "hit", "looked", "prefill", "decode", "sampled"])
      series[name].push(counts[name]);
  }

  // The state is again what it was before the step; what was seen of it stays on the axis.
  takeBack(at) {
    const { steps, undo } = this,
      last = steps.end.length - 1;
    if (last >= 0) (steps.end[last] = at + 1), (steps.isTakenBack[last] = true);
    this.undo = null;
    if (!undo) return;
    for (const [key, ids] of undo.map) ids.length ? this.map.set(key, ids) : this.map.delete(key);
    for (const [id, block] of undo.blocks) this.change(id, at, block);
    for (const [request, state] of undo.states)
      state === undefined ? this.lanes.delete(request) : this.enter(request, at, state);
    this.counts = undo.counts;
  }
}

// How many of the ascending numbers are at most this one.
export function countUpTo(numbers, most) {
  let low = 0,
    high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

function readerOf(name, fields) {
  return {
    topic: TOPICS[name] ?? 0,
    apply: APPLY[name],
    field: Object.fromEntries(fields.map((field, i) => [field, i + 1])),
  };
}

function without(list, item) {
  return list.filter((other) => other !== item);
}

const APPLY = {
  EngineStarted: (story, row, f) => story.restart(row[f.num_blocks]),
  StepStarted: (story, row, f, i) => story.openStep(row[f.step], i),
  StepEnded: (story, row, f, i) => story.endStep(i),
  StepRolledBack: (story, row, f, i) => story.takeBack(i),
  RequestAdded(story, row, f, i) {
    story.promptLengths.set(row[f.request_id], row[f.token_ids].length);
    story.enter(row[f.request_id], i, STATE.waiting);
  },
  PrefixHit({ counts, promptLengths }, row, f) {
    const length = promptLengths.get(row[f.request_id]) ?? 0;
    counts.hit += Math.min(row[f.num_tokens], length);
    counts.looked += length;
  },
  ExternalHit(story, row, f, i) {
    if (row[f.is_loading]) story.enter(row[f.request_id], i, STATE.loading);
  },
  LoadFailed: (story, row, f, i) => story.enter(row[f.request_id], i, STATE.waiting),
  RequestScheduled(story, row, f, i) {
    story.enter(row[f.request_id], i, row[f.is_prefill] ? STATE.prefill : STATE.decode);
    story.counts[row[f.is_prefill] ? "prefill" : "decode"] += row[f.num_tokens];
  },
  RequestPreempted: (story, row, f, i) => story.enter(row[f.request_id], i, STATE.preempted),
  RequestFinished: (story, row, f, i) => story.enter(row[f.request_id], i, STATE.finished),
  RequestForgotten: ({ promptLengths }, row, f) => void promptLengths.delete(row[f.request_id]),
  TokenSampled: ({ counts }) => void (counts.sampled += 1),
  BlockAllocated: (story, row, f, i) =>
    story.change(row[f.block_id], i, { refs: 1, keys: [], owners: [row[f.request_id]] }),
  BlockTouched(story, row, f, i) {
    const owners = [...without(story.block(row[f.block_id]).owners, row[f.request_id]), row[f.request_id]];
    story.change(row[f.block_id], i, { refs: row[f.ref_count], owners });
  },
  BlockCached(story, row, f, i) {
    const id = row[f.block_id],
      key = `${row[f.group]}:${row[f.block_hash]}`;
    story.change(id, i, { keys: [...story.block(id).keys, key] });
    if (row[f.mapped].length) story.remap(key, row[f.mapped], i);
  },
  BlockMerged(story, row, f, i) {
    const request = row[f.request_id],
      id = row[f.block_id],
      into = row[f.into_block_id];
    story.change(id, i, { owners: without(story.block(id).owners, request) });
    story.change(into, i, { refs: row[f.ref_count], owners: [...without(story.block(into).owners, request), request] });
  },
  BlockFreed(story, row, f, i) {
    const id = row[f.block_id];
    story.change(id, i, {
      refs: row[f.ref_count],
      owners: row[f.ref_count] ? without(story.block(id).owners, row[f.request_id]) : [],
    });
  },
  BlockEvicted(story, row, f, i) {
    const id = row[f.block_id],
      { keys } = story.block(id);
    for (const key of keys) story.remap(key, without(story.map.get(key) ?? [], id), i);
    story.change(id, i, { keys: [] });
  },
};
