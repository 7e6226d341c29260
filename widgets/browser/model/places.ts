// The table entries that name each block, and the live blocks of equal content.
import { grown } from "./arrays.ts";

const FIELDS = ["request", "group", "index", "next"] as const;

export class Places {
  request!: Int32Array;
  group!: Int32Array;
  index!: Int32Array;
  next!: Int32Array;
  head!: Int32Array;
  used!: number;
  spare!: number;

  constructor() {
    this.reset(0);
  }

  reset(numBlocks: number) {
    if (this.head?.length === numBlocks) this.head.fill(-1);
    else this.head = new Int32Array(numBlocks).fill(-1);
    for (const name of FIELDS) this[name] ??= new Int32Array(64);
    this.used = 0;
    this.spare = -1;
  }

  add(block: number, request: number, group: number, index: number) {
    const node = this.take();
    this.request[node] = request;
    this.group[node] = group;
    this.index[node] = index;
    this.next[node] = this.head[block];
    this.head[block] = node;
  }

  // No effect when the block is not there.
  remove(block: number, request: number, group: number, index: number) {
    let before = -1;
    for (let node = this.head[block]; node >= 0; before = node, node = this.next[node]) {
      if (this.request[node] !== request || this.index[node] !== index || this.group[node] !== group) continue;
      if (before < 0) this.head[block] = this.next[node];
      else this.next[before] = this.next[node];
      this.next[node] = this.spare;
      this.spare = node;
      return;
    }
  }

  // [[request, group, index]] in order.
  of(block: number) {
    const found: Place[] = [];
    for (let node = this.head[block]; node >= 0; node = this.next[node])
      found.push([this.request[node], this.group[node], this.index[node]]);
    return found.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  }

  take() {
    const node = this.spare;
    if (node >= 0) {
      this.spare = this.next[node];
      return node;
    }
    if (this.used === this.next.length) for (const name of FIELDS) this[name] = grown(this[name], this.used + 1);
    return this.used++;
  }
}

// A block's place in a table.
export type Place = [request: number, group: number, index: number];

const NO_BLOCKS: number[] = [];

// How many live blocks hold each content, and which block does where it is alone: its look changes with its twin's.
// An open hash table over typed arrays: content -> number of live blocks, and all their ids xor'ed (one's own id for
// one).
export class Twins {
  held!: Int32Array; // by block: the content it counts for
  mask!: number;
  contents!: Int32Array;
  counts!: Int32Array; // 0: the place is free
  sums!: Int32Array; // the ids of the blocks, xor'ed

  constructor() {
    this.reset(0);
  }

  reset(numBlocks: number) {
    if (this.held?.length === numBlocks) {
      this.held.fill(-1);
      this.counts.fill(0);
      return;
    }
    const capacity = 2 ** Math.ceil(Math.log2(4 * numBlocks + 4));
    this.held = new Int32Array(numBlocks).fill(-1);
    this.mask = capacity - 1;
    this.contents = new Int32Array(capacity);
    this.counts = new Int32Array(capacity);
    this.sums = new Int32Array(capacity);
  }

  count(content: number) {
    return content < 0 ? 0 : this.counts[this.place(content)];
  }

  // The block counts for this content from now on, -1 for none. Returns the blocks that look different for it, -1 for
  // none.
  hold(content: number, id: number) {
    const before = this.held[id];
    if (before === content) return NO_BLOCKS;
    this.held[id] = content;
    return [before < 0 ? -1 : this.remove(before, id), content < 0 ? -1 : this.add(content, id)];
  }

  // The block that was alone until now, or -1.
  add(content: number, id: number) {
    const at = this.place(content),
      count = this.counts[at]++,
      sum = count ? this.sums[at] : 0;
    this.contents[at] = content;
    this.sums[at] = sum ^ id;
    return count === 1 ? sum : -1;
  }

  // The block that is alone from now on, or -1.
  remove(content: number, id: number) {
    const at = this.place(content);
    this.sums[at] ^= id;
    const left = --this.counts[at];
    if (left === 0) this.close(at);
    return left === 1 ? this.sums[at] : -1;
  }

  // Where a content is, or would be.
  place(content: number) {
    let at = (Math.imul(content, 0x9e3779b1) >>> 7) & this.mask;
    while (this.counts[at] && this.contents[at] !== content) at = (at + 1) & this.mask;
    return at;
  }

  // Those that had to go on from the place that is free now come back to it.
  close(gap: number) {
    const { counts, contents, sums, mask } = this;
    for (let at = (gap + 1) & mask; counts[at]; at = (at + 1) & mask) {
      const count = counts[at],
        content = contents[at],
        sum = sums[at];
      counts[at] = 0;
      const to = this.place(content);
      counts[to] = count;
      contents[to] = content;
      sums[to] = sum;
    }
  }
}
