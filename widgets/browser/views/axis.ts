// The axis of moments that timeline and bands share: where a moment lies, and how one zooms. Follows the run until asked to stay.
const LEAST = 48;
const CLOSEST = 12;

export class Axis {
  constructor() {
    this.start = this.end = this.from = 0;
    this.to = LEAST;
    this.left = 0;
    this.width = 1;
    this.isFollowing = true;
  }

  // A run that goes on gets room ahead, half as much again each time: the picture is not squeezed at every event.
  fit(start, end, isLive) {
    const before = this.from + ":" + this.to;
    Object.assign(this, { start, end, isLive });
    if (this.isFollowing) {
      let room = LEAST;
      while (room < end - start) room = Math.ceil(room * 1.5);
      this.from = start;
      this.to = isLive ? start + room : Math.max(start + CLOSEST, end);
    }
    return before !== this.from + ":" + this.to;
  }

  get perEvent() {
    return this.width / (this.to - this.from);
  }

  x(moment) {
    return this.left + (moment - this.from) * this.perEvent;
  }

  momentAt(x) {
    return this.from + (x - this.left) / this.perEvent;
  }

  // The moment that a click means: the event's cell under it has just happened.
  clicked(x) {
    return Math.min(this.end, Math.max(this.start, Math.ceil(this.momentAt(x))));
  }

  zoom(factor, around) {
    const whole = Math.max(CLOSEST, this.limit - this.start),
      span = Math.min(whole, Math.max(CLOSEST, (this.to - this.from) / factor));
    const share = (around - this.from) / (this.to - this.from);
    this.show(around - share * span, span);
    if (span >= whole) this.all();
  }

  get limit() {
    return Math.max(this.end, this.isFollowing ? this.to : this.end, this.start + CLOSEST);
  }

  pan(moments) {
    this.show(this.from + moments, this.to - this.from);
  }

  show(from, span) {
    this.isFollowing = false;
    this.from = Math.max(this.start, Math.min(from, Math.max(this.start, this.end - span * 0.5)));
    this.to = this.from + span;
  }

  // Bring a moment into sight, if it is not.
  reach(moment) {
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
