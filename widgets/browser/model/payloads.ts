// Documents that Python sends: recordings, stretches of them, captions, comparisons, answers.
import type { WireKeyframe } from "./event_rows.ts";
import type { AnyRow, KindNames, Phase } from "./events.ts";
import type { Sentence } from "./sentence.ts";

// A method that takes part in an event, with the method that it overrides.
export interface SeamMethod {
  class: string;
  seam: string;
  module: string;
  line: number | null;
  source: string;
  reason: string;
  is_custom?: boolean;
  is_emitter?: boolean;
  emits_at?: number; // the line of the source, from 0, that emits the event
  base?: { class: string; source: string } | null;
}

// The method that decides a kind of event, and the others that take part.
export interface Seam extends SeamMethod {
  methods?: SeamMethod[];
}

export interface AskedSubject {
  kind: string;
  id: number | string;
  about?: string;
}

// An event of an answer's chain.
export interface AnswerLink {
  event_number: number | null;
  moment: number;
  sentence: string;
  change?: number;
  side?: number;
  seam?: string;
  reason?: string;
  place?: string; // file, line and version of the method, in the engine that was recorded
}

// The answer to a question that begins with why.
export interface Answer {
  question: string;
  answer: string;
  links?: AnswerLink[];
  names?: string; // the engine's own ids of the requests
}

// The fields that stay the same while events are added.
export interface Header {
  lab?: string;
  title?: string;
  kinds: KindNames[];
  is_live?: boolean;
  is_recorded?: boolean;
  first?: number;
  first_step?: number;
  generation?: number;
  gap_before?: string | null;
  gap_after?: string | null;
  code?: Record<string, Seam>;
  answers?: { moment: number; subject: AskedSubject; answer: Answer }[];
}

// A question that the next step answers; prediction: a number, or "group:hex" for a hash.
export interface Asked {
  text: string;
  kind: "block" | "request" | "hash" | "number";
  prediction: number | string | null;
  verdict: string;
  is_right: boolean | null;
  is_open: boolean;
  reason?: string;
  said?: Mark[];
  truth?: Mark[];
  hint?: string;
  offers?: string[];
}

// What is marked in the views.
type Mark = [kind: "block" | "request" | "hash", id: number | string];

// A request's options besides a prompt, where the engine takes them.
export type RequestOption = "n" | "beams" | "priority";

export interface Status {
  title: string;
  running: boolean;
  phase: Phase | null;
  stopped?: string | null;
  asked?: Asked | null;
  request_options?: RequestOption[]; // exported pages of earlier releases lack it
  is_live?: boolean;
  note?: string | null;
  listener_failures?: string[];
}

// The content of a run of placeholder tokens.
export type Image = [position: number, length: number, identifier: string];

export type RequestStatus = "waiting" | "running" | "preempted" | "finished";

export type CaptionRow = [at: number, sentence: Sentence, phase: Phase | null];

// Captions of stretches of events.
export interface WordsPayload {
  captioned?: [start: number, end: number][] | null;
  captions?: CaptionRow[];
  opening?: [moment: number, sentence: Sentence] | null;
}

export interface CaptionsPayload extends WordsPayload {
  start: number;
  end: number;
}

interface Stretch {
  start: number;
  events: AnyRow[];
  texts?: [token: number, text: string][];
  names?: [request: number, engineId: string][];
  seconds?: [step: number, seconds: number][];
  corrections?: Correction[]; // between two steps
}

// A state that the events before it do not lead to: an engine says of itself that it is in it.
export type Correction = [moment: number, keyframe: WireKeyframe];

// A recording from some moment on: all that a new view needs.
export interface FullPayload extends WordsPayload, Partial<Stretch> {
  header: Header;
  keyframe?: WireKeyframe | null;
  tier?: [group: number, hash: string][];
  earlier?: [event: number, row: AnyRow][];
  status?: Status;
  selection?: Selection | null;
  shown?: number | null;
  num_shows?: number;
  num_selects?: number;
}

// Events that follow those that a view has.
export interface MorePayload extends Stretch {
  first?: number;
  captioned?: number | null;
  captions?: CaptionRow[];
}

// Events before those that a view has.
export interface OlderPayload extends Stretch {
  end: number;
  keyframe: WireKeyframe | null;
  tier?: [group: number, hash: string][];
}

// A caption of a comparison: the moments (left, right) at its end, and its words.
export type PairRow = [
  ends: [left: number, right: number],
  sentence: Sentence,
  phase: Phase | null,
  differs: number,
  left: Sentence | null,
  right: Sentence | null,
  stop: number | null,
  step: number | null,
];

// The captions of a comparison from one on, its guide, and where the sides first differ.
export interface ComparePayload {
  from: number;
  first: number;
  starts: [number, number];
  generations: [number, number];
  captions: PairRow[];
  opening: [Sentence, Sentence];
  first_difference: number | null;
  why_different: Answer | null;
  guide: string[];
  about_slots?: boolean; // earlier pages lack it
  questions: (string | null)[];
  follow_up: string | null;
  title: string;
  names: [string, string];
  roles?: [string, string];
  is_running?: boolean;
  is_live?: boolean;
  is_followed?: boolean;
  captioned?: number | null;
}

// A number of a workload that a slider changes, from 1 to `most`.
export interface VariedFigure {
  name: string;
  label: string;
  value: number;
  most: number;
}

// A run's outcome; wrong: the rules that it broke, and its error.
export interface Outcome {
  name: string;
  figures: Record<"peak" | "used" | "lost" | "computed" | "found" | "preemptions" | "steps", number>;
  wrong: string;
}

// A workload that can be run again, and its newest run.
export interface Varied {
  figures: VariedFigure[];
  outcome: Outcome[];
  note: string;
}

// The envelope of a message; its document travels beside it.
export interface WireContent {
  type: string;
  side?: number;
  view?: string | null;
  id?: string | number;
  error?: string | null;
  from?: string;
  status?: Status;
  generation?: number;
  end?: number;
  selection?: Selection | null;
  moment?: number | null;
  num_shows?: number; // how often Python has set the shown moment, this time included
  num_selects?: number; // the same of the selection
  position?: number | null;
  message?: string;
  action?: string;
  varied?: Varied | null;
}

// The reader's selection; for an event in a comparison, with its side.
export interface Selection {
  kind: "block" | "request" | "hash" | "node" | "event";
  id: number | string;
  side?: number;
}
