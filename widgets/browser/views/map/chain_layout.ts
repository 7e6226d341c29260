// The layout of hashes: chains as rows. A parent's first child follows it in its row; any other child begins a row of
// its own.
// Rows are in order of first appearance, so that new hashes never move old ones. A hash with an unknown parent begins a
// row, too.

export interface ChainRow {
  index: number;
  group: number;
  keys: string[];
  after: string | null; // the hash at which it branches off
  isCut: boolean;
  depth: number;
  present: number; // how many of its hashes are in the map now
  version: number;
}

export interface ChainPlace {
  row: ChainRow;
  at: number;
}

export class ChainLayout {
  rows: ChainRow[] = [];
  places = new Map<string, ChainPlace>();

  // Takes in a hash after those before it in its chain. parentOf(key): a key, null at a chain's beginning, undefined
  // where it is not known.
  add(key: string, parentOf: (key: string) => string | null | undefined): ChainPlace {
    const known = this.places.get(key);
    if (known) return known;
    const line = [key];
    let parent = parentOf(key);
    for (; parent && !this.places.has(parent) && !line.includes(parent); parent = parentOf(parent)) line.push(parent);
    return line.reverse().map((next) => this.put(next, parentOf(next)))[line.length - 1];
  }

  put(key: string, parent: string | null | undefined): ChainPlace {
    const before = parent ? this.places.get(parent) : undefined;
    let row = before && before.at === before.row.keys.length - 1 ? before.row : null;
    if (!row) {
      row = {
        index: this.rows.length,
        group: Number(key.slice(0, key.indexOf(":"))),
        keys: [],
        after: before && parent ? parent : null,
        isCut: parent === undefined,
        depth: before ? before.row.depth + before.at + 1 : 0,
        present: 0,
        version: 0,
      };
      this.rows.push(row);
    }
    const place = { row, at: row.keys.push(key) - 1 };
    this.places.set(key, place);
    return place;
  }
}

// Of rows as they stand, those that hang below the row of the hash at which they branch off, maybe behind its other
// branches. Rows keep their order, so that another prompt's may stand above a branch.
export function hanging(rows: ChainRow[], places: Map<string, ChainPlace>): Set<ChainRow> {
  const found = new Set<ChainRow>(),
    above: ChainRow[] = [];
  for (const row of rows) {
    const parent = row.after === null ? undefined : places.get(row.after)?.row;
    while (above.length && above[above.length - 1] !== parent) above.pop();
    if (above.length) found.add(row);
    above.push(row);
  }
  return found;
}
