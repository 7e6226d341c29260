// What the numbers in a story mean: states of requests, lives of blocks, topics of events.

import type { EventKind } from "./events.ts";

export const STATE = { waiting: 0, prefill: 1, decode: 2, preempted: 3, finished: 4, loading: 5 };

export const STATE_NAMES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"];

export const LIFE = { free: 0, live: 1, cached: 2, lost: 3 };

export const LIFE_NAMES = ["free", "in use", "freed, still cached", "in use, but lost: no look-up finds it"];

// Owners of a block that are no request.
export const SHARED = -2;

export const NOBODY = -1;

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
