// What must not be overlooked: rules found broken, and steps that failed, of a recording up to any moment since the engine started.
import { lastBefore } from "./steps.ts";

const known = new WeakMap();
const at = ({ event }) => event;

// {violations: [{event, rule, message, requests, blocks, step, first, isSaid}], crash: {event, step, error, message, method, moment} or null}.
// crash.moment is the one just before the step was taken back: what was held then can be seen there.
export function alarmsAt(recording, moment) {
  const { violations, crashes, starts } = logOf(recording),
    from = starts.findLast((start) => start < moment) ?? -1;
  const held = violations.slice(0, lastBefore(violations, moment, at) + 1),
    crash = crashes[lastBefore(crashes, moment, at)];
  return { violations: held.filter(({ event }) => event > from), crash: crash && crash.event > from ? crash : null };
}

// The block, the entry of a request's table, or the request that a violation is about; what it names without the other is marked alone.
export function violationOf(violations, { block, request }) {
  return (
    violations.find(({ blocks, requests }) => {
      if (block === undefined) return !blocks.length && requests.includes(request);
      return blocks.includes(block) && (request === undefined || !requests.length || requests.includes(request));
    }) ?? null
  );
}

// What the events say and what is, of a violation of the rule `said`: both stand in its message.
export function saidAndIs({ message }) {
  const found = /^(?:.*? says? that|by all events|.*?, so that) (.*?); (.*)$/s.exec(message);
  return found ? { said: found[1], is: found[2] } : { said: message, is: "" };
}

function logOf(recording) {
  let log = known.get(recording);
  if (!log || recording.start < log.start) known.set(recording, (log = begun(recording))); // older events have come
  log.start = recording.start;
  for (; log.end < recording.end; log.end++) note(log, recording, log.end, recording.row(log.end));
  return log;
}

// Those before the oldest event here came with the recording.
function begun(recording) {
  const log = { start: recording.start, end: recording.start, violations: [], crashes: [], starts: [] };
  for (const [event, row] of recording.earlier) if (event < recording.start) note(log, recording, event, row);
  return log;
}

function note(log, { kinds }, event, row) {
  NOTES[kinds.names[row[0]]]?.(log, event, kinds.ordered(row));
}

const NOTES = {
  EngineStarted: ({ starts }, event) => starts.push(event),
  ViolationFound({ violations }, event, [, rule, message, requests, blocks, step, first]) {
    violations.push({ event, rule, message, requests, blocks, step, first, isSaid: rule === "said" });
  },
  StepFailed({ crashes }, event, [, step, error, message, method]) {
    crashes.push({ event, step, error, message, method, moment: event + 1 });
  },
  StepRolledBack({ crashes }, event) {
    const crash = crashes.at(-1);
    if (crash && !crash.isOver) Object.assign(crash, { moment: event, isOver: true });
  },
};
