// The positions on two recordings at once: a position is a number of captions, each with a moment on either side.

import { alarmsAt } from "../model/alarms.ts";
import { lastBefore } from "../model/arrays.ts";
import type { Phase } from "../model/events.ts";
import type { Answer, ComparePayload, PairRow } from "../model/payloads.ts";
import type { Sentence } from "../model/sentence.ts";
import { textOf } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";
import type { Span } from "./track.ts";
import { kindsBetween } from "./track.ts";

const ENDS = 0,
  SENTENCE = 1,
  PHASE = 2,
  DIFFERS = 3,
  LEFT = 4,
  RIGHT = 5,
  STOP = 6,
  STEP = 7;

// The caption of a position; of one at which the sides differ, one for either.
export interface PairCaption {
  at: number;
  sentence: Sentence;
  phase: Phase | null;
  differs?: boolean;
  left?: Sentence | null;
  right?: Sentence | null;
  stop?: number | null;
}

export class PairTrack {
  rows: PairRow[] = [];
  base = 0; // the number of the caption before the first row
  starts: [number, number] = [0, 0]; // the moments (left, right) at `base`
  generations: [number, number] = [0, 0]; // of the recordings that the captions are about
  spans: { step: number; start: number }[] = [];
  firstDifference: number | null = null; // the position before the first caption that differs
  whyDifferent: Answer | null = null;
  guide: string[] = []; // sentences by guided stop
  isAboutSlots = false;
  questions: (string | null)[] = []; // by guided stop
  names: [string, string] = ["", ""];
  roles: [string, string] = ["", ""];
  followUp: string | null = null; // the label of what both engines can do next
  title = "";
  openings: [Sentence, Sentence] = [[], []]; // each side's caption before the first row
  readonly captions = null; // captions are rows here
  opening: [moment: number, sentence: Sentence] | null = null;

  constructor(readonly sides: Side[]) {}

  // Adds captions from Python, from a number on; returns false when some before them are missing.
  hear(payload: ComparePayload) {
    const isComplete = payload.from === payload.first;
    if (!isComplete && (payload.from < this.base || payload.from > this.base + this.rows.length)) return false;
    if (isComplete) this.rows = payload.captions;
    else {
      this.rows.length = payload.from - this.base;
      if (payload.first > this.base) this.rows.splice(0, payload.first - this.base);
      this.rows.push(...payload.captions);
    }
    const { first, starts, generations, guide, questions, names, roles = ["", ""], title } = payload;
    this.base = first;
    this.starts = starts;
    this.generations = generations;
    this.firstDifference = payload.first_difference;
    this.whyDifferent = payload.why_different;
    this.guide = guide;
    this.isAboutSlots = payload.about_slots ?? false;
    this.questions = questions;
    this.names = names;
    this.roles = roles;
    this.followUp = payload.follow_up;
    this.title = title;
    this.openings = payload.opening;
    this.spans = [];
    this.rows.forEach((row, i) => {
      const step = row[STEP];
      if (step !== null) this.spans.push({ step, start: first + i });
    });
    return true;
  }

  get lastCaption() {
    return this.base + this.rows.length;
  }

  // The oldest position whose events are here on both sides.
  get first() {
    const starts = this.sides.map(({ recording }) => recording.start);
    if (starts.every((start, side) => start <= this.starts[side])) return this.base;
    return Math.max(...starts.map((start, side) => this.positionAt(side, start)));
  }

  // False for captions about recordings that a rewind or a reset has ended, or about new ones that are still to come.
  get isCurrent() {
    return this.sides.every(({ recording }, side) => recording.header.generation === this.generations[side]);
  }

  // Events have come on both sides that no caption is about.
  get isShort() {
    const reached = this.moments(this.lastCaption);
    return this.sides.every(({ recording }, side) => reached[side] < recording.end);
  }

  // The newest position whose events have come on both sides.
  get end() {
    let end = this.lastCaption;
    while (end > this.base && this.row(end)?.[ENDS].some((moment, side) => moment > this.sides[side].recording.end))
      end -= 1;
    return end;
  }

  // The caption that leads to a position.
  row(position: number): PairRow | null {
    return this.rows[position - this.base - 1] || null;
  }

  moments(position: number): number[] {
    const wanted = this.row(position)?.[ENDS] ?? this.starts;
    return wanted.map((moment, side) => {
      const { start, end } = this.sides[side].recording;
      return Math.max(start, Math.min(moment, end));
    });
  }

