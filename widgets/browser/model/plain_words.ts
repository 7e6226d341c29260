// Captions for a reader who sees blocks for the first time: a few sentences a step, in everyday words.

import type { FieldValue } from "./events.ts";
import { counted, separated } from "./names.ts";
import type { CaptionRow } from "./payloads.ts";
import { phrase } from "./phrases.ts";
import type { Recording } from "./recording.ts";
import type { Mention, Sentence } from "./sentence.ts";
import { joined } from "./sentence.ts";

// A model without words answers in numbers: beside words they would seem to mean something.
export function plainWord(text: string, token: number) {
  return text.trim() === String(token) ? "answer" : text;
}

// Sentences about the events between two moments, each at a moment at which the picture shows what it says.
export function plainRows(recording: Recording, start: number, end: number): CaptionRow[] {
  const rows: CaptionRow[] = [],
    stretch = new Stretch(recording, end);
  for (let at = start; at < end; ) {
    const told = WORDS[recording.kind(at)]?.(stretch, at);
    if (told) rows.push([told.until, joined(told.words), null]);
    at = told?.until ?? at + 1;
  }
  return rows;
}

// A sentence about the events up to a moment.
interface Told {
  until: number;
  words: Sentence;
}

// The events of a recording up to a moment.
class Stretch {
  constructor(
    readonly recording: Recording,
    readonly end: number,
  ) {}

  kind(event: number) {
    return event < this.end ? this.recording.kind(event) : null;
  }

  field<Name extends string>(event: number, name: Name) {
    return this.recording.field(event, name) as FieldValue<Name>;
  }

  name(event: number): Mention {
    return ["request", this.field(event, "request_id")];
  }

  block(event: number): Mention {
    return ["block", this.field(event, "block_id")];
  }

  // An event and those like it after it, about the same request. Evictions between them get no sentence.
  run(first: number) {
    const found = [first];
    for (let next = first + 1; ; next++) {
      if (this.kind(next) === "BlockEvicted") continue;
      if (this.kind(next) !== this.kind(first) || this.name(next)[1] !== this.name(first)[1]) return found;
      found.push(next);
    }
  }

  // The events of a kind in the step before one.
  earlier(event: number, kind: string) {
    const found: number[] = [];
    for (let i = event - 1; i >= this.recording.start && this.kind(i) !== "StepStarted"; i--)
      if (this.kind(i) === kind) found.unshift(i);
    return found;
  }
}

const until = (run: number[]) => run[run.length - 1] + 1;
const are = ({ length }: unknown[]) => (length === 1 ? "is" : "are");

// By the kind of the first event; other kinds get no sentence.
const WORDS: Record<string, (events: Stretch, at: number) => Told | null> = {
  RequestAdded: waiting,
  BlockAllocated: reserved,
  BlockTouched: shared,
  ForwardRan: computed,
  BlockMerged: merged,
  BlockCopied: copied,
  BlockFreed: freed,
  StepFailed: asEverywhere,
  StepRolledBack: asEverywhere,
  ViolationFound: asEverywhere,
};

function asEverywhere({ recording }: Stretch, at: number): Told {
  return { until: at + 1, words: phrase(recording, at) };
}

function waiting(events: Stretch, first: number): Told {
  let end = first + 1;
  while (events.kind(end) === "RequestAdded") end++;
  const names = Array.from({ length: end - first }, (_, i) => events.name(first + i)),
    { length } = events.field(first, "token_ids");
  const what =
    names.length === 1 ? ` is waiting, with ${counted(length, "word")} to read.` : " are waiting to be read.";
  return { until: end, words: [...separated(names), what] };
}

function reserved(events: Stretch, first: number): Told {
  const run = events.run(first),
    blocks = run.map((i) => events.block(i));
  return { until: until(run), words: [...separated(blocks), ` ${are(blocks)} reserved for `, events.name(first), "."] };
}

function shared(events: Stretch, first: number): Told {
  const run = events.run(first),
    blocks = run.map((i) => events.block(i)),
    hold = blocks.length === 1 ? "holds" : "hold";
  return { until: until(run), words: [...separated(blocks), ` already ${hold} `, events.name(first), "'s words."] };
}

// The model runs once: some texts are read, others get a word.
function computed(events: Stretch, at: number): Told | null {
  const scheduled = events.earlier(at, "RequestScheduled"),
    isRead = (i: number) => events.field(i, "is_prefill"),
    said = [
      read(events, scheduled.filter(isRead), at),
      grown(
        events,
        scheduled.filter((i) => !isRead(i)),
        at,
      ),
    ].filter(({ length }) => length);
  return said.length ? { until: at + 1, words: said.flatMap((words, i) => (i ? [" ", ...words] : words)) } : null;
}

function read(events: Stretch, scheduled: number[], at: number): Sentence {
  const names = scheduled.map((i) => events.name(i));
  if (!names.length) return [];
  return [...separated(names), ` ${are(names)} read into `, ...separated(written(events, names, at)), "."];
}

function grown(events: Stretch, scheduled: number[], at: number): Sentence {
  const names = scheduled.map((i) => events.name(i));
  if (!names.length) return [];
  if (names.length > 1) return [...separated(names), " get one more word each."];
  return [names[0], "'s answer gets one more word, in ", ...separated(written(events, names, at)), "."];
}

// The blocks into which a step has written for these requests, each once.
function written(events: Stretch, names: Mention[], at: number) {
  const ids = names.flatMap(([, id]) =>
    events
      .earlier(at, "SlotsWritten")
      .filter((i) => events.field(i, "request_id") === id)
      .flatMap((i) => events.field(i, "runs").map(([block]) => block)),
  );
  return [...new Set(ids)].map((id): Mention => ["block", id]);
}

function merged(events: Stretch, at: number): Told {
  const [name, copy, kept]: Mention[] = [
      events.name(at),
      events.block(at),
      ["block", events.field(at, "into_block_id")],
    ],
    isFreed = events.kind(at + 1) === "BlockFreed",
    words: Sentence = [copy, " holds the same words as ", kept, ": ", name, " now uses ", kept, " too"];
  return isFreed
    ? { until: at + 2, words: [...words, ", and ", copy, " is free."] }
    : { until: at + 1, words: [...words, "."] };
}

function copied(events: Stretch, at: number): Told {
  const copy: Mention = ["block", events.field(at, "into_block_id")],
    isFreed = events.kind(at + 1) === "BlockFreed";
  return {
    until: at + (isFreed ? 2 : 1),
    words: [events.name(at), " gets ", copy, ", a copy of ", events.block(at), "."],
  };
}

const REASONS: Record<string, string> = {
  finished: " is done",
  aborted: " was stopped",
  preempted: " makes room for another and waits to be read again",
};

function freed(events: Stretch, first: number): Told {
  const run = events.run(first),
    free = run.filter((i) => events.field(i, "queue_end") !== null).map((i) => events.block(i)),
    why = REASONS[events.field(first, "reason")] ?? " needs less";
  const blocks = free.sort(([, a], [, b]) => Number(a) - Number(b)),
    end: Sentence = blocks.length ? [": ", ...separated(blocks), ` ${are(blocks)} free.`] : ["."];
  return { until: until(run), words: [events.name(first), why, ...end] };
}
