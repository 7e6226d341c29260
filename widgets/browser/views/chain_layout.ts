// Where a hash stands: chains as rows. A hash follows its parent in the parent's row, if it was the first to; another child begins a row of its own.
// Rows are in order of first appearance, so nothing that comes later moves what is there. Unknown parents begin rows, too.

export class ChainLayout {
  constructor() {
    this.rows = []; // {index, group, keys: [key], after: key|null, isCut, present: how many of them are there now, version}
    this.places = new Map(); // key -> {row, at}
  }

  // Takes in hashes in order of appearance; parentOf(key) is a key, null at a chain's beginning, undefined when unknown.
  add(key, parentOf) {
    const known = this.places.get(key);
    if (known) return known;
    const line = [key];
    for (
      let parent = parentOf(key);
      parent && !this.places.has(parent) && !line.includes(parent);
      parent = parentOf(parent)
    )
      line.push(parent);
    for (const next of line.reverse()) this.put(next, parentOf(next));
    return this.places.get(key);
  }

  put(key, parent) {
    const before = parent ? this.places.get(parent) : undefined;
    let row = before && before.at === before.row.keys.length - 1 ? before.row : null;
    if (!row) {
      const group = Number(key.slice(0, key.indexOf(":")));
      row = {
        index: this.rows.length,
        group,
        keys: [],
        after: before ? parent : null,
        isCut: parent === undefined,
        depth: before ? before.row.depth + before.at + 1 : 0,
        present: 0,
        version: 0,
      };
      this.rows.push(row);
    }
    this.places.set(key, { row, at: row.keys.length });
    row.keys.push(key);
  }
}
