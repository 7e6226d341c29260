// Maps by keys of the prefix cache that read like a Map from "group:hex": the prefix map, and the external tier.
import { lastBefore } from "./arrays.ts";
import type { KeyIndex } from "./keys.ts";
import { LinkedQueue } from "./queue.ts";

// A packed map: its keys in order, and the blocks of each.
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

// A change of a content in the external tier.
interface TierEntry {
  key: number;
  moment: number; // from which on it holds
  pins: number | null; // transfers that keep it from being evicted; null: the entry is about its presence
  isHeld: boolean;
  size: number; // contents held after it
}

// What is known of the external tier, from the recording's beginning on. A scene stores only how much of it has
// happened.
export class TierLog {
  entries: TierEntry[] = [];
  presence = new Map<number, number[]>(); // places of a key's entries
  pinning = new Map<number, number[]>();
  doneTo = -1; // the moment up to which events have been noted; folding them again changes nothing

  constructor(readonly keys: KeyIndex) {}

  note(key: number, isHeld: boolean, moment: number) {
    if (this.isHeldAt(key, Infinity) !== isHeld)
      this.add({ key, moment, pins: null, isHeld, size: this.sizeAt(Infinity) + (isHeld ? 1 : -1) }, this.presence);
  }

  // A load shows that the tier had a content, unless that had left before the copy ran.
  noteLoaded(key: number, moment: number) {
    if (!this.presence.has(key)) this.note(key, true, moment);
  }

  notePins(key: number, pins: number, moment: number) {
    if (this.pinsAt(key, Infinity) !== pins)
      this.add({ key, moment, pins, isHeld: false, size: this.sizeAt(Infinity) }, this.pinning);
  }

  isHeldAt(key: number, length: number) {
    const at = lastPlace(this.presence.get(key), length);
    return at >= 0 && this.entries[at].isHeld;
  }

  pinsAt(key: number, length: number) {
    const at = lastPlace(this.pinning.get(key), length);
    return at < 0 ? 0 : (this.entries[at].pins ?? 0);
  }

  sizeAt(length: number) {
    const last = Math.min(length, this.entries.length) - 1;
    return last < 0 ? 0 : this.entries[last].size;
  }

  // How many entries hold at a moment.
  countAt(moment: number) {
    return lastBefore(this.entries, moment + 1, momentOf) + 1;
  }

  // Keeps, of the entries before a moment, those that still hold at it.
  forgetBefore(moment: number) {
    const length = this.countAt(moment),
      kept = this.entries.filter(({ key, pins, isHeld }, place) => {
        if (place >= length) return true;
        const places = (pins === null ? this.presence : this.pinning).get(key);
        return lastPlace(places, length) === place && (pins === null ? isHeld : pins > 0);
      });
    this.entries = [];
    this.presence.clear();
    this.pinning.clear();
    const { doneTo } = this;
    this.doneTo = -1;
    for (const { key, pins, isHeld, moment: from } of kept)
      if (pins === null) this.note(key, isHeld, from);
      else this.notePins(key, pins, from);
    this.doneTo = doneTo;
  }

  private add(entry: TierEntry, places: Map<number, number[]>) {
    if (entry.moment <= this.doneTo) return;
    const place = this.entries.push(entry) - 1,
      known = places.get(entry.key);
    if (known) known.push(place);
    else places.set(entry.key, [place]);
  }
}

function momentOf({ moment }: TierEntry) {
  return moment;
}

function lastPlace(places: number[] | undefined, length: number) {
  if (!places) return -1;
  if (places[places.length - 1] < length) return places[places.length - 1];
  const at = lastBefore(places, length, (place) => place);
  return at < 0 ? -1 : places[at];
}

// What the tier holds, by "group:hex".
export class Tier {
  constructor(
    readonly log: TierLog,
    public length = 0, // entries of the log that hold
  ) {}

  get size() {
    return this.log.sizeAt(this.length);
  }

  has(text: string) {
    return this.log.isHeldAt(this.log.keys.find(text), this.length);
  }

  pins(text: string) {
    return this.log.pinsAt(this.log.keys.find(text), this.length);
  }

  *keys(): Generator<string> {
    for (const text of this.newest(this.size).reverse()) yield text;
  }

  // The newest n, newest first.
  newest(n: number) {
    const found: string[] = [],
      { entries, presence, keys } = this.log;
    for (let place = this.length - 1; place >= 0 && found.length < n; place--) {
      const { key, pins, isHeld } = entries[place];
      if (pins === null && isHeld && lastPlace(presence.get(key), this.length) === place) found.push(keys.text(key));
    }
    return found;
  }
}
