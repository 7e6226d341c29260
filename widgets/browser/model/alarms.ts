// Alarms: broken rules and failed steps of a recording, up to any moment since the
// engine started.

import { lastBefore } from "./arrays.ts";
import type { EventRows } from "./event_rows.ts";
import type { AnyRow, EventKind } from "./events.ts";
import { entryFor } from "./events.ts";
import type { Recording } from "./recording.ts";

// A rule that was found broken. isSaid: the core's state differs from the fold of its events.
export interface Violation {
  event: number;
  since: number; // the event that broke it, if known: it is shown from there on, even if found later
  rule: string;
  message: string;
  requests: number[];
  blocks: number[];
  step: number;
  isSaid: boolean;
  fact: string[]; // of a said one, if it is about a fact: what differs, what the events say, and what is
}

// A step that failed. moment: just before the step was rolled back, so that what was held then can be seen there.
export interface Crash {
  event: number;
  step: number;
  error: string;
  message: string;
  method: string;
  moment: number;
  isRolledBack?: boolean;
}

// A block whose KV does not match its hash, from one moment to another. held: the key of its real content; null if
// unknown.
export interface Misnamed {
  block: number;
  claimed: string;
  held: string | null;
  from: number;
  to: number;
}

interface AlarmLog {
  start: number;
  end: number;
  violations: Violation[]; // in the order in which they began
  crashes: Crash[];
  starts: number[];
  misnamed: Misnamed[];
  open: Map<number, Misnamed[]>; // by block, those that still hold at the log's end
}

const known = new WeakMap<Recording, AlarmLog>();

// The rules that are broken by then, and the step that failed last.
export function alarmsAt(recording: Recording, moment: number): { violations: Violation[]; crash: Crash | null } {
  const { violations, crashes, starts } = logOf(recording),
    from = starts.findLast((start) => start < moment) ?? -1;
  const held = violations.slice(0, lastBefore(violations, moment, ({ since }) => since) + 1),
    crash = crashes[lastBefore(crashes, moment, ({ event }) => event)];
  return { violations: held.filter(({ since }) => since > from), crash: crash && crash.event > from ? crash : null };
}

// The violation that an event reports.
export function violationFound(recording: Recording, event: number) {
  return logOf(recording).violations.find((one) => one.event === event) ?? null;
}

// Blocks whose KV does not match their hash, by the checks: marked from the start, even if found later.
export function misnamedAt(recording: Recording, moment: number) {
  const found = new Map<number, Misnamed>();
  for (const one of logOf(recording).misnamed) if (one.from < moment && moment <= one.to) found.set(one.block, one);
  return found;
}

// True if there is such a block at some moment.
export function hasMisnamed(recording: Recording) {
  return logOf(recording).misnamed.length > 0;
}

// The block, the entry of a request's table, or the request that a violation is about; what it names without the other
// is marked alone.
export function violationOf(violations: Violation[], { block, request }: { block?: number; request?: number }) {
  return (
    violations.find(({ blocks, requests }) => {
      if (block === undefined) return !blocks.length && requests.includes(request ?? -1);
      return blocks.includes(block) && (request === undefined || !requests.length || requests.includes(request ?? -1));
    }) ?? null
  );
}

function logOf(recording: Recording) {
  let log = known.get(recording);
  // Older events have come, or events were dropped before they were in the log: no view was painted meanwhile.
  if (!log || recording.start < log.start || log.end < recording.start) known.set(recording, (log = begun(recording)));
  log.start = recording.start;
  for (; log.end < recording.end; log.end++) note(log, recording, log.end, recording.row(log.end));
  return log;
}

// Alarms before the oldest event here came with the recording.
function begun(recording: Recording) {
  const log: AlarmLog = {
    start: recording.start,
    end: recording.start,
    violations: [],
    crashes: [],
    starts: [],
    misnamed: [],
    open: new Map(),
  };
  for (const [event, row] of recording.earlier) if (event < recording.start) note(log, recording, event, row);
  return log;
}

function note(log: AlarmLog, { kinds }: Recording, event: number, row: AnyRow) {
  entryFor(NOTES, kinds.names[row[0]])?.(log, event, kinds.ordered(row));
}

const NOTES: { [Kind in EventKind]?: (log: AlarmLog, event: number, row: EventRows[Kind]) => void } = {
  EngineStarted(log, event) {
    log.starts.push(event);
    for (const block of [...log.open.keys()]) end(log, block, event);
  },
  ViolationFound(log, event, [, rule, message, requests, blocks, step, first, names, fact]) {
    const { violations, misnamed, open, starts } = log,
      since = first !== null && first > (starts.at(-1) ?? -1) ? first : event,
      place = lastBefore(violations, since + 1, (one) => one.since) + 1;
    violations.splice(place, 0, { event, since, rule, message, requests, blocks, step, isSaid: rule === "said", fact });
    for (const [block, group, claimed, held] of names) {
      const one = {
        block,
        claimed: `${group}:${claimed}`,
        held: held ? `${group}:${held}` : null,
        from: first ?? event,
        to: Infinity,
      };
      misnamed.push(one);
      open.set(block, [...(open.get(block) ?? []), one]);
    }
  },
  BlockEvicted: (log, event, [, block]) => end(log, block, event),
  BlockAllocated: (log, event, [, block]) => end(log, block, event),
  BlockCached: (log, event, [, block]) => end(log, block, event),
  StepFailed({ crashes }, event, [, step, error, message, method]) {
    crashes.push({ event, step, error, message, method, moment: event + 1 });
  },
  StepRolledBack({ crashes }, event) {
    const crash = crashes.at(-1);
    if (crash && !crash.isRolledBack) {
      crash.moment = event;
      crash.isRolledBack = true;
    }
  },
};

// The block gets another hash, or none.
function end({ open }: AlarmLog, block: number, event: number) {
  for (const one of open.get(block) ?? []) one.to = event;
  open.delete(block);
}
