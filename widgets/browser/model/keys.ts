// Keys of the prefix map as small whole numbers: a hash of 32 bytes is compared once, when an event names it.

export class KeyIndex {
  constructor() {
    this.ids = []; // per group: hex -> id
    this.hexes = [];
    this.groups = [];
    this.spare = []; // numbers to give again
    this.resting = []; // and those that somebody may still hold
  }

  get size() {
    return this.hexes.length;
  }

  // The number of a key, a new one if it is new.
  of(group, hex) {
    const known = (this.ids[group] ??= new Map()),
      id = known.get(hex);
    return id === undefined ? this.add(known, group, hex) : id;
  }

  // -1 for one that was never seen.
  known(group, hex) {
    return this.ids[group]?.get(hex) ?? -1;
  }

  // The number of a key as text, "group:hex"; -1 for one that was never seen.
  find(text) {
    const colon = text.indexOf(":");
    return this.known(text.slice(0, colon), text.slice(colon + 1));
  }

  text(id) {
    return `${this.groups[id]}:${this.hexes[id]}`;
  }

  // Forget the keys for which `isKept[id]` is 0; returns their numbers, which are given to others from the next time on.
  retain(isKept) {
    const forgotten = [];
    for (let id = 0; id < this.size; id++) {
      if (isKept[id] || this.hexes[id] === null) continue;
      this.ids[this.groups[id]].delete(this.hexes[id]);
      this.hexes[id] = null;
      forgotten.push(id);
    }
    this.spare.push(...this.resting);
    this.resting = forgotten;
    return forgotten;
  }

  add(known, group, hex) {
    const id = this.spare.length ? this.spare.pop() : this.size;
    known.set(hex, id);
    this.hexes[id] = hex;
    this.groups[id] = group;
    return id;
  }
}
