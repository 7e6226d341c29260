// An event in one plain line, from its kind and fields alone: what there is to say where nobody has told it better.
import { requestName } from "../look/palette.ts";

const FREED_FOR = {
  finished: "it finished",
  aborted: "it was aborted",
  preempted: "it was preempted",
  merged: "its copy was merged",
  window: "it left the window",
};
const EVICTED_FOR = {
  reused: "it is given away",
  replaced: "a longer prefix took its place",
  reset: "the cache was reset",
  distrusted: "it may hold garbage",
};
const HIT_NOTHING = "and found nothing";

// text: token id -> readable text.
export function plainly(recording, i, text) {
  const kind = recording.kind(i),
    tell = TELL[kind];
  const get = (name) => recording.field(i, name);
  const inGroup = (group) => (recording.head.groups.length > 1 ? `, group ${group}` : "");
  return tell ? tell(get, text, inGroup) : kindWords(kind);
}

function who(get) {
  return requestName(get("request_id"));
}

function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function listed(ids) {
  if (ids.length > 6) return `#${ids[0]}, #${ids[1]} … #${ids.at(-1)}`;
  return ids.map((id) => `#${id}`).join(", ");
}

function place(get, group) {
  return `entry ${get("index")} of ${who(get)}'s table${group(get("group"))}`;
}

function left(get) {
  if (get("ref_count")) return `${counted(get("ref_count"), "reference")} left`;
  return `nobody holds it, it waits at the free queue's ${get("queue_end") ?? "end"}`;
}

const TELL = {
  EngineStarted: (get) => `The engine starts with ${get("num_blocks")} free blocks, edition ${get("edition")}`,
  StepStarted: (get) => `Step ${get("step")} begins`,
  StepEnded: (get) => `Step ${get("step")} is done`,
  StepFailed: (get) => `Step ${get("step")} failed in ${get("method")}: ${get("error")}: ${get("message")}`,
  StepRolledBack: (get) => `Step ${get("step")} is taken back: ${get("reason")}`,
  RequestAdded: (get) =>
    `${who(get)} joins the waiting queue with ${counted(get("token_ids").length, "prompt token")}, at most ${get("max_tokens")} more`,
  PrefixHit: (get) =>
    `${who(get)} looks its prompt up ${
      get("num_tokens")
        ? `and finds ${counted(get("num_tokens"), "token")} in ${listed(
            get("block_ids")
              .flat()
              .filter((id) => id >= 0),
          )}`
        : HIT_NOTHING
    }`,
  RequestScheduled: (get) =>
    `${who(get)} gets ${counted(get("num_tokens"), "token")} of this step to ${get("is_prefill") ? "prefill" : "decode"}, from position ${get("start")}`,
  RequestPreempted: (get) => `${who(get)} is preempted: it gave its blocks back and waits again`,
  RequestFinished: (get) => `${who(get)} has finished (${get("reason")})`,
  RequestForgotten: (get) => `${who(get)} had finished, and is kept no longer: newer requests have taken its place`,
  ExternalHit: (get) =>
    `The external tier holds ${counted(get("num_tokens"), "more token")} of ${who(get)}${get("is_loading") ? "; they are on their way" : ""}`,
  BlocksLoaded: (get) =>
    `${counted(get("transfers").length, "block")} of ${who(get)} came from the external tier: ${listed(get("transfers").map((one) => one[2]))}`,
  BlocksSaved: (get) =>
    `${counted(get("transfers").length, "block")} of ${who(get)} went to the external tier: ${listed(get("transfers").map((one) => one[2]))}`,
  LoadFailed: (get) => `The external tier could not deliver to ${who(get)}: ${get("reason")}`,
  PrefixCacheReset: () => "All cached content is forgotten",
  BlockEvicted: (get) => `#${get("block_id")} forgets its content: ${EVICTED_FOR[get("reason")] ?? get("reason")}`,
  BlockAllocated: (get, text, group) => `#${get("block_id")} goes from the free queue to ${place(get, group)}`,
  BlocksSkipped: (get, text, group) =>
    `${who(get)} skips ${counted(get("num_blocks"), "block")} outside its window${group(get("group"))}`,
  BlockTouched: (get, text, group) =>
    `#${get("block_id")} is shared: ${place(get, group)}, ${counted(get("ref_count"), "reference")} now`,
  BlockCached: (get, text, group) =>
    `#${get("block_id")} is in the map as ${get("block_hash").slice(0, 8)}${get("is_full") ? "" : " (a tail)"}${get("mapped").length ? "" : ", left out as a duplicate"}: ${place(get, group)}`,
  BlockMerged: (get, text, group) =>
    `#${get("block_id")} is merged into its twin #${get("into_block_id")}, which has ${counted(get("ref_count"), "reference")} now: ${place(get, group)}`,
  BlockFreed: (get) =>
    `${who(get)} lets go of #${get("block_id")} because ${FREED_FOR[get("reason")] ?? get("reason")}; ${left(get)}`,
  SlotsWritten: (get, text, group) =>
    `K and V of ${who(get)} are written from position ${get("start")} on: ${listed(get("runs").map((run) => run[0]))}${group(get("group"))}`,
  ForwardRan: (get) =>
    `The model computed ${counted(get("num_tokens"), "token")} of ${counted(get("num_requests"), "request")}`,
  TokensComputed: (get) => `${who(get)} has K and V of ${counted(get("num_computed_tokens"), "token")}`,
  TokenSampled: (get, text) => `${who(get)} gets the token “${text(get("token_id"))}” at position ${get("position")}`,
  ViolationFound: (get) => `Violation of ${get("rule")}: ${get("message")}`,
};

// The kind as words: "BlockAllocated" -> "block allocated".
export function kindWords(kind) {
  return kind.replace(/(?!^)([A-Z])/g, " $1").toLowerCase();
}
