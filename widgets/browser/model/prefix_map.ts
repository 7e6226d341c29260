// The prefix map: reads like a Map from "group:hex" to block ids, the one served first; inside it knows keys by number.
import type { KeyIndex } from "./keys.ts";
import { LinkedQueue } from "./queue.ts";

// A map put away: its keys in order, and the blocks of each.
export interface PackedMap {
  keys: Int32Array | number[];
  lists: (number[] | undefined)[];
}

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

  // -- by a key's number ------------------------------------------------------------------------------------------

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
