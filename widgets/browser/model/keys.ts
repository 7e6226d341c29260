// Keys of the prefix map as small whole numbers: a hash of 32 bytes is compared once, when an event names it.

import { grown } from "./arrays.ts";

export class KeyIndex {
  ids: Map<string, number>[] = [];
  hexes: (string | null)[] = [];
  groups: number[] = [];
  spare: number[] = [];
  resting: number[] = [];

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
