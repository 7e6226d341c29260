// How many live blocks hold each content, and which one does where it is alone: that one's look changes with its
// twin's.

const NOBODY: number[] = [];

// An open hash table over typed arrays: content -> number of live blocks, and all their ids xor'ed (one's own id for
// one).
export class Twins {
  held!: Int32Array;
  mask!: number;
  contents!: Int32Array;
  counts!: Int32Array;
  sums!: Int32Array;

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
    this.held = new Int32Array(numBlocks).fill(-1); // by block: the content it counts for
    this.mask = capacity - 1;
    this.contents = new Int32Array(capacity);
    this.counts = new Int32Array(capacity); // 0: the place is free
    this.sums = new Int32Array(capacity);
  }

  count(content: number) {
    return content < 0 ? 0 : this.counts[this.place(content)];
  }

  // The block counts for this content from now on, -1 for none. Returns the blocks that look different for it, -1 for
  // none.
  hold(content: number, id: number) {
    const before = this.held[id];
    if (before === content) return NOBODY;
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
