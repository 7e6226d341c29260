// The prefix map: reads like a Map from "group:hex" to block ids, the one served first; inside it knows keys by number.
import { LinkedQueue } from "./queue.ts";

export class PrefixMap {
  constructor(keys) {
    this.keyIndex = keys;
    this.order = new LinkedQueue();
    this.lists = [];
  }

  get size() {
    return this.order.size;
  }

  get(text) {
    return this.at(this.keyIndex.find(text));
  }

  has(text) {
    return this.order.has(this.keyIndex.find(text));
  }

  *entries() {
    for (const key of this.order) yield [this.keyIndex.text(key), this.lists[key]];
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

  forEach(act) {
    for (const [text, ids] of this) act(ids, text, this);
  }

  // -- by a key's number ------------------------------------------------------------------------------------------

  at(key) {
    return this.order.has(key) ? this.lists[key] : undefined;
  }

  put(key, ids) {
    this.lists[key] = ids;
    if (!this.order.has(key)) this.order.push(key);
  }

  drop(key) {
    this.order.remove(key);
    this.lists[key] = undefined;
  }

  holds(key, block) {
    return this.order.has(key) && this.lists[key].includes(block);
  }

  packed() {
    const keys = this.order.packed(),
      lists = new Array(keys.length);
    for (let i = 0; i < keys.length; i++) lists[i] = this.lists[keys[i]];
    return { keys, lists };
  }

  load({ keys, lists }) {
    for (let key = this.order.head; key >= 0; key = this.order.after(key)) this.lists[key] = undefined;
    this.order.load(keys, this.keyIndex.size);
    for (let i = 0; i < keys.length; i++) this.lists[keys[i]] = lists[i];
  }
}
