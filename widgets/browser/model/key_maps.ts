// Maps by keys of the prefix cache that read like a Map from "group:hex": the prefix map, and the external tier.
import { countUpTo } from "./arrays.ts";
import type { KeyIndex } from "./keys.ts";
import { LinkedQueue } from "./queue.ts";

// A map put away: its keys in order, and the blocks of each.
export interface PackedMap {
  keys: Int32Array | number[];
  lists: (number[] | undefined)[];
}

// Inside it knows keys by number.
export class PrefixMap {
  keyIndex: KeyIndex;
  order = new LinkedQueue();
  lists: (number[] | undefined)[] = [];

  constructor(keys: KeyIndex) {
    this.keyIndex = keys;
  }

  get size() {
    return this.order.size;
  }

  get(text: string) {
    return this.at(this.keyIndex.find(text));
  }

  has(text: string) {
    return this.order.has(this.keyIndex.find(text));
  }

  *entries(): Generator<[string, number[]]> {
    for (const key of this.order) yield [this.keyIndex.text(key), this.lists[key] ?? []];
  }

  *keys() {
    for (const key of this.order) yield this.keyIndex.text(key);
  }

  *values() {
    for (const key of this.order) yield this.lists[key];
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  forEach(act: (ids: number[], text: string, map: PrefixMap) => void) {
    for (const [text, ids] of this) act(ids, text, this);
  }

  // -- by a key's number

  at(key: number) {
    return this.order.has(key) ? this.lists[key] : undefined;
  }

  put(key: number, ids: number[]) {
    this.lists[key] = ids;
    if (!this.order.has(key)) this.order.push(key);
  }

  drop(key: number) {
    this.order.remove(key);
    this.lists[key] = undefined;
  }

  holds(key: number, block: number) {
    return this.order.has(key) && Boolean(this.lists[key]?.includes(block));
  }

  packed(): { keys: Int32Array; lists: (number[] | undefined)[] } {
    const keys = this.order.packed(),
      lists = new Array(keys.length);
    for (let i = 0; i < keys.length; i++) lists[i] = this.lists[keys[i]];
    return { keys, lists };
  }

  load({ keys, lists }: PackedMap) {
    for (let key = this.order.head; key >= 0; key = this.order.after(key)) this.lists[key] = undefined;
    this.order.load(keys, this.keyIndex.size);
    for (let i = 0; i < keys.length; i++) this.lists[keys[i]] = lists[i];
  }
}

// The known content of the external tier. It only grows, so a scene stores only how much of it there was.
export class TierLog {
  keys: KeyIndex;
  order: number[] = []; // numbers of keys, as they came to be known
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
    return countUpTo(this.moments, moment);
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
