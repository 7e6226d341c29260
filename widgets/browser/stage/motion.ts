// The chips that slide and the blocks in focus while events are played, read from the events.

import { FIELDS } from "../model/event_rows.ts";
import type { Transfer } from "../model/events.ts";
import { requestName } from "../model/names.ts";
import type { Recording } from "../model/recording.ts";
import { namedBy } from "../views/about.ts";

const MAX_MOVES = 12;
const MAX_FOCUS = 64;

// A chip that slides: its text, and the anchors of the places from and to which it does.
type ChipMove = [text: string, from: string, to: string];

export interface Motion {
  moves: ChipMove[];
  focus: number[]; // the blocks to look at
}

export function motionOf(recording: Recording, start: number, end: number): Motion {
  const moves: ChipMove[] = [],
    focus = new Set<number>();
  for (let i = Math.max(start, recording.start); i < end && (moves.length < MAX_MOVES || focus.size < MAX_FOCUS); i++) {
    for (const block of namedBy(recording, i, "block")) if (Number(block) >= 0) focus.add(Number(block));
    if (recording.kind(i) in FIELDS) moves.push(...movesOf(recording, i));
  }
  return { moves: moves.slice(0, MAX_MOVES), focus: [...focus].slice(0, MAX_FOCUS) };
}

// The way of a chip, by the fields that event number i has.
function movesOf(recording: Recording, i: number): ChipMove[] {
  const kind = recording.kind(i);
  if (kind in LOADS) return recording.field(i, "transfers")?.map((one) => transferred(one, LOADS[kind])) ?? [];
  const move = moveOf(recording, i);
  return move ? [move] : [];
}

function moveOf(recording: Recording, i: number): ChipMove | null {
  const [block, into, request] = [field("block_id"), field("into_block_id"), field("request_id")],
    [group, index, end, hash] = [field("group"), field("index"), field("queue_end"), field("block_hash")],
    [chip, place] = [`#${block}`, `pool:${block}`];
  if (block === undefined) return null;
  if (into !== undefined) return [request === undefined ? chip : requestName(request), place, `pool:${into}`];
  if (end !== undefined) return end === null ? null : [chip, place, `queue:${block}`];
  if (hash !== undefined) return [chip, place, `map:${group}:${hash}`];
  if (index === undefined || field("into_index") !== undefined) return null;
  return [chip, (field("ref_count") ?? 1) === 1 ? `queue:${block}` : place, `row:${request}:${group}:${index}`];

  function field<Name extends string>(name: Name) {
    return recording.field(i, name);
  }
}

const LOADS: Readonly<Record<string, boolean>> = { BlocksLoaded: true, BlocksSaved: false };

function transferred([group, , block, hash]: Transfer, isLoad: boolean): ChipMove {
  const places = [`pool:${block}`, `tier:${group}:${hash}`] as const,
    [from, to] = isLoad ? places.toReversed() : places;
  return [`#${block}`, from, to];
}
