// The prefix tree according to the events so far; see labengine/record/tree_fold.py.

import type { WireKeyframe } from "./event_rows.ts";
import { UnknownThing } from "./events.ts";

export const ROOT = 0;

// A node is replaced and never changed, so that copies of a tree share it.
export interface TreeNode {
  readonly parent: number;
  readonly firstIndex: number; // blocks before the node's first one
  readonly blocks: readonly number[];
  readonly numLocks: number;
  readonly touched: number; // its place in the order of recency
  readonly place: number; // its place among its siblings, which both halves of a split node keep
}

export class PrefixTree {
  nodes = new Map<number, TreeNode>();
  holds = new Map<number, number>(); // per request with a lock: the node at which it begins
  numTouches = 0;
  numEvictable = 0; // blocks of nodes without locks

  // The tree of a keyframe, whose nodes come by age.
  static of(rows: NonNullable<WireKeyframe["tree"]>) {
    const tree = new PrefixTree();
    for (const [id, parent, blocks, numLocks, lockedBy] of rows) {
      tree.put(id, { parent, firstIndex: 0, blocks, numLocks, touched: ++tree.numTouches, place: id });
      for (const request of lockedBy) tree.holds.set(request, id);
    }
    for (const [id, node] of tree.nodes) {
      const [, ...above] = tree.path(id);
      tree.put(id, { ...node, firstIndex: above.reduce((sum, one) => sum + tree.node(one).blocks.length, 0) });
    }
    return tree;
  }

  copy() {
    return Object.assign(new PrefixTree(), this, { nodes: new Map(this.nodes), holds: new Map(this.holds) });
  }

  node(id: number): TreeNode {
    const node = this.nodes.get(id);
    if (!node) throw new UnknownThing(`there is no node ${id}`);
    return node;
  }

  insert(id: number, parent: number, firstIndex: number, blocks: readonly number[]) {
    if (parent !== ROOT) this.node(parent);
    this.put(id, { parent, firstIndex, blocks, numLocks: 0, touched: ++this.numTouches, place: id });
  }

  split(id: number, upper: number, numBlocks: number) {
    const node = this.node(id);
    const firstIndex = node.firstIndex + numBlocks;
    this.put(id, { ...node, parent: upper, firstIndex, blocks: node.blocks.slice(numBlocks) });
    this.put(upper, { ...node, blocks: node.blocks.slice(0, numBlocks) });
  }

  touch(ids: readonly number[]) {
    for (const id of ids) {
      const touched = ++this.numTouches;
      this.put(id, { ...this.node(id), touched });
    }
  }

  lock(id: number, request: number) {
    this.node(id);
    const path = this.addLocks(id, 1);
    this.holds.set(request, id);
    return path;
  }

  unlock(id: number, request: number) {
    this.holds.delete(request);
    return this.addLocks(id, -1);
  }

  // Of a leaf that keeps blocks, only the end goes.
  evict(id: number, numKept: number) {
    const node = this.node(id);
    if (numKept) this.put(id, { ...node, blocks: node.blocks.slice(0, numKept) });
    else {
      this.nodes.delete(id);
      this.numEvictable -= numEvictable(node);
    }
  }

  // A node and all above it, as far as they exist; a wrong tree may have a loop.
  path(id: number) {
    const ids: number[] = [];
    for (let at = id; at !== ROOT && ids.length < this.nodes.size; ) {
      const node = this.nodes.get(at);
      if (!node) break;
      ids.push(at);
      at = node.parent;
    }
    return ids;
  }

  // The nodes with their ids, the oldest first. The upper half of a split node counts as older than the lower one.
  byAge() {
    return [...this.nodes].sort(([, a], [, b]) => a.touched - b.touched || a.firstIndex - b.firstIndex);
  }

  // The oldest leaf without locks; null if there is none.
  nextLeaf() {
    const inner = new Set([...this.nodes.values()].map(({ parent }) => parent));
    let found: [id: number, node: TreeNode] | null = null;
    for (const [id, node] of this.nodes)
      if (!node.numLocks && !inner.has(id) && (!found || node.touched < found[1].touched)) found = [id, node];
    return found?.[0] ?? null;
  }

  get numBlocks() {
    let count = 0;
    for (const { blocks } of this.nodes.values()) count += blocks.length;
    return count;
  }

  private put(id: number, node: TreeNode) {
    this.numEvictable += numEvictable(node) - numEvictable(this.nodes.get(id));
    this.nodes.set(id, node);
  }

  // Returns the nodes of the path, for which other things hold now.
  private addLocks(id: number, change: number) {
    const path = this.path(id);
    for (const one of path) {
      const node = this.node(one);
      this.put(one, { ...node, numLocks: node.numLocks + change });
    }
    return path;
  }
}

function numEvictable(node?: TreeNode) {
  return node && !node.numLocks ? node.blocks.length : 0;
}
