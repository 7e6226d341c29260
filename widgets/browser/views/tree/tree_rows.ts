// The prefix tree as rows, each below its parent; siblings keep their order while nodes are split and touched.

import type { TreeNode } from "../../model/tree.ts";
import { ROOT } from "../../model/tree.ts";

export interface TreeRow {
  id: number;
  node: TreeNode;
  parent: number; // the row of its parent; -1 below the root
  isLeaf: boolean;
  age: number; // its place in the order of use, from 0, the oldest
  isNext: boolean; // the next eviction takes it
  isGone: boolean; // evicted by the current event
}

export interface TreeRows {
  rows: TreeRow[];
  rowOf: Map<number, number>;
  next: TreeRow | null;
  numBlocks: number; // of the longest path
}

// gone: nodes that have just been evicted, drawn once more where they were.
export function rowsOf(tree: ReadonlyMap<number, TreeNode>, gone: ReadonlyMap<number, TreeNode>): TreeRows {
  const nodes = gone.size ? new Map([...tree, ...gone]) : tree,
    children = childrenOf(nodes),
    rows: TreeRow[] = [],
    rowOf = new Map<number, number>(),
    waiting = [...(children.get(ROOT) ?? [])].reverse();
  let numBlocks = 0;
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    const node = nodes.get(id) as TreeNode, // an id of `children` is one of `nodes`
      below = children.get(id) ?? [];
    rowOf.set(id, rows.length);
    numBlocks = Math.max(numBlocks, node.firstIndex + node.blocks.length);
    const isLeaf = !below.length,
      isGone = gone.has(id);
    rows.push({ id, node, parent: rowOf.get(node.parent) ?? -1, isLeaf, age: 0, isNext: false, isGone });
    for (let i = below.length - 1; i >= 0; i--) waiting.push(below[i]);
  }
  return { rows, rowOf, next: ordered(rows), numBlocks };
}

// By parent; a node whose parent is missing is drawn below the root. Of siblings, the one comes first below which the
// oldest id is, so that the upper half of a split node takes the place of the lower one.
function childrenOf(nodes: ReadonlyMap<number, TreeNode>) {
  const oldest = new Map<number, number>(),
    children = new Map<number, number[]>();
  for (const id of Int32Array.from(nodes.keys()).sort())
    for (let at = id, node = nodes.get(at); node && !oldest.has(at); node = nodes.get((at = node.parent)))
      oldest.set(at, id);
  for (const [id, { parent }] of nodes) {
    const above = nodes.has(parent) ? parent : ROOT,
      siblings = children.get(above);
    if (siblings) siblings.push(id);
    else children.set(above, [id]);
  }
  for (const siblings of children.values())
    if (siblings.length > 1) siblings.sort((a, b) => (oldest.get(a) ?? a) - (oldest.get(b) ?? b));
  return children;
}

// Sets the rows' ages; returns the leaf that is evicted next.
function ordered(rows: TreeRow[]) {
  const byAge = rows
    .filter(({ isGone }) => !isGone)
    .sort(({ node: a }, { node: b }) => a.touched - b.touched || a.firstIndex - b.firstIndex);
  byAge.forEach((row, age) => (row.age = age));
  const next = byAge.find(({ isLeaf, node }) => isLeaf && !node.numLocks) ?? null;
  if (next) next.isNext = true;
  return next;
}
