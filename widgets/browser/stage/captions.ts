// Captions by moment, and the stretches of events for which there are any.

import { lastBefore } from "../model/arrays.ts";
import type { Phase } from "../model/events.ts";
import type { CaptionRow } from "../model/payloads.ts";

export interface Caption {
  at: number;
  sentence: string;
  phase: Phase | null;
  isLettered?: boolean; // the contents that its sentence names have their letters
}

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
