// Plays a stretch of the track stop by stop while the view can be watched; moving by hand ends the play.

import type { Stage } from "./stage.ts";

const LETTER_MS = 60; // to read a letter of a sentence
const KNOWN_MS = 20; // of one like it that was shown before: only its names are new
const LEAST_MS = 1200; // at a moment
const MOST_MS = 60_000; // in a step
const USUAL_MS = 2000; // at a moment, on average
export const SPEEDS = [0.25, 0.5, 1, 2];

// idle:    nothing is to be played
// playing: the stretch is played
// held:    the stretch waits until the view can be watched
export type PlayState = "idle" | "playing" | "held";
export type PlayEvent = "start" | "hold" | "stop";

export const PLAY_STATES: Record<PlayState, Partial<Record<PlayEvent, PlayState>>> = {
  idle: { start: "playing", hold: "held" },
  playing: { hold: "held", stop: "idle" },
  held: { start: "playing", stop: "idle" },
};

export class Player {
  state: PlayState = "idle";
  timer = 0;
  speed = 1;
  target: number | null = null; // the end of the stretch; null while idle
  onEnd: (() => void) | null = null;
  due = 0; // when the next stop is to be shown
  paced?: { start: number; end: number; count: number };
  told = new Set<string>(); // the kinds of moments that were played

  constructor(readonly stage: Stage) {}

  get isPlaying() {
    return this.state === "playing";
  }

  get isHeld() {
    return this.state === "held";
  }

  happened(event: PlayEvent) {
    this.state = PLAY_STATES[this.state][event] ?? this.state;
  }

  // Plays from a position to another one; a play under way towards it goes on farther. onEnd: when it has come there.
  play(from: number, to: number, onEnd: (() => void) | null = null) {
    if (this.isPlaying && this.target === from) {
      this.target = to;
      return;
    }
    this.stop();
    if (from >= to) return;
    this.target = to;
    this.onEnd = onEnd;
    if (this.stage.visibility.isEnough) return this.start(from);
    this.happened("hold");
    this.stage.go(from, false);
  }

  start(from: number) {
    this.happened("start");
    this.stage.go(from, false);
    this.due = performance.now();
    this.tick();
  }

  resume() {
    if (this.isHeld && this.stage.visibility.isEnough) this.start(this.stage.position);
  }

  // The next stop, and those for which there was no time.
  tick() {
    const { target } = this;
    if (target === null) return;
    if (!this.stage.visibility.isEnough) return this.hold();
    const now = performance.now();
    let position = this.stage.position,
      next = position;
    while (this.due <= now && next < target) {
      position = next;
      next = Math.min(target, this.stage.track.next(position));
      this.due += this.pace(next);
      this.told.add(this.stage.track.kindAt(next));
    }
    const isLast = next >= target;
    if (isLast) this.happened("stop"); // what is shown last is no longer played
    if (position !== this.stage.position) this.stage.go(position, false);
    if (next !== this.stage.position) this.stage.go(next, true);
    if (isLast) this.finish();
    else if (this.isPlaying) this.timer = setTimeout(() => this.tick(), this.due - performance.now());
  }

  // Milliseconds at a position: as long as its sentence takes to read; less in a step of very many moments.
  pace(position: number) {
    const { track } = this.stage,
      span = track.span(position);
    let { paced } = this;
    if (paced?.start !== span.start || paced.end !== span.end)
      this.paced = paced = { start: span.start, end: span.end, count: track.stops(span).length };
    const perLetter = this.told.has(track.kindAt(position)) ? KNOWN_MS : LETTER_MS,
      reading = Math.max(LEAST_MS, perLetter * track.lettersAt(position));
    return (reading * Math.min(1, MOST_MS / (USUAL_MS * Math.max(1, paced.count)))) / this.speed;
  }

  finish() {
    const { onEnd } = this;
    this.stop();
    onEnd?.();
  }

  hold() {
    const { target } = this;
    clearTimeout(this.timer);
    if (target !== null && this.stage.position < target) this.happened("hold");
    else this.stop();
    this.stage.changed();
  }

  stop() {
    clearTimeout(this.timer);
    this.happened("stop");
    this.target = this.onEnd = null;
  }
}
