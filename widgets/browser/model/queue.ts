// A doubly linked queue of small integers over typed arrays: removal and insertion at either end are O(1).

// Slot 0 is the sentinel: its `next` is the first, its `prev` the last. Id i has slot i + 1. next < 0: not in the
// queue.
export class LinkedQueue {
  size = 0;
  next: Int32Array;
  prev: Int32Array;

  constructor(capacity = 0) {
    this.next = new Int32Array(capacity + 1).fill(-1);
    this.prev = new Int32Array(capacity + 1);
    this.next[0] = 0;
  }

  has(id: number) {
    return id >= 0 && id + 1 < this.next.length && this.next[id + 1] >= 0;
  }

  push(id: number) {
    this.insert(id, this.prev[0]);
  }

  unshift(id: number) {
    this.insert(id, 0);
  }

  // No effect for an id that is not queued.
  remove(id: number) {
    if (!this.has(id)) return;
    const slot = id + 1,
      { next, prev } = this;
    next[prev[slot]] = next[slot];
    prev[next[slot]] = prev[slot];
    next[slot] = -1;
    this.size--;
  }

  // The id at the head, or -1.
  get head() {
    return this.next[0] - 1;
  }

  // The id after this one, or -1.
  after(id: number) {
    return this.next[id + 1] - 1;
  }

  first(n: number = this.size) {
    const ids = [];
    for (let slot = this.next[0]; slot && ids.length < n; slot = this.next[slot]) ids.push(slot - 1);
    return ids;
  }

  *[Symbol.iterator]() {
    for (let slot = this.next[0]; slot; slot = this.next[slot]) yield slot - 1;
  }

  // All ids in order, in a typed array to keep.
  packed() {
    const ids = new Int32Array(this.size);
    for (let slot = this.next[0], i = 0; slot; slot = this.next[slot]) ids[i++] = slot - 1;
    return ids;
  }

  // The inverse of `packed`; the capacity grows as needed.
  load(ids: ArrayLike<number>, capacity: number = this.next.length - 1) {
    if (capacity + 1 > this.next.length) {
      this.next = new Int32Array(capacity + 1);
      this.prev = new Int32Array(capacity + 1);
    }
    const { next, prev } = this;
    next.fill(-1);
    let last = 0;
    for (let i = 0; i < ids.length; i++) {
      next[last] = ids[i] + 1;
      prev[ids[i] + 1] = last;
      last = ids[i] + 1;
    }
    next[last] = 0;
    prev[0] = last;
    this.size = ids.length;
  }

  // Room for ids below `capacity`.
  reserve(capacity: number) {
    if (capacity < this.next.length) return;
    const length = Math.max(capacity + 1, 2 * this.next.length);
    const next = new Int32Array(length).fill(-1),
      prev = new Int32Array(length);
    next.set(this.next);
    prev.set(this.prev);
    this.next = next;
    this.prev = prev;
  }

  insert(id: number, before: number) {
    const slot = id + 1;
    this.reserve(slot);
    const { next, prev } = this,
      following = next[before];
    next[before] = slot;
    prev[slot] = before;
    next[slot] = following;
    prev[following] = slot;
    this.size++;
  }
}
