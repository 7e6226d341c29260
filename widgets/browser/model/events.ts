// The kinds of events and their fields, in the order in which this fold reads them. Rows of another order are put in this one.

export const FIELDS = {
  EngineStarted: ["num_blocks", "groups", "edition", "null_block"],
  StepStarted: ["step"],
  StepEnded: ["step"],
  StepFailed: ["step", "error", "message", "method"],
  StepRolledBack: ["step", "reason"],
  RequestAdded: ["request_id", "token_ids", "max_tokens"],
  PrefixHit: ["request_id", "num_tokens", "block_ids"],
  RequestScheduled: ["request_id", "start", "num_tokens", "is_prefill", "status"],
  RequestPreempted: ["request_id"],
  RequestFinished: ["request_id", "reason"],
  RequestForgotten: ["request_id"],
  ExternalHit: ["request_id", "num_tokens", "is_loading"],
  BlocksLoaded: ["request_id", "transfers"],
  BlocksSaved: ["request_id", "transfers"],
  LoadFailed: ["request_id", "reason"],
  PrefixCacheReset: [],
  BlockEvicted: ["block_id", "reason"],
  BlockAllocated: ["block_id", "request_id", "group", "index"],
  BlocksSkipped: ["request_id", "group", "num_blocks"],
  BlockTouched: ["block_id", "request_id", "group", "index", "ref_count"],
  BlockCached: ["block_id", "request_id", "group", "index", "block_hash", "mapped", "is_full"],
  BlockMerged: ["block_id", "into_block_id", "request_id", "group", "index", "ref_count"],
  BlockFreed: ["block_id", "request_id", "group", "index", "ref_count", "queue_end", "reason"],
  SlotsWritten: ["request_id", "group", "start", "runs"],
  ForwardRan: ["num_requests", "num_tokens"],
  TokensComputed: ["request_id", "num_computed_tokens"],
  TokenSampled: ["request_id", "token_id", "position"],
  ViolationFound: ["rule", "message", "request_ids", "block_ids", "step", "first_event"],
};

const DEFAULTS = { null_block: -1, is_loading: false, reason: "reused", is_full: true };

// What a recording's header says of its rows: names by index, where each field lies, and how to bring a row into our order.
export class Kinds {
  constructor(kinds) {
    this.names = kinds.map(([name]) => name);
    this.fields = kinds.map(([, ...fields]) => new Map(fields.map((field, i) => [field, i + 1])));
    this.index = new Map(this.names.map((name, i) => [name, i]));
    this.moves = this.names.map((name, i) => move(FIELDS[name], this.fields[i]));
  }

  // The row as the fold reads it: itself, unless its kind has its fields elsewhere.
  ordered(row) {
    const order = this.moves[row[0]];
    return order ? [row[0], ...order.map(([at, name]) => (at ? row[at] : DEFAULTS[name]))] : row;
  }
}

function move(ours, theirs) {
  if (!ours || ours.every((name, i) => theirs.get(name) === i + 1)) return null;
  return ours.map((name) => [theirs.get(name), name]);
}

// The phase an event belongs to, given the one before it; null outside a step and at its end.
export function phaseAfter(name, phase) {
  if (name === "StepStarted") return "schedule";
  if (phase === null || name === "StepEnded" || name === "StepRolledBack" || name === "EngineStarted") return null;
  if (name === "SlotsWritten" || name === "ForwardRan") return "forward";
  if (["BlocksSaved", "ViolationFound", "StepFailed"].includes(name)) return phase; // told where they happen to be noticed
  if (phase === "forward" && name === "TokenSampled") return "sample";
  return phase === "forward" || phase === "sample" ? "update" : phase;
}
