// One sentence for an event, from the event alone. labengine_widgets/words/phrases.json has the words,
// phrases.py beside it describes the format.

import table from "../../labengine_widgets/words/phrases.json";
import { DEFAULTS } from "./event_rows.ts";
import type { FieldValue } from "./events.ts";
import { counted, groupSuffix, hashName, listed, readable, requestName, separated } from "./names.ts";
import type { Recording } from "./recording.ts";
import type { Scene } from "./scene.ts";
import type { Mention, Sentence } from "./sentence.ts";
import { joined } from "./sentence.ts";

const MAX_IMAGE = 40;
const MAX_TEXT = 200;
const PLACEHOLDER = /\{(\w+)(?:\/(\w+)| ([^{}]+))?\}/g;

// A template, or a choice by the value of one field.
type Phrase = string | { [field: string]: { [value: string]: Phrase } };
type Field = <Name extends string>(name: Name) => FieldValue<Name>;
// The readable text of a token.
export type TokenText = (token: number) => string;

const EVENTS: Record<string, Phrase> = table.events;
const STATES: Record<keyof typeof table.states, Phrase> = table.states;
const WORDS: Record<keyof typeof table.words, Record<string, string>> = table.words;

// The sentence for an event of a recording. Without `tokenText` a token is its id.
export function phrase(recording: Recording, event: number, tokenText?: TokenText): Sentence {
  const kind = recording.kind(event);
  const get = ((name: string) => {
    const known = recording.field(event, name);
    return known === undefined ? DEFAULTS[name] : known; // an older recording lacks some fields
  }) as Field;
  const value = (name: string) => (name in VALUES ? VALUES[name](get, tokenText) : get(name));
  const mentioned = (name: string) => own(MENTIONS, name)?.(get);
  return written(own(EVENTS, kind) ?? `${kind} happens.`, value, mentioned);
}

// The sentence for a lab's state, with its numbers.
export function statePhrase(name: keyof typeof STATES, numbers: Record<string, number | string>) {
  return written(STATES[name], (field) => numbers[field]);
}

// Captions where Python's are missing: while a lab runs, and at a recording's start.
export function runningWords(scene: Scene) {
  const statuses = [...scene.requests.values()].map(({ status }) => status),
    running = statuses.filter((status) => status === "running").length,
    finished = statuses.filter((status) => status === "finished").length;
  return statePhrase("running", {
    step: scene.step,
    num_running: running,
    num_waiting: statuses.length - running - finished,
    used_blocks: usedBlocks(scene),
  });
}

export function openingWords(scene: Scene) {
  const { used, lost } = scene.score;
  return scene.step
    ? statePhrase("stepped", { step: scene.step, used_blocks: usedBlocks(scene), lost })
    : statePhrase("new", { num_blocks: scene.numBlocks, used });
}

// "21 blocks used, 12 evictable".
function usedBlocks({ score: { used, evictable } }: Scene) {
  return `${counted(used, "block")} used${evictable ? `, ${evictable} evictable` : ""}`;
}

// A table's word for a value; the value itself if the table has none.
export function word(words: keyof typeof table.words, value: unknown) {
  return own(WORDS[words], String(value)) ?? readable(String(value), MAX_TEXT);
}

// A table's entry under a name that may come from a recording ("constructor" is not an entry).
function own<Entry>(table: Record<string, Entry>, name: string): Entry | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

function written(
  phrase: Phrase,
  value: (name: string) => unknown,
  mentioned: (name: string) => Sentence | undefined = () => undefined,
): Sentence {
  let said = phrase;
  while (typeof said !== "string") {
    const [[name, choices]] = Object.entries(said);
    said = own(choices, String(value(name))) ?? choices["*"];
  }
  const sentence: Sentence = [];
  let end = 0;
  for (const {
    0: { length },
    1: name,
    2: words,
    3: noun,
    index,
  } of said.matchAll(PLACEHOLDER)) {
    sentence.push(said.slice(end, index), ...(mentioned(name) ?? [filled(value(name), words, noun)]));
    end = index + length;
  }
  return joined([...sentence, said.slice(end)]);
}

