// The facts of one step's events up to a moment, and the scene at another moment of the step.
// `base` is the moment at which these events begin: the step's start, or the start of a new engine.
// A step's span lasts until the next step begins: what happens between steps belongs to the one before.

import { lastBefore } from "../model/arrays.ts";
import type { EventRows } from "../model/event_rows.ts";
import { REPLACES_ENTRY } from "../model/event_rows.ts";
import type { EventKind, Transfer } from "../model/events.ts";
import { entryFor } from "../model/events.ts";
import type { Recording } from "../model/recording.ts";
import type { Scene } from "../model/scene.ts";
import type { StepRecord } from "../model/steps.ts";

export interface ScheduledShare {
  start: number;
  num: number;
  isPrefill: boolean;
  numDrafts: number;
}

// Slots that the forward pass wrote for one request, run by run.
export interface WrittenSlots {
  request: number;
  group: number;
  start: number;
  runs: [block: number, offset: number, length: number][];
}

interface StepTransfer {
  event: number;
  request: number;
  isLoad: boolean;
  transfers: Transfer[];
}

const empty = () => ({
  step: 0,
  forward: null as number | null,
  scheduled: new Map<number, ScheduledShare>(),
  hits: new Map<number, { num: number; blocks: number[][]; event: number }>(),
  external: new Map<number, { num: number; event: number; isLoading: boolean }>(),
  slots: [] as WrittenSlots[],
  sampled: new Map<number, number[]>(),
  replaced: new Map<string, number>(), // by request:group:index, the block that the entry named before
  transfers: [] as StepTransfer[],
  preempted: new Set<number>(),
  finished: new Map<number, string>(),
});

export interface StepFacts extends ReturnType<typeof empty> {
  start: number;
  base: number;
  moment: number;
  stop: number;
  isStep: boolean;
  isRolledBack: boolean;
  scheduledIn?: { stop: number; requests: Set<number> };
  isIdle: (request: number) => boolean;
}

const known = new WeakMap<Recording, StepFacts>();

// Costs the events since the last call, when time goes forward within a step.
export function factsAt(recording: Recording, moment: number): StepFacts {
  const index = lastBefore(recording.steps, moment, ({ start }) => start),
    step = recording.steps[index] ?? null;
  const start = step ? step.start : recording.start;
  let facts = known.get(recording);
  if (!facts || facts.start !== start || facts.moment > moment || facts.step !== (step ? step.step : 0)) {
    const places = { start, base: start, moment: start, stop: start, isStep: Boolean(step), isRolledBack: false };
    facts = { ...empty(), ...places, step: step ? step.step : 0, isIdle: () => false };
    known.set(recording, facts);
  }
  for (let i = Math.max(facts.moment, recording.start); i < moment; i++) note(facts, recording, i);
  facts.moment = moment;
  facts.stop = recording.steps[index + 1]?.start ?? recording.end;
  facts.isIdle = idleIn(facts, recording, step);
  return facts;
}

// Returns a predicate for the requests that a finished step did not schedule; none while the step is open.
function idleIn(facts: StepFacts, recording: Recording, step: StepRecord | null): (request: number) => boolean {
  if (!step || (step.end === null && facts.stop === recording.end)) return () => false;
  let { scheduledIn } = facts;
  if (scheduledIn?.stop !== facts.stop) {
    facts.scheduledIn = scheduledIn = { stop: facts.stop, requests: new Set() };
    for (let i = Math.max(facts.start, recording.start); i < facts.stop; i++)
      if (recording.kind(i) === "RequestScheduled") scheduledIn.requests.add(recording.field(i, "request_id") ?? -1);
  }
  const { requests } = scheduledIn;
  return (id) => !requests.has(id);
}

function note(facts: StepFacts, recording: Recording, event: number) {
  const row = recording.kinds.ordered(recording.row(event)),
    kind = recording.kind(event);
  entryFor(NOTES, kind)?.(facts, row, event);
  if (REPLACES_ENTRY.includes(kind)) {
    const entry = (["request_id", "group", "index"] as const).map((name) => recording.field(event, name));
    facts.replaced.set(entry.join(":"), recording.field(event, "block_id") ?? -1);
  }
}

type Note<Kind extends EventKind> = (facts: StepFacts, row: EventRows[Kind], event: number) => void;

const NOTES: { [Kind in EventKind]?: Note<Kind> } = {
  EngineStarted(facts, _row, event) {
    Object.assign(facts, empty(), { base: event + 1, isStep: false });
  },
  StepRolledBack(facts) {
    Object.assign(facts, empty(), { step: facts.step, base: facts.start, isStep: true, isRolledBack: true });
  },
  RequestScheduled(facts, [, request, start, num, isPrefill, , numDrafts]) {
    facts.scheduled.set(request, { start, num, isPrefill, numDrafts });
  },
  PrefixHit(facts, [, request, num, blocks], event) {
    facts.hits.set(request, { num, blocks, event });
  },
  ExternalHit(facts, [, request, num, isLoading], event) {
    facts.external.set(request, { num, event, isLoading });
  },
  SlotsWritten(facts, [, request, group, start, runs]) {
    facts.slots.push({ request, group, start, runs });
  },
  ForwardRan(facts, _row, event) {
    facts.forward = event + 1;
  },
  TokenSampled(facts, [, request, token]) {
    facts.sampled.set(request, [...(facts.sampled.get(request) ?? []), token]);
  },
  BlocksLoaded(facts, [, request, transfers], event) {
    facts.transfers.push({ event, request, isLoad: true, transfers });
  },
  BlocksSaved(facts, [, request, transfers], event) {
    facts.transfers.push({ event, request, isLoad: false, transfers });
  },
  RequestPreempted(facts, [, request]) {
    facts.preempted.add(request);
    facts.scheduled.delete(request);
  },
  RequestFinished(facts, [, request, reason]) {
    facts.finished.set(request, reason);
  },
};

// A separate scene at another moment, kept and moved: going forward costs the events in between. Null when that
// moment was dropped.
const shadows = new WeakMap<Recording, Map<string, Scene>>();
export function shadowAt(recording: Recording, name: string, moment: number): Scene | null {
  if (moment < recording.start || moment > recording.end) return null;
  let mine = shadows.get(recording);
  if (!mine) shadows.set(recording, (mine = new Map()));
  let shadow = mine.get(name);
  if (!shadow) mine.set(name, (shadow = recording.sceneAt(moment)));
  else if (shadow.moment !== moment) recording.move(shadow, moment);
  return shadow;
}
