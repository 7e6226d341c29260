// What the external tier is known to hold: it is only ever told of more, so a scene needs to know but how much.
import type { KeyIndex } from "./keys.ts";

export class TierLog {
  keys: KeyIndex;
  order: number[] = [];
  moments: number[] = [];
  position = new Map<number, number>();

  constructor(keys: KeyIndex) {
    this.keys = keys;
  }

  // Its place in the log; known from `moment` on if it is new.
  note(key: number, moment: number) {
    let position = this.position.get(key);
    if (position === undefined) {
      position = this.order.push(key) - 1;
      this.moments.push(moment);
      this.position.set(key, position);
    }
    return position;
  }

  // How many were known at a moment.
  countAt(moment: number) {
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
  log: TierLog;
  size: number;

  constructor(log: TierLog, size = 0) {
    this.log = log;
    this.size = size;
  }

  has(text: string) {
    return (this.log.position.get(this.log.keys.find(text)) ?? Infinity) < this.size;
  }

  get(text: string) {
    const position = this.log.position.get(this.log.keys.find(text));
    return position !== undefined && position < this.size ? this.log.moments[position] : undefined;
  }

  *entries(): Generator<[string, number]> {
    for (let i = 0; i < this.size; i++) yield [this.log.keys.text(this.log.order[i]), this.log.moments[i]];
  }

  *keys(): Generator<string> {
    for (const [text] of this.entries()) yield text;
  }

  // The newest n, newest first.
  newest(n: number) {
    const found = [];
    for (let i = this.size - 1; i >= Math.max(0, this.size - n); i--) found.push(this.log.keys.text(this.log.order[i]));
    return found;
  }

  [Symbol.iterator]() {
    return this.entries();
  }
}
