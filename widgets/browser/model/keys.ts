// Keys of the prefix map and contents as small numbers: a hash of 32 bytes is compared once, when an event names it.

import { grown } from "./arrays.ts";

export class KeyIndex {
  ids: Map<string, number>[] = []; // per group: hex -> number
  hexes: (string | null)[] = [];
  groups: number[] = [];
  spare: number[] = []; // numbers to be used again
  resting: number[] = []; // numbers that a reader may still hold

  get size() {
    return this.hexes.length;
  }

  // The number of a key, a new one if it is new.
  of(group: number, hex: string) {
    const known = (this.ids[group] ??= new Map()),
      id = known.get(hex);
    return id === undefined ? this.add(known, group, hex) : id;
  }

  // -1 for one that was never seen.
  known(group: number | string, hex: string) {
    return this.ids[Number(group)]?.get(hex) ?? -1;
  }

  // The number of a key as text, "group:hex"; -1 for one that was never seen.
  find(text: string) {
    const colon = text.indexOf(":");
    return this.known(text.slice(0, colon), text.slice(colon + 1));
  }

  text(id: number) {
    return `${this.groups[id]}:${this.hexes[id]}`;
  }

  // Forget the keys for which `isKept[id]` is 0; returns their numbers, which are given to others from the next time
  // on.
  retain(isKept: Uint8Array) {
    const forgotten: number[] = [];
    for (let id = 0; id < this.size; id++) {
      const hex = this.hexes[id];
      if (isKept[id] || hex === null) continue;
      this.ids[this.groups[id]].delete(hex);
      this.hexes[id] = null;
      forgotten.push(id);
    }
    this.spare.push(...this.resting);
    this.resting = forgotten;
    return forgotten;
  }

  add(known: Map<string, number>, group: number, hex: string) {
    const id = this.spare.pop() ?? this.size;
    known.set(hex, id);
    this.hexes[id] = hex;
    this.groups[id] = group;
    return id;
  }
}

// Which content comes before which: the chain that a hash ends. Reads like a Map from "group:hex" to "group:hex" or
// null.

const UNKNOWN = -2,
  ROOT = -1;

export class Parents {
  keyIndex: KeyIndex;
  of = new Int32Array(64).fill(UNKNOWN);

  constructor(keys: KeyIndex) {
    this.keyIndex = keys;
  }

  // undefined where it is not known; null for a first block's.
  get(text: string) {
    const key = this.keyIndex.find(text),
      parent = key >= 0 && key < this.of.length ? this.of[key] : UNKNOWN;
    return parent === UNKNOWN ? undefined : parent === ROOT ? null : this.keyIndex.text(parent);
  }

  has(text: string) {
    return this.get(text) !== undefined;
  }

  forget(keys: number[]) {
    for (const key of keys) if (key < this.of.length) this.of[key] = UNKNOWN;
  }

  // Marks the keys that lead to those marked.
  mark(isKept: Uint8Array) {
    for (let key = 0; key < isKept.length; key++)
      if (isKept[key]) for (let at = this.of[key] ?? ROOT; at >= 0 && !isKept[at]; at = this.of[at]) isKept[at] = 1;
  }

  note(key: number, parent: number) {
    this.of = grown(this.of, key + 1, UNKNOWN);
    if (parent !== UNKNOWN) this.of[key] = parent;
  }
}

// Contents by number, in order of first appearance, kept for good: equal content, equal letter and hue at every moment.
// A block's content is known by the tokens before and in it as soon as its KV is written, and by its hash once that is
// registered; the first hash registered for a prefix takes over its number. Another hash of the same prefix (a salt) is
// another content.
export class ContentIndex {
  prefixes: Map<number, number>[] = []; // per group: hash of a prefix -> number
  keys = new Int32Array(64).fill(-1); // number of a key -> number of its content
  isHashed = new Uint8Array(64); // by content
  size = 0;
  settled = Infinity; // see `reconcile`

  ofPrefix(group: number, hash: number) {
    const known = (this.prefixes[group] ??= new Map());
    let number = known.get(hash);
    if (number === undefined) known.set(hash, (number = this.size++));
    return number;
  }

  // -1 for a key that has no number yet.
  known(key: number) {
    return key >= 0 && key < this.keys.length ? this.keys[key] : -1;
  }

  // The number of a key; a new key takes its prefix's number, if no other key has it.
  ofKey(key: number, group = -1, hash = 0) {
    const known = this.known(key);
    if (known >= 0) return this.reconcile(known, group, hash);
    let number = group < 0 ? -1 : this.ofPrefix(group, hash);
    if (number < 0 || this.isHashed[number]) number = this.size++;
    this.assign(key, number);
    return number;
  }

  // Older events tell the prefixes of keys that were numbered without: numbers from `settled` on give way to those
  // known.
  reconcile(number: number, group: number, hash: number) {
    if (this.settled === Infinity || group < 0) return number;
    const prefixes = (this.prefixes[group] ??= new Map()),
      other = prefixes.get(hash);
    if (other === undefined || (other >= this.settled && !this.isHashed[other])) prefixes.set(hash, number);
    return number;
  }

  // A block known by this key was found for this prefix: they are one content.
  link(group: number, hash: number, key: number) {
    const number = this.ofKey(key),
      known = (this.prefixes[group] ??= new Map());
    if (!known.has(hash)) known.set(hash, number);
  }

  // Forget some keys, and the prefixes numbered below `size` that no number of `isKept` stands for.
  forget(keys: number[], size: number, isKept: Set<number>) {
    for (const key of keys) if (key < this.keys.length) this.keys[key] = -1;
    for (const key of this.keys) if (key >= 0) isKept.add(key);
    for (const known of this.prefixes)
      if (known) for (const [hash, number] of known) if (number < size && !isKept.has(number)) known.delete(hash);
  }

  assign(key: number, number: number) {
    this.keys = grown(this.keys, key + 1, -1);
    this.isHashed = grown(this.isHashed, Math.max(number + 1, this.size), 0);
    this.keys[key] = number;
    this.isHashed[number] = 1;
  }
}
