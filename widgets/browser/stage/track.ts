// The recording of one lab as a track: a position is a moment; the stops of a step are its captions, or its events.

import { lastBefore } from "../model/arrays.ts";
import type { Phase } from "../model/events.ts";
import type { Answer, CaptionRow } from "../model/payloads.ts";
import { openingWords, phrase } from "../model/phrases.ts";
import type { Recording } from "../model/recording.ts";
import type { Sentence } from "../model/sentence.ts";
import { textOf } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";

// A step with what follows it up to the next one. index: the number of the step among those recorded, -1 before the
// first.
export interface Span {
  index: number;
  step: number | null;
  start: number;
  end: number;
}

export class SoloTrack {
  captions = new Captions();
  opening: [moment: number, sentence: Sentence] | null = null; // said of the moment at which the lab came to rest
  readonly isAboutSlots = false;
  readonly guide: string[] = []; // one recording has no guide and no differences
  readonly whyDifferent: Answer | null = null;

  constructor(readonly side: Side) {}

  get first() {
    return this.side.recording.start;
  }

  get end() {
    return this.side.recording.end;
  }

  moments(position: number) {
    return [position];
  }

  // The step of a position with what follows it up to the next one: where a step ends, and another begins, is the end
  // of the first.
  span(position: number) {
    return this.spanOf(this.find(position));
  }

  find(position: number) {
    return lastBefore(this.side.recording.steps, position, ({ start }) => start);
  }

  spanOf(index: number): Span {
    const { steps, start, end } = this.side.recording;
    return {
      index,
      step: index < 0 ? null : steps[index].step,
      start: index < 0 ? start : steps[index].start,
      end: index + 1 < steps.length ? steps[index + 1].start : end,
    };
  }

  // The end of a step, before any later event; for an open step, the newest moment.
  endOf(index: number) {
    return (index < 0 ? null : this.side.recording.steps[index].end) ?? this.spanOf(index).end;
  }

  // A moment in words, by the event that led to it.
  nameOf(position: number) {
    const { index, step } = this.span(position);
    if (index < 0)
      return position >= this.endOf(index) && this.numSpans
        ? `before step ${this.side.recording.steps[0].step}`
        : `event ${position - 1}`;
    return position === this.endOf(index) && this.side.recording.steps[index].end !== null
      ? `the end of step ${step}`
      : `step ${step}, event ${position - 1}`;
  }

  get numSpans() {
    return this.side.recording.steps.length;
  }

  // The positions at which a play or an arrow key stops within a span, its start left out.
  stops({ start, end }: { start: number; end: number }) {
    if (this.captions.covers(start, end)) return this.captions.between(start, end).map(({ at }) => at);
    return Array.from({ length: end - start }, (_, i) => start + i + 1);
  }

  next(position: number) {
    if (position >= this.end) return this.end;
    const span = this.span(position + 1);
    return this.stops(span).find((stop) => stop > position) ?? span.end;
  }

  previous(position: number) {
    if (position <= this.first) return this.first;
    const span = this.span(position),
      before = this.stops(span).filter((stop) => stop < position);
    return before.at(-1) ?? span.start;
  }

  numbered(caption: Caption) {
    if (caption.isNumbered) return caption;
    caption.sentence = this.side.recording.numbered(caption.sentence, caption.at);
    caption.isNumbered = true;
    return caption;
  }

  caption(position: number): Caption {
    const known = this.captions.at(position);
    if (known) return this.numbered(known);
    const { scene, recording } = this.side;
    const sentence =
      position > recording.start ? phrase(recording, position - 1, (id) => this.side.text(id)) : openingWords(scene);
    return { at: position, sentence, phase: scene.phase };
  }

  // The text at a position, and its kind of moment: sentences of a kind are alike.
  lettersAt(position: number) {
    return textOf(this.caption(position).sentence).length;
  }

  kindAt(position: number) {
    return kindsBetween(this.side.recording, this.previous(position), position);
  }

  // The position that shows a moment.
  positionAt(_side: number, moment: number) {
    return moment;
  }
}

// The kinds of the events between two moments, each once. Computed tokens get no sentence.
export function kindsBetween(recording: Recording, start: number, end: number) {
  const kinds = new Set<string>();
  for (let event = start; event < end; event++) kinds.add(recording.kind(event));
  kinds.delete("TokensComputed");
  return [...kinds].join();
}

export interface Caption {
  at: number;
  sentence: Sentence;
  phase: Phase | null;
  isNumbered?: boolean; // the contents that its sentence mentions have their numbers
}

// Captions by moment, and the stretches of events for which there are any.
export class Captions {
  list: Caption[] = [];
  ranges: [start: number, end: number][] = [];

  clear() {
    this.list = [];
    this.ranges = [];
  }

  // The captions of all events between start and end replace those that were known.
  add(start: number, end: number, rows: CaptionRow[]) {
    const low = this.indexAfter(start),
      high = this.indexAfter(end);
    this.list.splice(low, high - low, ...rows.map(([at, sentence, phase]) => ({ at, sentence, phase })));
    this.ranges.push([start, end]);
    this.ranges.sort((a, b) => a[0] - b[0]);
    const merged: [number, number][] = [];
    for (const [from, to] of this.ranges) {
      const last = merged.at(-1);
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else merged.push([from, to]);
    }
    this.ranges = merged;
  }

  // The number of captions at or before a moment.
  indexAfter(moment: number) {
    return lastBefore(this.list, moment + 1, ({ at }) => at) + 1;
  }

  at(moment: number): Caption | null {
    const found = this.list[this.indexAfter(moment) - 1];
    return found?.at === moment ? found : null;
  }

  // True if there are captions for everything between two moments.
  covers(start: number, end: number) {
    return start === end || this.ranges.some(([low, high]) => low <= start && end <= high);
  }

  between(start: number, end: number) {
    return this.list.slice(this.indexAfter(start), this.indexAfter(end));
  }
}
