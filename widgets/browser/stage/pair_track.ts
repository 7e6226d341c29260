// Where one can stand on two recordings at once: a position is a number of beats, each with a moment on either side.

import { lastBefore } from "../model/steps.ts";

const ENDS = 0,
  SENTENCE = 1,
  PHASE = 2,
  DIFFERS = 3,
  LEFT = 4,
  RIGHT = 5,
  STOP = 6,
  STEP = 7;

export class PairTrack {
  constructor(sides) {
    Object.assign(this, {
      sides,
      rows: [],
      base: 0,
      starts: [0, 0],
      spans: [],
      parting: null,
      parted: null,
      guide: [],
      questions: [],
      names: ["", ""],
      roles: ["", ""],
      later: null,
      title: "",
      resting: ["", ""],
    });
  }

  // Beats from Python, from a number on; false when some between are missing.
  hear(payload) {
    const isWhole = payload.from === payload.first;
    if (!isWhole && (payload.from < this.base || payload.from > this.base + this.rows.length)) return false;
    if (isWhole) this.rows = payload.beats;
    else {
      this.rows.length = payload.from - this.base;
      if (payload.first > this.base) this.rows.splice(0, payload.first - this.base);
      this.rows.push(...payload.beats);
    }
    const { first, starts, parting, parted, guide, questions, names, roles = ["", ""], later, title, rest } = payload;
    Object.assign(this, {
      base: first,
      starts,
      parting,
      parted,
      guide,
      questions,
      names,
      roles,
      later,
      title,
      resting: rest,
    });
    this.spans = [];
    this.rows.forEach((row, i) => row[STEP] !== null && this.spans.push({ step: row[STEP], start: first + i }));
    return true;
  }

  get lastBeat() {
    return this.base + this.rows.length;
  }

  // The oldest position whose events are here on both sides.
  get first() {
    const starts = this.sides.map(({ recording }) => recording?.start ?? 0);
    if (starts.every((start, side) => start <= this.starts[side])) return this.base;
    return Math.max(...starts.map((start, side) => this.positionAt(side, start)));
  }

  // Events have come on both sides that no beat tells of.
  get isShort() {
    const told = this.moments(this.lastBeat);
    return this.sides.every(({ recording }, side) => recording && told[side] < recording.end);
  }

  // The newest position whose events have come on both sides.
  get end() {
    let end = this.lastBeat;
    while (
      end > this.base &&
      this.row(end)[ENDS].some((moment, side) => moment > (this.sides[side].recording?.end ?? 0))
    )
      end -= 1;
    return end;
  }

  // The beat that leads to a position.
  row(position) {
    return this.rows[position - this.base - 1] || null;
  }

  moments(position) {
    const wanted = this.row(position)?.[ENDS] ?? this.starts;
    return wanted.map((moment, side) => {
      const { start, end } = this.sides[side].recording;
      return Math.max(start, Math.min(moment, end));
    });
  }

  // The position at which a side has reached a moment.
  positionAt(side, moment) {
    if (moment <= this.starts[side]) return this.base;
    let low = 0,
      high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle][ENDS][side] < moment) low = middle + 1;
      else high = middle;
    }
    return Math.min(this.base + low + 1, this.lastBeat);
  }

  // -- steps -------------------------------------------------------------------------------------------------------------

  // Where a step ends, and another begins, is the end of the first.
  span(position) {
    return this.spanOf(this.find(position));
  }

  find(position) {
    return lastBefore(this.spans, position, ({ start }) => start);
  }

  spanOf(index) {
    const start = index < 0 ? this.first : this.spans[index].start,
      end = index + 1 < this.spans.length ? this.spans[index + 1].start : this.end;
    return { index, step: index < 0 ? null : this.spans[index].step, start, end };
  }

  // Where a step is over on both sides, before anything that follows it; of a step that goes on, the newest position.
  endOf(index) {
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

  stops({ start, end }) {
    return Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i + 1);
  }

  next(position) {
    return Math.min(position + 1, this.end);
  }

  previous(position) {
    return Math.max(position - 1, this.first);
  }

  // -- words -------------------------------------------------------------------------------------------------------------

  told(position) {
    const row = this.row(position);
    if (!row)
      return {
        at: position,
        sentence: this.resting[0] === this.resting[1] ? this.resting[0] : "",
        phase: null,
        differs: false,
        left: null,
        right: null,
        stop: null,
      };
    const [left, right] = this.sides.map(
      ({ recording }, side) =>
        (text) =>
          recording.lettered(text, row[ENDS][side]),
    );
    return {
      at: position,
      sentence: left(row[SENTENCE]),
      phase: row[PHASE],
      differs: row[DIFFERS],
      left: left(row[LEFT]),
      right: right(row[RIGHT]),
      stop: row[STOP],
    };
  }

  // The position just after the beat at which the two part; null while they do not.
  get parts() {
    return this.parting === null ? null : this.parting + 1;
  }

  // -- the guide -----------------------------------------------------------------------------------------------------------

  // Milliseconds that a play rests here, so that the guide's sentence can be read.
  reading(position) {
    return this.isGuided(position) ? 1200 + 30 * this.guide[this.row(position)[STOP]].length : 0;
  }

  isGuided(position) {
    return (this.row(position)?.[STOP] ?? null) !== null;
  }

  // The guided stop reached last, counted from 0; -1 before the first.
  guideAt(position) {
    for (let p = Math.min(position, this.lastBeat); p > this.base; p--)
      if (this.row(p)[STOP] !== null) return this.row(p)[STOP];
    return -1;
  }

  // Positions of the guided stops that were reached: [[stop, position]].
  get guided() {
    return this.rows.flatMap((row, i) => (row[STOP] === null ? [] : [[row[STOP], this.base + i + 1]]));
  }

  nextStop(position) {
    return this.guided.find(([, at]) => at > position)?.[1] ?? null;
  }

  previousStop(position) {
    return this.guided.findLast(([, at]) => at < position)?.[1] ?? null;
  }
}