  // The position at which a side has reached a moment.
  positionAt(side: number, moment: number) {
    if (moment <= this.starts[side]) return this.base;
    let low = 0,
      high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle][ENDS][side] < moment) low = middle + 1;
      else high = middle;
    }
    return Math.min(this.base + low + 1, this.lastCaption);
  }

  // -- steps

  // Where a step ends, and another begins, is the end of the first.
  span(position: number) {
    return this.spanOf(this.find(position));
  }

  find(position: number) {
    return lastBefore(this.spans, position, ({ start }) => start);
  }

  spanOf(index: number): Span {
    const start = index < 0 ? this.first : this.spans[index].start,
      end = index + 1 < this.spans.length ? this.spans[index + 1].start : this.end;
    return { index, step: index < 0 ? null : this.spans[index].step, start, end };
  }

  // Where a step is over on both sides, before anything that follows it; of a step that goes on, the newest position.
  endOf(index: number) {
    const { start, end } = this.spanOf(index);
    if (index < 0) return end;
    const ends = this.moments(end).map((moment, side) =>
      this.positionAt(side, this.sides[side].recording.stepAt(moment)?.end ?? moment),
    );
    return Math.max(start + 1, Math.min(end, Math.max(...ends)));
  }

  get numSpans() {
    return this.spans.length;
  }

  stops({ start, end }: { start: number; end: number }) {
    return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i + 1);
  }

  next(position: number) {
    return Math.min(position + 1, this.end);
  }

  previous(position: number) {
    return Math.max(position - 1, this.first);
  }

  // -- words

  caption(position: number): PairCaption {
    const row = this.row(position);
    if (!row)
      return {
        at: position,
        sentence: textOf(this.openings[0]) === textOf(this.openings[1]) ? this.openings[0] : [],
        phase: null,
        differs: false,
        left: null,
        right: null,
        stop: null,
      };
    const [left, right] = this.sides.map(
      ({ recording }, side) =>
        (sentence: Sentence | null) =>
          sentence && recording.numbered(sentence, row[ENDS][side]),
    );
    return {
      at: position,
      sentence: left(row[SENTENCE]) ?? [],
      phase: row[PHASE],
      differs: Boolean(row[DIFFERS]),
      left: left(row[LEFT]),
      right: right(row[RIGHT]),
      stop: row[STOP],
    };
  }

  // The position just after the first caption that differs; null without one.
  get differsAt() {
    return this.firstDifference === null ? null : this.firstDifference + 1;
  }

  // The position just after the first caption, on either side, about a broken rule; null without one.
  get violatedAt() {
    const found = this.sides.flatMap(({ recording }, side) =>
      alarmsAt(recording, recording.end).violations.map(({ event }) => this.positionAt(side, event + 1)),
    );
    return found.length ? Math.min(...found) : null;
  }

  // -- the guide

  // The text at a position, including the guide's sentence.
  lettersAt(position: number) {
    const { sentence, left, right, stop } = this.caption(position),
      said = [sentence, left ?? [], right ?? []].map(textOf);
    return [...said, this.guide[stop ?? -1] ?? ""].join("").length;
  }

  // No two guided stops are alike.
  kindAt(position: number) {
    const stop = this.row(position)?.[STOP] ?? null,
      before = this.moments(position - 1);
    if (stop !== null) return `stop ${stop}`;
    return this.moments(position)
      .map((moment, side) => kindsBetween(this.sides[side].recording, before[side], moment))
      .join(" beside ");
  }

  isGuided(position: number) {
    return (this.row(position)?.[STOP] ?? null) !== null;
  }

  // The guided stop reached last, counted from 0; -1 before the first.
  guideAt(position: number) {
    for (let p = Math.min(position, this.lastCaption); p > this.base; p--) {
      const stop = this.row(p)?.[STOP] ?? null;
      if (stop !== null) return stop;
    }
    return -1;
  }

  // Positions of the guided stops that were reached: [[stop, position]].
  get guided() {
    const found: [stop: number, position: number][] = [];
    this.rows.forEach((row, i) => {
      const stop = row[STOP];
      if (stop !== null) found.push([stop, this.base + i + 1]);
    });
    return found;
  }

  nextStop(position: number) {
    return this.guided.find(([, at]) => at > position)?.[1] ?? null;
  }

  previousStop(position: number) {
    return this.guided.findLast(([, at]) => at < position)?.[1] ?? null;
  }

  // A position in words.
  nameOf(position: number) {
    return `caption ${position - this.base}`;
  }
}
