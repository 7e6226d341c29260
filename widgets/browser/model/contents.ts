// Contents by number, in order of first appearance, kept for good: equal content, equal letter and hue, at every
// moment.

import { grown } from "./arrays.ts";

// A block's content is known by the tokens before and in it as soon as its KV is written, and by its hash once that is
// registered; the first hash registered for a prefix takes over its number. Another hash of the same prefix (a salt) is
// another content.
export class ContentIndex {
  prefixes: Map<number, number>[] = [];
  keys = new Int32Array(64).fill(-1);
  isHashed = new Uint8Array(64);
  size = 0;
  settled = Infinity;

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
