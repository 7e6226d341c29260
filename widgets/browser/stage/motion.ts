// What slides, and where to look, while events are played: read from the events themselves.
import { requestName } from "../look/palette.ts";

const MAX_MOVES = 12;
const MAX_FOCUS = 64;

// {moves: [[label, from, to]], focus: [block ids]}; the places are named as the views anchor them.
export function motionOf(recording, start, end) {
  const moves = [],
    focus = new Set();
  for (let i = Math.max(start, recording.start); i < end && (moves.length < MAX_MOVES || focus.size < MAX_FOCUS); i++) {
    const tell = TELLERS[recording.kind(i)];
    if (tell) tell((name) => recording.field(i, name), moves, focus);
  }
  return { moves: moves.slice(0, MAX_MOVES), focus: [...focus].slice(0, MAX_FOCUS) };
}

const block = (get, moves, focus) => focus.add(get("block_id"));
const row = (get) => `row:${get("request_id")}:${get("group")}:${get("index")}`;

const TELLERS = {
  BlockAllocated(get, moves, focus) {
    block(get, moves, focus);
    moves.push([`#${get("block_id")}`, `queue:${get("block_id")}`, row(get)]);
  },
  BlockTouched(get, moves, focus) {
    block(get, moves, focus);
    moves.push([`#${get("block_id")}`, `${get("ref_count") === 1 ? "queue" : "pool"}:${get("block_id")}`, row(get)]);
  },
  BlockCached(get, moves, focus) {
    block(get, moves, focus);
    moves.push([`#${get("block_id")}`, `pool:${get("block_id")}`, `map:${get("group")}:${get("block_hash")}`]);
  },
  BlockMerged(get, moves, focus) {
    focus.add(get("block_id")).add(get("into_block_id"));
    moves.push([requestName(get("request_id")), `pool:${get("block_id")}`, `pool:${get("into_block_id")}`]);
  },
  BlockFreed(get, moves, focus) {
    block(get, moves, focus);
    if (get("queue_end") !== null)
      moves.push([`#${get("block_id")}`, `pool:${get("block_id")}`, `queue:${get("block_id")}`]);
  },
  BlocksLoaded(get, moves, focus) {
    transfer(get, moves, focus, (pool, tier) => [tier, pool]);
  },
  BlocksSaved(get, moves, focus) {
    transfer(get, moves, focus, (pool, tier) => [pool, tier]);
  },
  BlockEvicted: block,
  SlotsWritten(get, moves, focus) {
    for (const [id] of get("runs")) focus.add(id);
  },
  PrefixHit(get, moves, focus) {
    for (const ids of get("block_ids")) for (const id of ids) if (id >= 0) focus.add(id);
  },
  ViolationFound(get, moves, focus) {
    for (const id of get("block_ids")) focus.add(id);
  },
};

function transfer(get, moves, focus, way) {
  for (const [group, , id, hash] of get("transfers")) {
    focus.add(id);
    moves.push([`#${id}`, ...way(`pool:${id}`, `tier:${group}:${hash}`)]);
  }
}
