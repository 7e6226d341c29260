// The run at a glance: requests' states, blocks' lives and figures per step, extended as events come. No DOM.
// Event i is the cell [i, i + 1) of the time axis, and shows the state right after it.

import { countUpTo } from "./arrays.ts";
import type { EventRows } from "./event_rows.ts";
import type { AnyRow, EventKind } from "./events.ts";
import { entryFor } from "./events.ts";
import type { Recording } from "./recording.ts";
import type { Scene } from "./scene.ts";
import { LIFE, NO_OWNER, STATE, StoryState, TOPICS } from "./story_state.ts";

const stories = new WeakMap<Recording, Story>();

// One story per recording, updated on demand: the first caller after new events pays for reading them.
export function storyOf(recording: Recording) {
  let story = stories.get(recording);
  if (!story) stories.set(recording, (story = new Story(recording)));
  return story.extend();
}

export class Story extends StoryState {
  recording: Recording;
  version = 0; // + 1 whenever the story begins anew
  start!: number;
  end!: number;
  topics!: Uint8Array; // by event
  troubles!: number[]; // the events whose topic is trouble
  readers!: { topic: number; apply: ((story: StoryState, row: AnyRow, i: number) => void) | undefined }[]; // by kind

  constructor(recording: Recording) {
    super();
    this.recording = recording;
    this.begin();
  }

  // From the oldest event that the recording has.
  begin() {
    const { recording } = this;
    this.version += 1;
    this.start = this.end = recording.start;
    this.topics = new Uint8Array(1024);
    this.troubles = [];
    this.readers = recording.kinds.names.map((name) => ({
      topic: TOPICS[name as EventKind] ?? 0,
      apply: entryFor(APPLY, name),
    }));
    this.clear();
    this.takeStock(recording.sceneAt(recording.start));
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
      apply?.(this, recording.kinds.ordered(row), this.end);
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
      ? { life: LIFE.free, key: null, owner: NO_OWNER, refs: 0 }
      : {
          life: band.life[index],
          key: this.keys[band.key[index]] ?? null,
          owner: band.owner[index],
          refs: band.refs[index],
        };
  }
}

type Apply<Kind extends EventKind> = (story: StoryState, row: EventRows[Kind], i: number) => void;

function without<T>(list: T[], item: T) {
  return list.filter((other) => other !== item);
}

const APPLY: { [Kind in EventKind]?: Apply<Kind> } = {
  EngineStarted: (story, [, numBlocks]) => story.restart(numBlocks),
  StepStarted: (story, [, step], i) => story.openStep(step, i),
  StepEnded: (story, _row, i) => story.endStep(i),
  StepRolledBack: (story, _row, i) => story.rollBack(i),
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
  FreeDeferred(story, [, request, , blocks], i) {
    for (const block of blocks) story.change(block, i, { owners: without(story.block(block).owners, request) });
  },
  BlockPinned: (story, [, block, refs], i) => story.change(block, i, { refs }),
  BlockUnpinned: (story, [, block, refs], i) => story.change(block, i, refs ? { refs } : { refs, owners: [] }),
  BlockCopied(story, [, block, into, request], i) {
    story.change(block, i, { owners: without(story.block(block).owners, request) });
    story.change(into, i, { refs: 2, keys: [], owners: [request] });
  },
  HashesMoved(story, [, block, into], i) {
    const { keys } = story.block(block);
    for (const key of keys) story.remap(key, [...without(story.map.get(key) ?? [], block), into], i);
    story.change(block, i, { keys: [] });
    story.change(into, i, { keys });
  },
  BlockEvicted(story, [, block], i) {
    for (const key of story.block(block).keys) story.remap(key, without(story.map.get(key) ?? [], block), i);
    story.change(block, i, { keys: [] });
  },
};
