// The prefix tree as rows, each below its parent; siblings keep their order while nodes are split and touched.
// Arrays by row, because a tree may have ten thousand nodes and changes with every event.

import type { TreeNode } from "../../model/tree.ts";

const DEEP = 2 ** 22; // more than a node has blocks above it

export interface TreeRow {
  id: number;
  node: TreeNode;
  isLeaf: boolean;
  age: number; // its place in the order of use, from 0, the oldest
  isNext: boolean; // the next eviction takes it
  isGone: boolean; // evicted by the current event
}

export class TreeRows {
  readonly ids: number[] = [];
  readonly nodes: TreeNode[] = [];
  readonly parents: Int32Array; // by row: the row of its parent; -1 below the root
  readonly lastChildren: Int32Array; // by row: the row of its last child; -1 for a leaf
  readonly ages: Float64Array; // of all nodes, in order
  next = -1; // the row of the leaf that is evicted next
  numBlocks = 0; // of the longest path

  // gone: nodes that have just been evicted, drawn once more where they were.
  constructor(
    tree: ReadonlyMap<number, TreeNode> = new Map(),
    readonly gone: ReadonlyMap<number, TreeNode> = new Map(),
  ) {
    const all = gone.size ? new Map([...tree, ...gone]) : tree;
    this.parents = new Int32Array(all.size).fill(-1);
    this.lastChildren = new Int32Array(all.size).fill(-1);
    this.place([...all.keys()], [...all.values()]);
    this.ages = Float64Array.from(tree.values(), ageOf).sort();
    this.findNext();
  }

  // Depth first, along lists of siblings; a node whose parent is missing is below the root.
  place(ids: number[], nodes: TreeNode[]) {
    const index = new Map(ids.map((id, i) => [id, i])),
      above = nodes.map(({ parent }) => index.get(parent) ?? -1),
      { first, sibling, top } = siblingsOf(nodes, above),
      rows = new Int32Array(ids.length),
      waiting: number[] = [];
    for (let i = top; i >= 0 || waiting.length; ) {
      if (i < 0) {
        i = sibling[waiting.pop() as number];
        continue;
      }
      const row = (rows[i] = this.ids.push(ids[i]) - 1),
        node = nodes[i];
      this.nodes.push(node);
      this.numBlocks = Math.max(this.numBlocks, node.firstIndex + node.blocks.length);
      if (above[i] >= 0) this.lastChildren[(this.parents[row] = rows[above[i]])] = row;
      waiting.push(i);
      i = first[i];
    }
  }

  findNext() {
    for (let row = 0; row < this.ids.length; row++)
      if (this.canGo(row) && (this.next < 0 || ageOf(this.nodes[row]) < ageOf(this.nodes[this.next]))) this.next = row;
  }

  canGo(row: number) {
    return this.lastChildren[row] < 0 && !this.nodes[row].numLocks && !this.gone.has(this.ids[row]);
  }

  get size() {
    return this.ids.length;
  }

  row(row: number): TreeRow {
    const id = this.ids[row],
      node = this.nodes[row],
      isLeaf = this.lastChildren[row] < 0;
    return { id, node, isLeaf, age: this.ageAt(row), isNext: row === this.next, isGone: this.gone.has(id) };
  }

  ageAt(row: number) {
    const wanted = ageOf(this.nodes[row]);
    let low = 0,
      high = this.ages.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ages[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The parents whose lines to their children cross these rows.
  parentsAround(first: number, last: number) {
    const found: number[] = [];
    for (let row = this.parents[first] ?? -1; row >= 0; row = this.parents[row]) found.push(row);
    for (let row = first; row < last; row++) if (this.lastChildren[row] >= 0) found.push(row);
    return found.filter((row) => this.lastChildren[row] >= first);
  }
}

// Of equal ones, the upper half of a split node, the one above counts as older.
function ageOf({ touched, firstIndex }: TreeNode) {
  return touched * DEEP + firstIndex;
}

// Lists of children by place: first[i] leads to the first child of i, sibling[i] to the next one of its parent.
function siblingsOf(nodes: TreeNode[], above: number[]) {
  const { length } = nodes,
    first = new Int32Array(length).fill(-1),
    sibling = new Int32Array(length).fill(-1),
    order = Float64Array.from(nodes, ({ place }, i) => place * length + i).sort();
  let top = -1;
  for (let at = length - 1; at >= 0; at--) {
    const i = order[at] % length,
      parent = above[i];
    sibling[i] = parent < 0 ? top : first[parent];
    if (parent < 0) top = i;
    else first[parent] = i;
  }
  return { first, sibling, top };
}
