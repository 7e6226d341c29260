// The chips that slide and the blocks in focus while events are played, read from the events.

import type { EventRows } from "../model/event_rows.ts";
import type { EventKind, Transfer } from "../model/events.ts";
import { entryFor } from "../model/events.ts";
import { requestName } from "../model/names.ts";
import type { Recording } from "../model/recording.ts";

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
    const row = recording.kinds.ordered(recording.row(i));
    entryFor(MOTIONS, recording.kind(i))?.(row, moves, focus);
  }
  return { moves: moves.slice(0, MAX_MOVES), focus: [...focus].slice(0, MAX_FOCUS) };
}

type MotionOf<Kind extends EventKind> = (row: EventRows[Kind], moves: ChipMove[], focus: Set<number>) => void;

const MOTIONS: { [Kind in EventKind]?: MotionOf<Kind> } = {
  BlockAllocated([, block, request, group, index], moves, focus) {
    focus.add(block);
    moves.push([`#${block}`, `queue:${block}`, `row:${request}:${group}:${index}`]);
  },
  BlockTouched([, block, request, group, index, refCount], moves, focus) {
    focus.add(block);
    moves.push([`#${block}`, `${refCount === 1 ? "queue" : "pool"}:${block}`, `row:${request}:${group}:${index}`]);
  },
  BlockCached([, block, , group, , hash], moves, focus) {
    focus.add(block);
    moves.push([`#${block}`, `pool:${block}`, `map:${group}:${hash}`]);
  },
  BlockMerged([, block, into, request], moves, focus) {
    focus.add(block).add(into);
    moves.push([requestName(request), `pool:${block}`, `pool:${into}`]);
  },
  BlockPinned: ([, block], _moves, focus) => void focus.add(block),
  BlockUnpinned([, block, , queueEnd], moves, focus) {
    focus.add(block);
    if (queueEnd !== null) moves.push([`#${block}`, `pool:${block}`, `queue:${block}`]);
  },
  BlockCopied([, block, into, request], moves, focus) {
    focus.add(block).add(into);
    moves.push([requestName(request), `pool:${block}`, `pool:${into}`]);
  },
  StateCopied([, block, into, request], moves, focus) {
    focus.add(block).add(into);
    moves.push([requestName(request), `pool:${block}`, `pool:${into}`]);
  },
  BlockMoved: ([, block], _moves, focus) => void focus.add(block),
  HashesMoved([, block, into], moves, focus) {
    focus.add(block).add(into);
    moves.push([`#${block}`, `pool:${block}`, `pool:${into}`]);
  },
  BlockFreed([, block, , , , , queueEnd], moves, focus) {
    focus.add(block);
    if (queueEnd !== null) moves.push([`#${block}`, `pool:${block}`, `queue:${block}`]);
  },
  BlocksLoaded: ([, , transfers], moves, focus) => transfer(transfers, moves, focus, true),
  BlocksSaved: ([, , transfers], moves, focus) => transfer(transfers, moves, focus, false),
  BlockEvicted: ([, block], _moves, focus) => void focus.add(block),
  SlotsWritten([, , , , runs], _moves, focus) {
    for (const [block] of runs) focus.add(block);
  },
  StateAdvanced: ([, , , block], _moves, focus) => void focus.add(block),
  PrefixHit([, , , groups], _moves, focus) {
    for (const blocks of groups) for (const block of blocks) if (block >= 0) focus.add(block);
  },
  RequestForked([, , , , groups], _moves, focus) {
    for (const blocks of groups) for (const block of blocks) if (block >= 0) focus.add(block);
  },
  ViolationFound([, , , , blocks], _moves, focus) {
    for (const block of blocks) focus.add(block);
  },
};

function transfer(transfers: Transfer[], moves: ChipMove[], focus: Set<number>, isLoad: boolean) {
  for (const [group, , block, hash] of transfers) {
    const places = [`pool:${block}`, `tier:${group}:${hash}`] as const,
      [from, to] = isLoad ? places.toReversed() : places;
    focus.add(block);
    moves.push([`#${block}`, from, to]);
  }
}
