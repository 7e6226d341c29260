// The lanes of the shared line of time: which requests have one, and which lanes the events of each caption are about.

import type { PairRow } from "../../model/payloads.ts";
import type { PairStage } from "../stage.ts";

const MAX_LANES = 5;
const POOL = "pool",
  OTHERS = "others";

// A lane: a request, the pool, or all requests without a separate lane.
type Lane = number | typeof POOL | typeof OTHERS;

export class CaptionLanes {
  sets: Set<Lane>[][] = []; // by caption and side
  order: Lane[] = [];
  rows?: PairRow[];
  numRows = -1;
  last?: PairRow;

  constructor(readonly stage: PairStage) {}

  read() {
    const { track } = this.stage,
      { rows } = track,
      { length } = rows;
    if (this.rows !== rows || this.numRows > length || this.last !== rows.at(-1)) this.sets = [];
    this.rows = rows;
    this.numRows = length;
    this.last = rows.at(-1);
    const known = Math.min(this.sets.length, track.end - track.base);
    this.sets.length = known;
    for (let i = known; i < track.end - track.base; i++) this.sets.push(this.lanesOf(i));
    this.order = [...this.shownRequests(), POOL];
  }

  // Per caption and side the lanes of its events: request ids, or the pool.
  lanesOf(index: number): Set<Lane>[] {
    const { track, sides } = this.stage,
      row = track.rows[index],
      before = index ? track.rows[index - 1][0] : track.starts;
    return sides.map(({ recording }, side) => {
      const lanes = new Set<Lane>();
      for (let i = Math.max(before[side], recording.start); i < Math.min(row[0][side], recording.end); i++) {
        const request = recording.field(i, "request_id");
        lanes.add(request === undefined || request === null || request < 0 ? POOL : request);
      }
      return lanes;
    });
  }

  // All requests while there is room; else those in which the sides differ, and the newest.
  shownRequests(): Lane[] {
    const { rows } = this.stage.track,
      counts = new Map<number, number>();
    this.sets.forEach((sides, i) => {
      for (const lane of new Set(sides.flatMap((lanes) => [...lanes])))
        if (typeof lane === "number") counts.set(lane, (counts.get(lane) || 0) + Number(rows[i][3]));
    });
    const all = [...counts.keys()].sort((a, b) => a - b);
    if (all.length < MAX_LANES) return all;
    const selected = all.sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || b - a).slice(0, MAX_LANES - 2);
    return [OTHERS, ...selected.sort((a, b) => a - b)];
  }

  rowsOf(...sets: Set<Lane>[]) {
    return this.order.flatMap((_, row) => (sets.some((lanes) => this.has(lanes, row)) ? [row] : []));
  }

  has(lanes: Set<Lane>, row: number) {
    const name = this.order[row];
    return name === OTHERS ? [...lanes].some((lane) => lane !== POOL && !this.order.includes(lane)) : lanes.has(name);
  }
}
