// The places of a request's block table: cards with a slot per token, cards with their text, or chips.

import { element as make } from "../../look/element.ts";
import type { Violation } from "../../model/alarms.ts";
import { violationOf } from "../../model/alarms.ts";
import { templateWord } from "../../model/chat_template.ts";
import { imageWord, stateWords } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import type { Side } from "../../model/side.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { dressBead, groupOf, isNull, lookOf, middleLeftOut, runsOf, violated } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import type { ViewHost } from "../view.ts";
import { bar, numPlaces, slots, snippet, stateOf } from "./token_states.ts";

const MAX_TEXTS = 24; // tokens of a card that has no room for slots
const SPARED = 2; // so few are not left out
const FEW = 6; // chips of a folded row that have room for their numbers
const LEAST_GAP = 8; // places without a block, in a row, that are drawn as one line instead of a box each

// How a request's places are drawn, and how many at most.
export interface TableLayout {
  kind: "chips" | "slots" | "texts";
  limit: number;
  isFolded?: boolean;
  hasNumbers?: boolean;
}

// The interface of the block tables view.
export interface TablesView {
  scene: Scene;
  facts: StepFacts;
  queuePlaces: Map<number, number> | null;
  stage: ViewHost;
  side: Side;
  violations: Violation[];
}

// A place of a block table. look: of its block, if there is one; was: the block before a merge or a copy.
export interface TablePlace extends Keyed {
  request: number;
  group: number;
  index: number;
  id: number | undefined;
  look: Look | null;
  was: number | undefined;
  found: number | undefined;
  states: string[];
  runs: [string, number][];
  texts: string[];
  size: number;
  firstSlot: number | null;
  keepsStates: boolean;
  broken: Violation | null;
  numPrompt: number;
}

// Places without a block, as one line.
interface Gap extends Keyed {
  gap: string;
}

export type ShownPlace = TablePlace | Gap | LeftOut;
export type CellsElement = HTMLElement & { arranged?: string };

export function placesOf(view: TablesView, request: number, group: number, layout: TableLayout): TablePlace[] {
  const { scene, facts, side } = view,
    { kind: drawn, hasNumbers } = layout,
    record = scene.request(request),
    { size, kind } = groupOf(scene, group),
    keepsStates = kind === "state";
  const table = record.tables[group] || [],
    stateAt = stateOf(record, facts, request, group),
    shown = record.tokensWithDrafts,
    numTexts = keepsStates || drawn === "chips" ? 0 : drawn === "slots" ? size : MAX_TEXTS;
  const textAt = (position: number) => {
    const image = record.store.imageAt(position);
    if (image) return ` ${imageWord(image)}`;
    return templateWord(record.store, position, size, (one) => side.text(one)) ?? side.text(shown[position]);
  };
  return Array.from({ length: numPlaces(scene, facts, request, group) }, (_, index) => {
    const id = table[index],
      look = isNull(scene, id) ? null : lookOf(scene, id),
      found = look ? undefined : facts.hits.get(request)?.blocks?.[group]?.[index],
      was = facts.replaced.get(`${request}:${group}:${index}`);
    const first = index * size,
      numTokens = Math.max(0, Math.min(shown.length - first, size, numTexts)),
      states = Array.from({ length: size }, (_, i): string => stateAt(first + i)),
      texts = Array.from({ length: numTokens }, (_, i) => textAt(first + i));
    // A token in a slot that was written by mistake, or that is not in its slot.
    for (const [offset, token] of look?.block.strays || []) {
      if (token !== null && token === shown[first + offset]) continue;
      states[offset] = token === null ? "hole" : "wrong";
      while (texts.length < offset) texts.push("");
      texts[offset] = token === null ? "–" : side.text(token);
    }
    const runs = runsOf(states),
      firstSlot = look && hasNumbers && !keepsStates ? id * size : null,
      broken = look && violationOf(view.violations, { block: id, request });
    const facets = [
        broken?.event,
        drawn,
        id,
        look || record.status,
        look?.signature,
        was,
        found,
        runs,
        texts,
        firstSlot,
      ],
      place = {
        request,
        group,
        index,
        id,
        look,
        was,
        found,
        states,
        runs,
        texts,
        size,
        firstSlot,
        keepsStates,
        broken,
      };
    return { ...place, key: `${drawn}${index}`, signature: JSON.stringify(facets), numPrompt: record.numPrompt };
  });
}

// What is drawn of them: chips without a block are one line where they are many, and a long table's middle is left out.
export function shownPlaces(view: TablesView, places: TablePlace[], { kind, limit }: TableLayout): ShownPlace[] {
  const shown = kind === "chips" ? withGaps(view, places) : places;
  return kind === "chips" && shown.length > limit + SPARED ? middleLeftOut(shown, limit) : shown;
}

function withGaps(view: TablesView, places: TablePlace[]): (TablePlace | Gap)[] {
  const shown: (TablePlace | Gap)[] = [];
  for (let i = 0; i < places.length; ) {
    const words = places[i].look ? null : noBlockWords(view, places[i], false);
    let end = i + 1;
    while (
      words !== null &&
      end < places.length &&
      !places[end].look &&
      noBlockWords(view, places[end], false) === words
    )
      end += 1;
    if (words !== null && end - i >= LEAST_GAP)
      shown.push({ key: `gap${i}`, signature: `${end} ${words}`, gap: `${i}–${end - 1}: ${words}` });
    else shown.push(...places.slice(i, end));
    i = end;
  }
  return shown;
}

