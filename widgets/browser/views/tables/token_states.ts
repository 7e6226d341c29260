// A token's state in a block table, and how it is drawn: in a slot, in a bar, in words. The state is shown by line and
// shape, the hue only says it again.

import { element as make } from "../../look/element.ts";
import { joined } from "../../model/names.ts";
import type { RequestRecord } from "../../model/requests.ts";
import type { Scene } from "../../model/scene.ts";
import { groupOf, legendOf } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";

// The slots of a block: the state of each, and the texts of the tokens that are known.
interface SlotRow {
  texts: string[];
  states: string[];
  index: number;
  size: number;
  numPrompt: number;
  firstSlot: number | null;
}

export const STATES = [
  ["hit", "cached", "found in the prefix cache: never computed for this request"],
  ["loaded", "loaded", "came from the external tier"],
  ["done", "computed", "computed in an earlier step"],
  ["plan", "scheduled", "will be computed in this step"],
  ["now", "this step", "computed in this step"],
  ["todo", "not yet", "no KV yet"],
  ["draft", "guessed", "a guess: the step computes it and keeps it if the model samples the same token"],
  ["garbage", "rejected", "KV of a rejected guess: overwritten before anything reads it"],
];
const OF_DRAFTS = ["draft", "garbage"];
const FAULTS: Record<string, string> = { hole: "never written, though it will be read", wrong: "another token's KV" };

// Room for the token that this step will sample is there from the step's beginning.
export function numPlaces(scene: Scene, facts: StepFacts, id: number, group: number) {
  const request = scene.request(id),
    { size } = groupOf(scene, group);
  const numComing = facts.sampled.has(id) || request.status === "finished" || facts.isIdle(id) ? 0 : 1;
  const numTokens = request.tokens.length + Math.max(numComing, request.drafts.length);
  return Math.max((request.tables[group] || []).length, Math.ceil(numTokens / size));
}

// The state of the token at a position of a request, in one group.
export function stateOf(request: RequestRecord, facts: StepFacts, id: number, group: number) {
  const now = facts.scheduled.get(id),
    hit = request.hit ?? 0,
    loaded = hit + request.external;
  const end = facts.finished.has(id) && now ? now.start + now.num : request.numComputed;
  const share = facts.slots.some((slots) => slots.request === id && slots.group === group) ? "now" : "plan";
  return (position: number) => {
    if (request.isGarbage(position)) return "garbage";
    if (position >= request.numTokens) return position < request.numTokens + request.drafts.length ? "draft" : "none";
    if (now && position >= now.start && position < now.start + now.num) return share;
    if (position >= end) return "todo";
    return position < hit ? "hit" : position < loaded ? "loaded" : "done";
  };
}

export function legend() {
  const made = legendOf(
    "le-tables-legend le-wrap le-fine",
    STATES.map(([state, words, title]) => [make("i", `le-tables-swatch le-tok-${state}`), words, title]),
  );
  STATES.forEach(([state], i) => made.children[i].classList.toggle("le-tables-of-drafts", OF_DRAFTS.includes(state)));
  return made;
}

// Tokens of a request whose keys and values are there, those of the step included as soon as they are written.
export function numWritten(request: RequestRecord, facts: StepFacts, id: number) {
  const now = facts.scheduled.get(id),
    isThere = facts.slots.some((slots) => slots.request === id && slots.group === 0);
  if (!now || !isThere) return request.numComputed;
  return Math.max(
    request.numComputed,
    Math.min(now.start + now.num, request.rejected?.[0] ?? request.numTokens, request.numTokens),
  );
}

const GENERATED = 5; // letters of room for a token that is not known yet

// Every slot of a block, empty ones too, with their numbers from firstSlot on, if it is given; a generated token has
// round ends. Wide as its text is long, where the style sheet asks for that.
export function slots({ texts, states, index, size, numPrompt, firstSlot }: SlotRow) {
  const made = make("div", `le-tables-slots${firstSlot === null ? "" : " le-tables-numbered"}`);
  states.forEach((state, i) => {
    const text = texts[i] || undefined,
      shape = text !== undefined && index * size + i >= numPrompt ? " le-tok-generated" : "";
    const slot = make("span", `le-tok le-tok-${state}${shape}`, text === undefined ? "" : text.trim() || "␣");
    slot.style.setProperty("--le-letters", String(index * size + i >= numPrompt ? GENERATED : lettersOf(text)));
    if (FAULTS[state])
      Object.assign(slot, { title: FAULTS[state], ariaLabel: `slot ${(firstSlot ?? 0) + i}: ${FAULTS[state]}` });
    else if (text) slot.title = `${text.trim()} · position ${index * size + i}`;
    if (firstSlot !== null) slot.prepend(make("small", "le-tok-slot", firstSlot + i));
    made.append(slot);
  });
  return made;
}

// Letters of room for a text: numbers are kept whole.
function lettersOf(text: string | undefined) {
  if (text === undefined) return GENERATED;
  const { length } = text.trim();
  return /^\s*\d+$/.test(text) ? Math.max(4, length) : Math.min(12, Math.max(1, length));
}

export function snippet({ texts, size }: { texts: string[]; size: number }) {
  return make("div", "le-tables-text", joined(texts).trimStart() + (texts.length && texts.length < size ? "…" : ""));
}

// A bar that knows what it shows.
export type BarElement = HTMLElement & { barSignature?: string };

export function bar(runs: [string, number][], size: number) {
  const made = make("div", "le-tables-bar");
  fillBar(made, runs, size);
  return made;
}

export function fillBar(target: BarElement, runs: [string, number][], total: number) {
  const signature = JSON.stringify([runs, total]);
  if (target.barSignature === signature) return;
  target.barSignature = signature;
  target.replaceChildren(
    ...runs
      .filter(([, length]) => length > 0)
      .map(([state, length]) => {
        const part = make("i", `le-tok-${state}`);
        part.style.width = `${(100 * length) / total}%`;
        return part;
      }),
  );
}
