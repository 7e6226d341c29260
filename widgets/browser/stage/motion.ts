// The chips that slide and the blocks in focus while events are played, read from the events.

import { FIELDS } from "../model/event_rows.ts";
import type { AnyRow, EventKind, Transfer } from "../model/events.ts";
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
    const row = recording.kinds.ordered(recording.row(i)),
      kind = recording.kind(i);
    for (const block of namedBy(recording, i, "block")) if (Number(block) >= 0) focus.add(Number(block));
    if (kind in FIELDS) moves.push(...movesOf(kind as EventKind, row));
  }
  return { moves: moves.slice(0, MAX_MOVES), focus: [...focus].slice(0, MAX_FOCUS) };
}

// The way of a chip, by the fields that an event has.
function movesOf(kind: EventKind, row: AnyRow): ChipMove[] {
  const fields: Fields = Object.fromEntries(FIELDS[kind].map((name, i) => [name, row[i + 1]]));
  if (kind in LOADS) return fields.transfers?.map((one) => transferred(one, LOADS[kind])) ?? [];
  const move = moveOf(fields);
  return move ? [move] : [];
}

// Values of the fields that say where a block goes.
interface Fields {
  block_id?: number;
  into_block_id?: number;
  request_id?: number;
  group?: number;
  index?: number;
  into_index?: number;
  ref_count?: number;
  block_hash?: string;
  queue_end?: string | null;
  transfers?: Transfer[];
}

function moveOf(fields: Fields): ChipMove | null {
  const { block_id: block, into_block_id: into, request_id: request, group, index } = fields,
    [chip, place] = [`#${block}`, `pool:${block}`];
  if (block === undefined) return null;
  if (into !== undefined) return [request === undefined ? chip : requestName(request), place, `pool:${into}`];
  if (fields.queue_end !== undefined) return fields.queue_end === null ? null : [chip, place, `queue:${block}`];
  if (fields.block_hash !== undefined) return [chip, place, `map:${group}:${fields.block_hash}`];
  if (index === undefined || fields.into_index !== undefined) return null;
  return [chip, (fields.ref_count ?? 1) === 1 ? `queue:${block}` : place, `row:${request}:${group}:${index}`];
}

const LOADS: Readonly<Record<string, boolean>> = { BlocksLoaded: true, BlocksSaved: false };

function transferred([group, , block, hash]: Transfer, isLoad: boolean): ChipMove {
  const places = [`pool:${block}`, `tier:${group}:${hash}`] as const,
    [from, to] = isLoad ? places.toReversed() : places;
  return [`#${block}`, from, to];
}
