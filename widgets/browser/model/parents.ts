// Which content comes before which: the chain that a hash ends. Reads like a Map from "group:hex" to "group:hex" or
// null.

import { grown } from "./contents.ts";
import type { KeyIndex } from "./keys.ts";

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
