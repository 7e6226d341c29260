// What each kind of event does to a story. Rows have the order of fields of event_rows.ts.

import type { EventRows } from "./event_rows.ts";
import type { EventKind } from "./events.ts";
import { STATE } from "./story_codes.ts";
import type { StoryState } from "./story_state.ts";

export type Apply<Kind extends EventKind> = (story: StoryState, row: EventRows[Kind], i: number) => void;

function without<T>(list: T[], item: T) {
  return list.filter((other) => other !== item);
}

export const APPLY: { [Kind in EventKind]?: Apply<Kind> } = {
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
