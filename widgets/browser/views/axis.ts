// The axis of moments: where each one is, and the zoom. It follows the run until the reader zooms or pans.
const LEAST = 48;
const CLOSEST = 12;

export class Axis {
  start: number;
  end: number;
  from: number;
  to = LEAST;
  left = 0;
  width = 1;
  isFollowing = true;
  isLive!: boolean;

  constructor() {
    this.start = this.end = this.from = 0;
  }

  // A run that goes on gets room ahead, half as much again each time: the picture is not squeezed at every event.
  fit(start: number, end: number, isLive: boolean) {
    const before = `${this.from}:${this.to}`;
    this.start = start;
    this.end = end;
    this.isLive = isLive;
    if (this.isFollowing) {
      let room = LEAST;
      while (room < end - start) room = Math.ceil(room * 1.5);
      this.from = start;
      this.to = isLive ? start + room : Math.max(start + CLOSEST, end);
    }
    return before !== `${this.from}:${this.to}`;
  }

  get perEvent() {
    return this.width / (this.to - this.from);
  }

  x(moment: number) {
    return this.left + (moment - this.from) * this.perEvent;
  }

  momentAt(x: number) {
    return this.from + (x - this.left) / this.perEvent;
  }

  // The moment that a click means: the event's cell under it has just happened.
  clicked(x: number) {
    return Math.min(this.end, Math.max(this.start, Math.ceil(this.momentAt(x))));
  }

  zoom(factor: number, center: number) {
    const full = Math.max(CLOSEST, this.limit - this.start),
      span = Math.min(full, Math.max(CLOSEST, (this.to - this.from) / factor));
    const share = (center - this.from) / (this.to - this.from);
    this.show(center - share * span, span);
    if (span >= full) this.all();
  }

  get limit() {
    return Math.max(this.end, this.isFollowing ? this.to : this.end, this.start + CLOSEST);
  }

  pan(moments: number) {
    this.show(this.from + moments, this.to - this.from);
  }

  show(from: number, span: number) {
    this.isFollowing = false;
    this.from = Math.max(this.start, Math.min(from, Math.max(this.start, this.end - span * 0.5)));
    this.to = this.from + span;
  }

  // Bring a moment into sight, if it is not.
  reach(moment: number) {
    const span = this.to - this.from;
    if (this.isFollowing || (moment >= this.from && moment <= this.to)) return false;
    this.show(moment - span / 2, span);
    return true;
  }

  all() {
    this.isFollowing = true;
    this.fit(this.start, this.end, this.isLive);
  }
}
