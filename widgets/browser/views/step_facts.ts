// What the events of one step have told up to a moment, and the scene as it stood at another moment of it.
// `base` is the moment from which all this is told: the step's start, or that of an engine that began anew.
// A step's span lasts until the next step begins: what happens between steps belongs to the one before.

const known = new WeakMap();
const NOTHING = () => ({
  step: 0,
  start: null,
  moment: null,
  forward: null,
  scheduled: new Map(),
  hits: new Map(),
  external: new Map(),
  slots: [],
  sampled: new Map(),
  merged: new Map(),
  allocated: new Map(),
  touched: new Map(),
  freed: [],
  evicted: [],
  transfers: [],
  failed: [],
  preempted: new Set(),
  finished: new Map(),
  events: [],
  violations: [],
});

// The last step that had begun before a moment, as an index into recording.steps; -1 before the first.
export function stepIndex(recording, moment) {
  let low = 0,
    high = recording.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (recording.steps[middle].start < moment) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// Costs the events since the last call, when time goes forward within a step.
export function factsAt(recording, moment) {
  const index = stepIndex(recording, moment),
    step = index < 0 ? null : recording.steps[index];
  const start = step ? step.start : recording.start;
  let facts = known.get(recording);
  if (!facts || facts.start !== start || facts.moment > moment || facts.step !== (step ? step.step : 0)) {
    facts = { ...NOTHING(), step: step ? step.step : 0, start, base: start, moment: start, isStep: Boolean(step) };
    known.set(recording, facts);
  }
  for (let i = Math.max(facts.moment, recording.start); i < moment; i++) note(facts, recording, i);
  facts.moment = moment;
  facts.stop = index + 1 < recording.steps.length ? recording.steps[index + 1].start : recording.end;
  facts.isIdle = idleIn(facts, recording, step);
  return facts;
}

// Who has no turn in a step that is over, as far as the recording goes: nobody while it is under way.
function idleIn(facts, recording, step) {
  if (!step || (step.end === null && facts.stop === recording.end)) return () => false;
  if (facts.turns?.stop !== facts.stop) {
    facts.turns = { stop: facts.stop, requests: new Set() };
    for (let i = Math.max(facts.start, recording.start); i < facts.stop; i++)
      if (recording.kind(i) === "RequestScheduled") facts.turns.requests.add(recording.field(i, "request_id"));
  }
  const { requests } = facts.turns;
  return (id) => !requests.has(id);
}

function note(facts, recording, event) {
  const kind = recording.kind(event),
    act = NOTES[kind];
  if (act) act(facts, (name) => recording.field(event, name), event);
}

const place = (field) => `${field("request_id")}:${field("group")}:${field("index")}`;

const NOTES = {
  EngineStarted(facts, field, event) {
    Object.assign(facts, NOTHING(), { start: facts.start, base: event + 1, isStep: false });
  },
  StepRolledBack(facts) {
    Object.assign(facts, NOTHING(), {
      step: facts.step,
      start: facts.start,
      base: facts.start,
      isStep: true,
      isRolledBack: true,
    });
  },
  RequestScheduled(facts, field) {
    facts.scheduled.set(field("request_id"), {
      start: field("start"),
      num: field("num_tokens"),
      isPrefill: field("is_prefill"),
    });
  },
  PrefixHit(facts, field, event) {
    facts.hits.set(field("request_id"), { num: field("num_tokens"), blocks: field("block_ids"), event });
  },
  ExternalHit(facts, field, event) {
    facts.external.set(field("request_id"), { num: field("num_tokens"), event, isLoading: field("is_loading") });
  },
  SlotsWritten(facts, field, event) {
    facts.slots.push({
      event,
      request: field("request_id"),
      group: field("group"),
      start: field("start"),
      runs: field("runs"),
    });
  },
  ForwardRan(facts, field, event) {
    facts.forward = event + 1;
  },
  TokenSampled(facts, field) {
    const request = field("request_id");
    facts.sampled.set(request, [...(facts.sampled.get(request) || []), field("token_id")]);
  },
  BlockMerged(facts, field, event) {
    facts.merged.set(place(field), { was: field("block_id"), into: field("into_block_id"), event });
  },
  BlockAllocated(facts, field, event) {
    facts.allocated.set(field("block_id"), { request: field("request_id"), event });
  },
  BlockTouched(facts, field, event) {
    if (field("ref_count") === 1) facts.touched.set(field("block_id"), { request: field("request_id"), event });
  },
  BlockEvicted(facts, field, event) {
    facts.evicted.push({ event, block: field("block_id"), reason: field("reason") });
  },
  BlocksLoaded(facts, field, event) {
    facts.transfers.push({ event, request: field("request_id"), isLoad: true, transfers: field("transfers") });
  },
  BlocksSaved(facts, field, event) {
    facts.transfers.push({ event, request: field("request_id"), isLoad: false, transfers: field("transfers") });
  },
  LoadFailed(facts, field, event) {
    facts.failed.push({ event, request: field("request_id"), reason: field("reason") });
  },
  RequestPreempted(facts, field) {
    facts.preempted.add(field("request_id"));
    facts.scheduled.delete(field("request_id"));
  },
  RequestFinished(facts, field) {
    facts.finished.set(field("request_id"), field("reason"));
  },
};

// A scene of its own at another moment, kept and moved: going forward costs the events in between. Null when that moment was dropped.
const shadows = new WeakMap();
export function shadowAt(recording, name, moment) {
  if (moment < recording.start || moment > recording.end) return null;
  let mine = shadows.get(recording);
  if (!mine) shadows.set(recording, (mine = new Map()));
  const shadow = mine.get(name);
  if (!shadow) mine.set(name, { scene: recording.sceneAt(moment), moment });
  else if (shadow.moment !== moment) {
    recording.move(shadow.scene, moment);
    shadow.moment = moment;
  }
  return mine.get(name).scene;
}
