// What the external tier is known to hold: it is only ever told of more, so a scene needs to know but how much.

export class TierLog {
  constructor(keys) {
    this.keys = keys;
    this.order = []; // key ids, as they came to be known
    this.moments = [];
    this.position = new Map();
  }

  // Its place in the log; known from `moment` on if it is new.
  note(key, moment) {
    let position = this.position.get(key);
    if (position === undefined) {
      position = this.order.push(key) - 1;
      this.moments.push(moment);
      this.position.set(key, position);
    }
    return position;
  }

  // How many were known at a moment.
  countAt(moment) {
    let low = 0,
      high = this.moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.moments[middle] <= moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

// Reads like a Map from "group:hex" to the moment since which it is known.
export class Tier {
  constructor(log, size = 0) {
    this.log = log;
    this.size = size;
  }

  has(text) {
    return (this.log.position.get(this.log.keys.find(text)) ?? Infinity) < this.size;
  }

  get(text) {
    return this.has(text) ? this.log.moments[this.log.position.get(this.log.keys.find(text))] : undefined;
  }

  *entries() {
    for (let i = 0; i < this.size; i++) yield [this.log.keys.text(this.log.order[i]), this.log.moments[i]];
  }

  *keys() {
    for (const [text] of this.entries()) yield text;
  }

  // The newest n, newest first.
  newest(n) {
    const found = [];
    for (let i = this.size - 1; i >= Math.max(0, this.size - n); i--) found.push(this.log.keys.text(this.log.order[i]));
    return found;
  }

  [Symbol.iterator]() {
    return this.entries();
  }
}
