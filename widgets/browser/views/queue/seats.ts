// The free queue in fixed places: within a step every block keeps its seat. A block that is taken leaves an empty seat
// with a note; a block queued at the head gets a seat in front, where room was kept for it; one queued at the tail gets
// a seat at the end.

import type { Recording } from "../../model/recording.ts";
import type { Scene } from "../../model/scene.ts";

// The request that took a block from the queue, and the way ("given to", "found by").
export interface Taken {
  how: string;
  request: number;
  event: number;
}

interface Seat {
  block: number;
  taken: Taken | null;
}

// A block leaves the queue, or enters it at an end.
interface QueueMove {
  kind: "take" | "head" | "tail";
  how: string;
  event: number;
  block: number;
  request: number;
}

interface Play {
  from: number;
  to: number;
  moves: QueueMove[];
  first: Seating; // at the step's start
  low: number; // the foremost seat that any block will take
  seating: Seating | null;
  moment: number;
  done: number; // moves that the seating shows
}

// Seats low to high, some of them empty.
export interface QueueSeats {
  low: number;
  high: number;
  seats: Map<number, Seat>;
  head: number;
  size: number;
}

const known = new WeakMap<Recording, Play>();

function moveOf(recording: Recording, event: number): Pick<QueueMove, "kind" | "how"> | null {
  const kind = recording.kind(event);
  if (kind === "BlockAllocated") return { kind: "take", how: "allocated to" };
  if (kind === "BlockCopied") return { kind: "take", how: "a copy for" };
  if (kind === "BlockTouched" && recording.field(event, "ref_count") === 1) return { kind: "take", how: "found by" };
  const end = recording.field(event, "queue_end");
  return end ? { kind: end, how: "" } : null;
}

// The blocks that an event moves, in the order in which they enter the queue.
function blocksOf(recording: Recording, event: number): number[] {
  if (recording.kind(event) === "NodeEvicted") {
    const ids = recording.field(event, "block_ids") as number[];
    return recording.field(event, "queue_end") === "head" ? ids.toReversed() : ids;
  }
  return [recording.field(event, recording.kind(event) === "BlockCopied" ? "into_block_id" : "block_id") ?? -1];
}

// `start` is the scene at the step's start; [from, moment) is what has happened, [moment, to) what the recording knows
// already.
// Costs the moves since the last call, when time goes forward within a step.
export function seatsAt(
  recording: Recording,
  start: Scene,
  { from, moment, to }: { from: number; moment: number; to: number },
  numKnown: number,
): QueueSeats {
  let play = known.get(recording);
  if (!play || play.from !== from || play.to !== to)
    known.set(recording, (play = begin(recording, start, { from, to }, numKnown)));
  let { seating } = play;
  if (!seating || play.moment > moment) {
    play.seating = seating = play.first.copy();
    play.done = 0;
  }
  for (; play.done < play.moves.length && play.moves[play.done].event < moment; play.done++)
    seating.apply(play.moves[play.done]);
  play.moment = moment;
  const { seats, head, tail, size } = seating;
  return { low: play.low, high: tail, seats, head, size };
}

// The step's moves as far as they are known, and the foremost seat that anyone will take.
function begin(recording: Recording, start: Scene, { from, to }: { from: number; to: number }, numKnown: number): Play {
  const moves: QueueMove[] = [];
  for (let i = from; i < to; i++) {
    const move = moveOf(recording, i);
    const request = recording.field(i, "request_id") ?? -1;
    if (move) for (const block of blocksOf(recording, i)) moves.push({ event: i, block, request, ...move });
  }
  const numTaken = moves.reduce((sum, { kind }) => sum + Number(kind === "take"), 0);
  const first = new Seating(start.queue.first(numKnown + numTaken), start.queue.size),
    complete = first.copy();
  let low = 0;
  for (const move of moves) {
    complete.apply(move);
    low = Math.min(low, complete.head);
  }
  return { from, to, moves, first, low, seating: null, moment: from, done: 0 };
}

class Seating {
  seats: Map<number, Seat>;
  seatOf: Map<number, number>;
  head = 0;
  tail: number;

  constructor(
    ids: number[],
    public size: number,
  ) {
    this.seats = new Map(ids.map((block, seat) => [seat, { block, taken: null }]));
    this.seatOf = new Map(ids.map((block, seat) => [block, seat]));
    this.tail = size - 1;
  }

  copy() {
    const other = new Seating([], this.tail + 1);
    other.seats = new Map(this.seats);
    other.seatOf = new Map(this.seatOf);
    other.head = this.head;
    return other;
  }

  apply({ kind, block, how, request, event }: QueueMove) {
    if (kind === "take") this.take(block, { how, request, event });
    else this.sit(block, kind === "head" ? (this.head -= 1) : (this.tail += 1));
  }

  sit(block: number, seat: number) {
    if (!this.size) this.head = seat;
    this.seats.set(seat, { block, taken: null });
    this.seatOf.set(block, seat);
    this.size += 1;
  }

  take(block: number, taken: Taken) {
    const seat = this.seatOf.get(block);
    this.seatOf.delete(block);
    this.size -= 1;
    if (seat === undefined) return;
    this.seats.set(seat, { block, taken });
    while (this.head < this.tail && this.seats.get(this.head)?.taken) this.head += 1;
  }
}
