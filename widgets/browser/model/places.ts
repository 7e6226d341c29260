// Where each block stands: the entries of block tables that name it, as linked lists over typed arrays.
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

  // Nothing happens when the block does not stand there.
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
