// Plays a stretch of the track stop by stop while somebody can watch; whoever moves by hand ends the play.

const STOP_MS = 300;
const STEP_MS = 6000;
export const SPEEDS = [0.5, 1, 2];

export class Player {
  // go(position, isAnimated): stand there now. canAnimate: can somebody watch?
  constructor(stage, canAnimate, go) {
    Object.assign(this, {
      stage,
      canAnimate,
      go,
      timer: 0,
      speed: 1,
      target: null,
      onEnd: null,
      isPlaying: false,
      isHeld: false,
    });
  }

  // Plays from a position to another one; a play under way towards it goes on farther. onEnd: when it has come there.
  play(from, to, onEnd = null) {
    if (this.isPlaying && this.target === from) {
      this.target = to;
      return;
    }
    this.stop();
    if (from >= to) return;
    Object.assign(this, { target: to, onEnd });
    if (!this.canAnimate()) {
      this.isHeld = true;
      return this.go(from, false);
    }
    this.start(from);
  }

  start(from) {
    this.isPlaying = true;
    this.isHeld = false;
    this.go(from, false);
    this.due = performance.now();
    this.tick();
  }

  resume() {
    if (this.isHeld && this.canAnimate()) this.start(this.stage.position);
  }

  // The next stop, and those for which there was no time.
  tick() {
    if (!this.canAnimate()) return this.hold();
    const now = performance.now();
    let position = this.stage.position,
      next = position;
    while (this.due <= now && next < this.target) {
      position = next;
      next = Math.min(this.target, this.stage.track.next(position));
      this.due += this.pace(next);
    }
    const isLast = next >= this.target;
    if (isLast) this.isPlaying = false;
    if (position !== this.stage.position) this.go(position, false);
    if (next !== this.stage.position) this.go(next, true);
    if (isLast) this.finish();
    else if (this.isPlaying) this.timer = setTimeout(() => this.tick(), this.due - performance.now());
  }

  // A step takes six seconds at most, and the time to read what a guide says in it.
  pace(position) {
    const { track } = this.stage,
      span = track.span(position);
    if (this.paced?.start !== span.start || this.paced?.end !== span.end)
      this.paced = { start: span.start, end: span.end, count: track.stops(span).length };
    return (Math.min(STOP_MS, STEP_MS / Math.max(1, this.paced.count)) + (track.reading?.(position) ?? 0)) / this.speed;
  }

  finish() {
    const { onEnd } = this;
    this.stop();
    onEnd?.();
  }

  hold() {
    const { target, onEnd } = this;
    this.stop();
    Object.assign(this, { target, onEnd });
    this.isHeld = this.stage.position < target;
    this.stage.changed();
  }

  stop() {
    clearTimeout(this.timer);
    this.isPlaying = this.isHeld = false;
    this.target = this.onEnd = null;
  }
}
