// An event in one plain line, from its kind and fields alone: what there is to say where nobody has told it better.

import type { EventKind, FieldReader } from "../model/events.ts";
import { requestName } from "../model/names.ts";
import type { Recording } from "../model/recording.ts";

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
export function plainly(recording: Recording, i: number, text: (token: number) => string) {
  const kind = recording.kind(i) as EventKind,
    describe = DESCRIPTIONS[kind] as Describe<never> | undefined;
  // the table pairs each kind with its fields
  const get = ((name: string) => recording.field(i, name)) as FieldReader<never>;
  const inGroup = (group: number) => (recording.head.groups.length > 1 ? `, group ${group}` : "");
  return describe ? describe(get, text, inGroup) : kindWords(kind);
}

type Describe<Kind extends EventKind> = (
  get: FieldReader<Kind>,
  text: (token: number) => string,
  inGroup: (group: number) => string,
) => string;

// Reads the request of an event that has one.
type RequestReader = (name: "request_id") => number;

function requestOf(get: RequestReader) {
  return requestName(get("request_id"));
}

function counted(number: number, noun: string) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function listed(ids: number[]) {
  if (ids.length > 6) return `#${ids[0]}, #${ids[1]} … #${ids.at(-1)}`;
  return ids.map((id) => `#${id}`).join(", ");
}

function place(get: (name: "index" | "request_id" | "group") => number, inGroup: (group: number) => string) {
  return `entry ${get("index")} of ${requestOf(get)}'s table${inGroup(get("group"))}`;
}

function left(get: FieldReader<"BlockFreed">) {
  if (get("ref_count")) return `${counted(get("ref_count"), "reference")} left`;
  return `nobody holds it, it waits at the free queue's ${get("queue_end") ?? "end"}`;
}

const DESCRIPTIONS: { [Kind in EventKind]?: Describe<Kind> } = {
  EngineStarted: (get) => `The engine starts with ${get("num_blocks")} free blocks, edition ${get("edition")}`,
  StepStarted: (get) => `Step ${get("step")} begins`,
  StepEnded: (get) => `Step ${get("step")} is done`,
  StepFailed: (get) => `Step ${get("step")} failed in ${get("method")}: ${get("error")}: ${get("message")}`,
  StepRolledBack: (get) => `Step ${get("step")} is taken back: ${get("reason")}`,
  RequestAdded: (get) =>
    `${requestOf(get)} joins the waiting queue with ${counted(get("token_ids").length, "prompt token")}, at ` +
    `most ${get("max_tokens")} more`,
  PrefixHit: (get) =>
    `${requestOf(get)} looks its prompt up ${
      get("num_tokens")
        ? `and finds ${counted(get("num_tokens"), "token")} in ${listed(
            get("block_ids")
              .flat()
              .filter((id) => id >= 0),
          )}`
        : HIT_NOTHING
    }`,
  RequestScheduled: (get) =>
    `${requestOf(get)} gets ${counted(get("num_tokens"), "token")} of this step to ` +
    `${get("is_prefill") ? "prefill" : "decode"}, from position ${get("start")}`,
  RequestPreempted: (get) => `${requestOf(get)} is preempted: it gave its blocks back and waits again`,
  RequestFinished: (get) => `${requestOf(get)} has finished (${get("reason")})`,
  RequestForgotten: (get) =>
    `${requestOf(get)} had finished, and is kept no longer: newer requests have taken its place`,
  ExternalHit: (get) =>
    `The external tier holds ${counted(get("num_tokens"), "more token")} of ${requestOf(get)}` +
    `${get("is_loading") ? "; they are on their way" : ""}`,
  BlocksLoaded: (get) =>
    `${counted(get("transfers").length, "block")} of ${requestOf(get)} came from the external tier: ` +
    `${listed(get("transfers").map((one) => one[2]))}`,
  BlocksSaved: (get) =>
    `${counted(get("transfers").length, "block")} of ${requestOf(get)} went to the external tier: ` +
    `${listed(get("transfers").map((one) => one[2]))}`,
  LoadFailed: (get) => `The external tier could not deliver to ${requestOf(get)}: ${get("reason")}`,
  PrefixCacheReset: () => "All cached content is forgotten",
  BlockEvicted: (get) => `#${get("block_id")} forgets its content: ${EVICTED_FOR[get("reason")] ?? get("reason")}`,
  BlockAllocated: (get, _text, inGroup) => `#${get("block_id")} goes from the free queue to ${place(get, inGroup)}`,
  BlocksSkipped: (get, _text, inGroup) =>
    `${requestOf(get)} skips ${counted(get("num_blocks"), "block")} outside its window${inGroup(get("group"))}`,
  BlockTouched: (get, _text, inGroup) =>
    `#${get("block_id")} is shared: ${place(get, inGroup)}, ${counted(get("ref_count"), "reference")} now`,
  BlockCached: (get, _text, inGroup) =>
    `#${get("block_id")} is in the map as ${get("block_hash").slice(0, 8)}` +
    `${get("is_full") ? "" : " (a tail)"}${get("mapped").length ? "" : ", left out as a duplicate"}: ` +
    `${place(get, inGroup)}`,
  BlockMerged: (get, _text, inGroup) =>
    `#${get("block_id")} is merged into its twin #${get("into_block_id")}, which has ` +
    `${counted(get("ref_count"), "reference")} now: ${place(get, inGroup)}`,
  BlockFreed: (get) =>
    `${requestOf(get)} lets go of #${get("block_id")} because ${FREED_FOR[get("reason")] ?? get("reason")}; ` +
    `${left(get)}`,
  SlotsWritten: (get, _text, inGroup) =>
    `K and V of ${requestOf(get)} are written from position ${get("start")} on: ` +
    `${listed(get("runs").map((run) => run[0]))}${inGroup(get("group"))}`,
  ForwardRan: (get) =>
    `The model computed ${counted(get("num_tokens"), "token")} of ${counted(get("num_requests"), "request")}`,
  TokensComputed: (get) => `${requestOf(get)} has K and V of ${counted(get("num_computed_tokens"), "token")}`,
  TokenSampled: (get, text) =>
    `${requestOf(get)} gets the token “${text(get("token_id"))}” at position ${get("position")}`,
  ViolationFound: (get) => `Violation of ${get("rule")}: ${get("message")}`,
};

// The kind as words: "BlockAllocated" -> "block allocated".
export function kindWords(kind: string) {
  return kind.replace(/(?!^)([A-Z])/g, " $1").toLowerCase();
}
