// The free queue in fixed places: within a step every block keeps its seat. Who is taken leaves an empty seat with a note;
// who comes to the head sits down in front, where room was kept for it; who comes to the tail sits down behind.

const known = new WeakMap();

function moveOf(recording, event) {
  const kind = recording.kind(event);
  if (kind === "BlockAllocated") return { kind: "take", how: "given to" };
  if (kind === "BlockTouched" && recording.field(event, "ref_count") === 1) return { kind: "take", how: "found by" };
  if (kind !== "BlockFreed" || !recording.field(event, "queue_end")) return null;
  return { kind: recording.field(event, "queue_end"), reason: recording.field(event, "reason") };
}

// {low, high, seats: Map(seat -> {block, taken: null|{how, request, event}}), head, size}: seats low..high, some of them empty.
// `start` is the scene at the step's start; [from, moment) is what has happened, [moment, to) what the recording knows already.
// Costs the moves since the last call, when time goes forward within a step.
export function seatsAt(recording, start, { from, moment, to }, numKnown) {
  let play = known.get(recording);
  if (!play || play.from !== from || play.to !== to)
    known.set(recording, (play = begin(recording, start, { from, to }, numKnown)));
  if (!play.seating || play.moment > moment) Object.assign(play, { seating: play.first.copy(), done: 0 });
  for (; play.done < play.moves.length && play.moves[play.done].event < moment; play.done++)
    play.seating.apply(play.moves[play.done]);
  play.moment = moment;
  const { seats, head, tail, size } = play.seating;
  return { low: play.low, high: tail, seats, head, size };
}

// The step's moves as far as they are known, and the foremost seat that anyone will take.
function begin(recording, start, { from, to }, numKnown) {
  const moves = [];
  for (let i = from; i < to; i++) {
    const move = moveOf(recording, i);
    if (move)
      moves.push({
        event: i,
        block: recording.field(i, "block_id"),
        request: recording.field(i, "request_id"),
        ...move,
      });
  }
  const numTaken = moves.reduce((sum, { kind }) => sum + (kind === "take"), 0);
  const first = new Seating(start.queue.first(numKnown + numTaken), start.queue.size),
    whole = first.copy();
  let low = 0;
  for (const move of moves) {
    whole.apply(move);
    low = Math.min(low, whole.head);
  }
  return { from, to, moves, first, low, seating: null, done: 0 };
}

class Seating {
  constructor(ids, size) {
    this.seats = new Map(ids.map((block, seat) => [seat, { block, taken: null }]));
    this.seatOf = new Map(ids.map((block, seat) => [block, seat]));
    Object.assign(this, { head: 0, tail: size - 1, size });
  }

  copy() {
    const other = new Seating([], this.tail + 1);
    other.seats = new Map(this.seats);
    other.seatOf = new Map(this.seatOf);
    other.head = this.head;
    return other;
  }

  apply({ kind, block, how, request, event }) {
    if (kind === "take") this.take(block, { how, request, event });
    else this.sit(block, kind === "head" ? (this.head -= 1) : (this.tail += 1));
  }

  sit(block, seat) {
    if (!this.size) this.head = seat;
    this.seats.set(seat, { block, taken: null });
    this.seatOf.set(block, seat);
    this.size += 1;
  }

  take(block, taken) {
    const seat = this.seatOf.get(block);
    this.seatOf.delete(block);
    this.size -= 1;
    if (seat === undefined) return;
    this.seats.set(seat, { block, taken });
    while (this.head < this.tail && this.seats.get(this.head)?.taken) this.head += 1;
  }
}