export function paintPlace(view: TablesView, cell: HTMLElement, item: ShownPlace, layout: TableLayout) {
  if ("more" in item) return paintWords(cell, `… ${item.more.toLocaleString("en")} more …`);
  if ("gap" in item) return paintWords(cell, item.gap, " le-tables-gap");
  paintCell(view, cell, item, layout);
  const parts = [indexOf(item), targetOf(view, item, layout.kind === "chips")];
  if (item.keepsStates) cell.replaceChildren(...parts, ...stateLine(item));
  else if (layout.kind === "slots") cell.replaceChildren(...parts, slots(item));
  else if (layout.kind === "texts") cell.replaceChildren(...parts, snippet(item), bar(item.runs, item.size));
  else cell.replaceChildren(...parts, bar(item.runs, item.size));
}

function paintCell(
  { scene }: TablesView,
  cell: HTMLElement,
  { look, id, group, was, request, index }: TablePlace,
  { kind }: TableLayout,
) {
  const { window, kind: ofGroup } = groupOf(scene, group),
    isOutside = !look && id !== undefined && (window || ofGroup === "state");
  cell.className =
    `le-tables-${kind === "chips" ? "chip" : "card"}${look ? "" : " le-tables-unplaced"}` +
    `${isOutside ? " le-tables-outside" : ""}${was === undefined ? "" : " le-tables-moved"}`;
  cell.dataset.anchor = `row:${request}:${group}:${index}`;
  if (look) cell.dataset.block = String(id);
  else delete cell.dataset.block;
}

// The number of tokens of an entry's state, instead of its tokens; the bar of a state that saw a rejected guess.
function stateLine({ look, size }: TablePlace) {
  const state = look?.block.state ?? null,
    made = make("span", "le-tables-state", state === null ? "" : `after ${state.toLocaleString("en")}`);
  if (state !== null) made.title = `${stateWords(state)} tokens`;
  return look?.block.garbage ? [made, bar([["garbage", size]], size)] : [made];
}

function indexOf({ index, size, keepsStates }: TablePlace) {
  const made = make("span", "le-tables-index le-fine", index);
  made.dataset.span = size > 1 ? `${index * size}–${(index + 1) * size - 1}` : `${index}`;
  made.title = keepsStates
    ? `entry ${index} of the request: its states after ${index * size + 1} to ${(index + 1) * size} tokens`
    : `block ${index} of the request: its tokens ${made.dataset.span}`;
  return made;
}

function targetOf(view: TablesView, place: TablePlace, isChip: boolean) {
  const made = make("span", "le-tables-target le-row");
  if (!isChip) made.append(make("span", "le-tables-arrow", "→"));
  if (place.was !== undefined) made.append(make("s", "", `#${place.was}`));
  made.append(
    place.look ? bead(place.look) : make("span", "le-tables-none le-clip", noBlockWords(view, place, isChip)),
  );
  if (place.broken) made.append(violated(place.broken));
  return made;
}

// A null entry is outside the window, or has no state any more; in a full group, its block has just been freed.
function noBlockWords({ scene, facts, stage }: TablesView, { request, id, group, found }: TablePlace, isChip: boolean) {
  const isWaiting = scene.request(request).status === "waiting" && facts.hits.has(request);
  const { isPair } = stage; // and less room
  if (isWaiting && found !== undefined && found !== scene.nullBlock)
    return isChip ? `#${found}` : isPair ? `#${found} found` : `found in #${found}`;
  if (id !== undefined && groupOf(scene, group).window) return isChip ? "⊘" : isPair ? "outside" : "outside window";
  if (id !== undefined && groupOf(scene, group).kind === "state") return isChip ? "⊘" : "no state";
  if (id !== undefined) return isChip ? "–" : "freed";
  const { status, numComputed, tables } = scene.request(request);
  const isGone =
    !isWaiting && (status === "finished" || status === "preempted" || (numComputed > 0 && !tables[group]?.length));
  return isChip ? "–" : isGone ? "freed" : isPair ? "none yet" : "no block yet";
}

// Written where it is new: a style written again would have all cells styled again.
export function arrange(
  cells: CellsElement,
  { kind, isFolded, hasNumbers }: TableLayout,
  size: number,
  {
    numShown,
    numBlocks,
    hasSaid,
    keepsStates,
  }: { numShown: number; numBlocks: number; hasSaid: boolean; keepsStates: boolean },
) {
  const isLong = isFolded && numShown > FEW,
    digits = String(numBlocks).length,
    stateRoom = keepsStates && !isLong ? 44 : 0, // "after 12" beside the block
    arranged = [kind, size, isLong, hasNumbers, digits, hasSaid, stateRoom].join(),
    columns = size > 8 ? 4 : size > 1 ? 2 : 1;
  if (cells.arranged === arranged) return;
  cells.arranged = arranged;
  cells.className =
    `le-tables-cells le-wrap le-tables-${kind}${isLong ? " le-tables-close" : ""}` +
    `${hasNumbers ? " le-tables-with-numbers" : ""}`;
  cells.style.setProperty("--le-columns", String(columns));
  cells.style.setProperty("--le-card", size > 8 ? "212px" : "122px");
  cells.style.setProperty(
    "--le-chip",
    `${(isLong ? 66 : 92) + 8 * digits + 12 * Math.max(0, digits - 2) + (hasSaid ? 32 : 0) + stateRoom}px`,
  ); // a letter with its number, a count or a struck number may come: nothing moves
}

function bead(look: Look) {
  const made = make("span");
  dressBead(made, look);
  delete made.dataset.block; // the cell around it stands for the block
  return made;
}

function paintWords(cell: HTMLElement, words: string, className = "") {
  cell.className = `le-tables-left-out le-quiet${className}`;
  for (const name of ["block", "anchor"]) delete cell.dataset[name];
  cell.replaceChildren(words);
}