function filled(found: unknown, words?: string, noun?: string) {
  if (noun) return counted(typeof found === "number" ? found : (found as unknown[]).length, noun);
  return words ? word(words as keyof typeof table.words, found) : readable(String(found), MAX_TEXT);
}

// What the tier did by itself, in clauses.
function tierChange(added: unknown[], dropped: unknown[], pinned: [number, string, number][]) {
  const numUnpinned = pinned.filter(([, , pins]) => !pins).length,
    clauses: [number, string, string][] = [
      [dropped.length, "leaves the external tier", "leave the external tier"],
      [
        added.length,
        "is stored in the external tier by another engine",
        "are stored in the external tier by another engine",
      ],
      [
        pinned.length - numUnpinned,
        "of the external tier is pinned by transfers",
        "of the external tier are pinned by transfers",
      ],
      [numUnpinned, "of the external tier is no longer pinned", "of the external tier are no longer pinned"],
    ];
  return clauses
    .filter(([num]) => num)
    .map(([num, one, many]) => `${counted(num, "block")} ${num === 1 ? one : many}`)
    .join("; ");
}

function positions(first: number, numTokens: number) {
  return numTokens === 1 ? `position ${first}` : `positions ${first} to ${first + numTokens - 1}`;
}

// A prompt's images, in brackets; empty for a prompt without images.
function withImages(images: FieldValue<"images">) {
  const named = images.map(([start, length, name]) => `“${readable(name, MAX_IMAGE)}” at ${positions(start, length)}`);
  return named.length ? ` (${named.join(", ")})` : "";
}

// Which blocks the map lists under a hash: none of them, only others, this one and others, this one alone.
function mapping(mapped: number[], block: number) {
  if (!mapped.includes(block)) return mapped.length ? "others" : "none";
  return mapped.length > 1 ? "shared" : "alone";
}

function nodeNames(ids: number[]) {
  return `Node${ids.length > 1 ? "s" : ""} ${listed(ids.map(String))}`;
}

function blocks(ids: number[]): Sentence {
  return separated([...new Set(ids)].map((id): Mention => ["block", id]));
}

// What a template may name that a reader can point at.
const MENTIONS: Record<string, (get: Field) => Sentence> = {
  request: (get) => [["request", get("request_id")]],
  from_request: (get) => [["request", get("from_request_id") as number]],
  block: (get) => [["block", get("block_id")]],
  into_block: (get) => [["block", get("into_block_id")]],
  null_block_name: (get) => [["block", get("null_block")]],
  entry: (get) => [["request", get("request_id")], `'s table[${get("index")}]${groupSuffix(get("group"))}`],
  mapped_blocks: (get) => blocks(get("mapped")),
  transferred_blocks: (get) => blocks(get("transfers").map((transfer) => transfer[2])),
  named_blocks: (get) => blocks(get("block_ids") as number[]),
  written_blocks: (get) => blocks(get("runs").map((run) => run[0])),
};

// Other values that a template may name besides fields.
const VALUES: Record<string, (get: Field, tokenText?: TokenText) => string> = {
  of_group: (get) => groupSuffix(get("group")),
  hash: (get) => hashName(get("block_hash")),
  mapping: (get) => mapping(get("mapped"), get("block_id")),
  parent_node: (get) => (get("parent_id") ? `node ${get("parent_id")}` : "the root"),
  touched_nodes: (get) => `${nodeNames(get("node_ids"))} ${get("node_ids").length === 1 ? "is" : "are"}`,
  with_images: (get) => withImages(get("images")),
  other_request: (get) => requestName(get("other_request_id")),
  tier_change: (get) => tierChange(get("added"), get("dropped"), get("pinned")),
  scheduled_positions: (get) => positions(get("start"), get("num_tokens")),
  written_positions: (get) =>
    positions(
      get("start"),
      get("runs").reduce((sum, run) => sum + run[2], 0),
    ),
  token: (get, text) => (text ? `“${text(get("token_id"))}”` : `token ${get("token_id")}`),
};
