// One step's batch: how many tokens each request computes, the slot every one's KV goes to, and the context that
// attention reads.

import { element as make, write as say, targetOf } from "../../look/element.ts";
import { groupName, requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { arrows } from "../arrows.ts";
import { Marks } from "../marks.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { badge, dressBead, groupOf, keep, lookOf, middleLeftOut, moreText, runsOf } from "../pieces.ts";
import type { ScheduledShare, StepFacts, WrittenSlots } from "../step_facts.ts";
import { factsAt, shadowAt } from "../step_facts.ts";
import type { CsvRow, PaintMoment, ViewHost } from "../view.ts";
import type { Context, Faults, MappedToken, SlotState } from "./attention.ts";
import { contextOf, faultsIn, mappingOf, SLOT_WORDS } from "./attention.ts";

export const title = "Step";

const MAX_REQUESTS = 64;
const MAX_TOKENS_IN_ALL = 320;
const MAX_BLOCKS_IN_ALL = 320;
const MAX_SQUARES = 8;
const NOTHING = new Changes();
const KEYS: (keyof typeof SLOT_WORDS)[] = ["read", "fresh", "cut", "ahead", "hole", "wrong"];

export function create(stage: ViewHost, side: Side) {
  return new Step(stage, side);
}

// How much of each request there is room for, and the tokens of the largest share.
interface Room {
  tokens: number;
  blocks: number;
  most: number;
}

// A block of a context, or those left of the window told at once. look: null where the table has no block.
interface ContextItem extends Keyed {
  index: number;
  block: number | null;
  states: SlotState[];
  numCut?: number;
  look?: Look | null;
}

interface TokenItem extends Keyed, MappedToken {
  text: string;
}

interface GroupItem extends Keyed {
  group: number;
  rule: Group;
  id: number;
  query: number;
  context: Context;
  faults: Faults;
  tokens: (TokenItem | LeftOut)[];
  blocks: (ContextItem | LeftOut)[];
  isWritten: boolean;
  now: ScheduledShare;
  numWrong: number;
}

interface RequestItem extends Keyed {
  id: number;
  now: ScheduledShare;
  groups: GroupItem[];
  share: number;
}

interface TokenPlace {
  id: number;
  group: number;
  isWritten: boolean;
  isQuery: boolean;
  size: number;
}

type RequestElement = ReturnType<typeof makeRequest>;
type GroupElement = ReturnType<typeof makeGroup>;

class Step {
  stage: ViewHost;
  side: Side;
  queries = new Map<string, number>();
  known = new Map<number, { item: RequestItem; name: string }>();
  element = make("div", "le-step");
  summary = make("p", "le-step-summary");
  list = make("div", "le-step-list");
  marks: Marks;
  scene!: Scene;
  facts!: StepFacts;
  start!: number;
  forward?: number | null;
  before!: Scene;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "The step's batch: tokens, slots, and what attention reads");
    this.list.setAttribute("role", "list");
    this.element.append(this.summary, legend(), this.list);
    this.element.addEventListener("click", (event) =>
      this.choose(targetOf(event).closest?.<HTMLElement>("[data-position]")),
    );
    this.element.addEventListener(
      "keydown",
      (event) => event.key === "Enter" && this.choose(this.element.querySelector<HTMLElement>(".le-at[data-position]")),
      true,
    );
    this.marks = new Marks(stage, side, this.element);
    arrows(this.element, stage);
  }

  // The query whose context is drawn: the last one, or the one chosen.
  choose(token: HTMLElement | null) {
    const { of, position } = token?.dataset ?? {};
    if (of === undefined) return;
    this.queries.set(of, Number(position));
    this.known.delete(Number(of.split(":")[0]));
    this.draw(NOTHING);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const facts = factsAt(this.side.recording, moment);
    const isNew = changes.all || facts.start !== this.start || facts.forward !== this.forward;
    if (facts.start !== this.start) this.queries.clear();
    if (isNew) this.known.clear();
    else if (facts.forward || (!changes.requests.size && !changes.blocks.size)) return;
    this.scene = scene;
    this.facts = facts;
    this.start = facts.start;
    this.forward = facts.forward;
    this.draw(changes);
  }

  // From the forward pass on, the tables as it had them: what the update merges or frees later was read all the same.
  draw(changes: Pick<Changes, "requests" | "blocks">) {
    const { facts, scene } = this;
    this.before = facts.forward ? shadowAt(this.side.recording, "forward", facts.forward) || scene : scene;
    const ids = [...facts.scheduled.keys()],
      shown = [...facts.scheduled].slice(0, MAX_REQUESTS);
    const most = Math.max(1, ...[...facts.scheduled.values()].map(({ num }) => num));
    this.paintSummary(ids);
    this.element.classList.toggle("le-step-empty", !ids.length);
    const share = {
      tokens: Math.max(4, Math.floor(MAX_TOKENS_IN_ALL / Math.max(1, shown.length))),
      blocks: Math.max(6, Math.floor(MAX_BLOCKS_IN_ALL / Math.max(1, shown.length))),
      most,
    };
    const items: (RequestItem | LeftOut)[] = shown.map(([id, now]) => this.itemOnce(id, now, share, changes));
    if (ids.length > shown.length) items.push({ key: "more", signature: ids.length, more: ids.length - shown.length });
    keep<RequestItem | LeftOut, HTMLElement>(
      this.list,
      items,
      (item) => ("more" in item ? make("p", "le-quiet") : makeRequest(item.id)),
      (child, item) =>
        "more" in item ? say(child, moreText(item.more, "requests")) : this.paintRequest(child as RequestElement, item),
    );
    this.marks.again();
  }

  paintSummary(ids: number[]) {
    const { facts } = this;
    if (!facts.isStep) return say(this.summary, "No step yet.");
    const total = [...facts.scheduled.values()].reduce((sum, { num }) => sum + num, 0);
    const numFaults = facts.slots.reduce(
      (sum, slots) => sum + mappingOf(this.before, slots).filter(({ slot, wanted }) => slot !== wanted).length,
      0,
    );
    const parts = [
      `Step ${facts.step}: ${ids.length} ${ids.length === 1 ? "request" : "requests"}, ` +
        `${total.toLocaleString("en")} ${total === 1 ? "token" : "tokens"}`,
    ];
    parts.push(
      facts.forward
        ? "KV written"
        : facts.slots.length
          ? "KV is being written"
          : ids.length
            ? "not computed yet"
            : "no request is scheduled yet",
    );
    if (numFaults) parts.push(`✗ ${numFaults} to the wrong slot`);
    if (facts.isRolledBack) parts.push("rolled back");
    this.summary.classList.toggle("le-step-has-faults", numFaults > 0);
    say(this.summary, parts.join(" · "));
  }

  // Worked out again when the request changed, or one of the blocks drawn for it.
  itemOnce(id: number, now: ScheduledShare, share: Room, changes: Pick<Changes, "requests" | "blocks">) {
    const known = this.known.get(id),
      name = JSON.stringify(share);
    const isSame =
      known &&
      known.name === name &&
      !changes.requests.has(id) &&
      !known.item.groups.some(({ blocks }) =>
        blocks.some((one) => "block" in one && one.block !== null && changes.blocks.has(one.block)),
      );
    if (isSame) return known.item;
    const item = this.item(id, now, share);
    this.known.set(id, { item, name });
    return item;
  }

  item(id: number, now: ScheduledShare, share: Room): RequestItem {
    const { facts, before } = this,
      written = facts.slots.filter((slots) => slots.request === id);
    const groups = before.groups.map((_, group) =>
      this.groupItem(
        id,
        group,
        now,
        written.filter((slots) => slots.group === group),
        share,
      ),
    );
    const signature = JSON.stringify([now, share.most, groups.map((group) => group.signature)]);
    return { key: id, id, now, groups, signature, share: now.num / share.most };
  }

  groupItem(id: number, group: number, now: ScheduledShare, written: WrittenSlots[], share: Room): GroupItem {
    const { before, side, stage } = this,
      rule = groupOf(before, group),
      last = now.start + now.num - 1;
    const isWritten = written.length > 0;
    const mapping = (isWritten ? written : [this.planned(id, group, now)]).flatMap((slots) => mappingOf(before, slots));
    const query = Math.min(last, Math.max(now.start, this.queries.get(`${id}:${group}`) ?? last));
    const context = contextOf(before, id, group, query, now.start),
      faults = faultsIn(context, rule.size);
    const tokens = mapping.map(
      (slot): TokenItem => ({
        key: slot.position,
        ...slot,
        text: slot.token === undefined ? "" : stage.text(side, slot.token),
      }),
    );
    const wrong = tokens.filter(({ slot, wanted }) => slot !== wanted);
    const shownTokens =
      wrong.length && tokens.length > share.tokens
        ? [...wrong.slice(0, share.tokens), { key: "more", more: tokens.length - Math.min(wrong.length, share.tokens) }]
        : middleLeftOut(tokens, share.tokens);
    const drawn = context.blocks.map((one): ContextItem => ({ key: one.index, ...one })),
      blocks = middleLeftOut(withoutCut(drawn), share.blocks, 0.25);
    for (const item of blocks)
      if ("states" in item) item.look = item.block === null ? null : lookOf(before, item.block);
    const signature = JSON.stringify([
      isWritten,
      query,
      faults,
      shownTokens,
      blocks.map((item) => ("more" in item ? item.more : [item.key, item.states, item.look?.signature, item.numCut])),
    ]);
    return {
      key: group,
      group,
      rule,
      id,
      query,
      context,
      faults,
      tokens: shownTokens,
      blocks,
      isWritten,
      now,
      numWrong: wrong.length,
      signature,
    };
  }

  // Before the forward pass: where the table says that the KV will go.
  planned(id: number, group: number, now: ScheduledShare): WrittenSlots {
    const table = this.before.requests.get(id)?.tables[group] || [],
      { size } = groupOf(this.before, group),
      runs: WrittenSlots["runs"] = [];
    for (let position = now.start; position < now.start + now.num; ) {
      const length = Math.min(size - (position % size), now.start + now.num - position),
        block = table[Math.floor(position / size)];
      if (block === undefined || block < 0) break;
      runs.push([block, position % size, length]);
      position += length;
    }
    return { request: id, group, start: now.start, runs };
  }

  paintRequest(child: RequestElement, { id, now, groups, share }: RequestItem) {
    const end = now.start + now.num - 1;
    say(child.kind, now.isPrefill ? "prefill" : "decode");
    say(
      child.range,
      `${now.num} ${now.num === 1 ? "token" : "tokens"}, ` +
        `${now.num === 1 ? `position ${now.start}` : `positions ${now.start} to ${end}`}`,
    );
    child.bar.style.setProperty("--le-share", `${Math.max(1, 100 * share)}%`);
    keep(
      child.groups,
      groups,
      () => makeGroup(),
      (part, group) => this.paintGroup(part, group),
    );
    child.setAttribute("aria-label", `${requestName(id)}: ${now.isPrefill ? "prefill" : "decode"} of ${now.num}`);
  }

  paintGroup(
    part: GroupElement,
    { group, rule, id, query, context, faults, tokens, blocks, isWritten, now, numWrong }: GroupItem,
  ) {
    const { before } = this,
      isAlone = before.groups.length === 1;
    say(
      part.name,
      isAlone ? "" : `${groupName(before.groups, group)} group${rule.window ? `, window ${rule.window}` : ""}`,
    );
    part.name.hidden = isAlone;
    say(part.writes, isWritten ? (numWrong ? `✗ writes ${numWrong} to the wrong slot` : "writes") : "will write");
    part.classList.toggle("le-step-is-wrong", numWrong > 0);
    keep(
      part.tokens,
      tokens.map((item) => ({ ...item, signature: JSON.stringify([item, isWritten, query]) })),
      () => make("div"),
      (cell, item) =>
        "more" in item
          ? paintLeftOut(cell, item.more)
          : this.paintToken(cell, item, { id, group, isWritten, isQuery: item.position === query, size: rule.size }),
    );
    const numRead = query - context.first + 1,
      said = sayFaults(faults, blocks);
    say(
      part.reads,
      `${now.num > 1 ? `the query at ${query}` : "its query"} reads ${numRead} ` +
        `${numRead === 1 ? "token" : "tokens"}${context.first ? `, ${context.first} to ${query}` : ""}`,
    );
    say(part.faults, said);
    part.faults.hidden = !said;
    keep(
      part.context,
      blocks.map((item) => ({
        ...item,
        signature: JSON.stringify("more" in item ? item.more : [item.states, item.look?.signature, item.numCut]),
      })),
      () => make("div"),
      (cell, item) => ("more" in item ? paintLeftOut(cell, item.more) : paintBlock(cell, item)),
    );
  }

  paintToken(
    cell: HTMLElement,
    { position, text, block, offset, slot, wanted }: TokenItem,
    { id, group, isWritten, isQuery, size }: TokenPlace,
  ) {
    const isWrong = slot !== wanted;
    cell.className =
      `le-step-token${isWritten ? "" : " le-step-planned"}${isWrong ? " le-step-misplaced" : ""}` +
      `${isQuery ? " le-step-query" : ""}`;
    Object.assign(cell.dataset, { block: String(block), position: String(position), of: `${id}:${group}` });
    const place = make("span", "le-step-place");
    place.append(make("b", "", `#${block}`), ` +${offset}`);
    cell.replaceChildren(
      make("span", "le-step-position", position),
      make("span", "le-step-text", text.trim() || "␣"),
      place,
      make("span", "le-step-slot", isWrong ? `✗ ${slot}` : slot),
    );
    if (isWrong) cell.append(make("span", "le-step-wanted", `read from ${wanted}`));
    cell.setAttribute(
      "aria-label",
      `position ${position}, ${text.trim()}: slot ${slot} = block ${block} × ${size} + ${offset}` +
        `${isWrong ? `, wrong: it will be read from slot ${wanted}` : ""}`,
    );
  }

  mark(selection: Selection | null) {
    this.marks.mark(selection);
  }

  csv() {
    const rows: CsvRow[] = [["request", "group", "position", "block", "offset", "slot", "wanted"]];
    for (const slots of this.facts?.slots || [])
      for (const { position, block, offset, slot, wanted } of mappingOf(this.before, slots))
        rows.push([requestName(slots.request), slots.group, position, block, offset, slot, wanted]);
    return rows;
  }

  destroy() {
    this.element.remove();
  }
}

function legend() {
  const made = make("div", "le-step-legend");
  made.setAttribute("aria-hidden", "true");
  for (const state of KEYS) {
    const item = make("span", "le-tables-key");
    item.append(make("i", `le-slot le-slot-${state}`), SLOT_WORDS[state]);
    made.append(item);
  }
  made.append(make("em", "", "click a token: what does its query read?"));
  return made;
}

// Blocks that lie wholly outside the window need not be drawn one by one.
function withoutCut(blocks: ContextItem[]): ContextItem[] {
  const count = blocks.findIndex(({ states }) => states.some((state) => state !== "cut"));
  return count > 2
    ? [{ key: "cut", block: null, states: ["cut"], index: 0, numCut: count }, ...blocks.slice(count)]
    : blocks;
}

function sayFaults(faults: Faults, blocks: GroupItem["blocks"]) {
  const words = faults
    .slice(0, 3)
    .map(
      ([position, state]) =>
        `position ${position}: ` +
        `${state === "hole" ? "nothing was ever written there" : "another token's KV lies there"}`,
    );
  if (faults.length > 3) words.push(`and ${faults.length - 3} more`);
  const shared = blocks.flatMap((one) => ("look" in one && one.look?.isDoubled ? [`#${one.look.id}`] : []));
  if (shared.length)
    words.push(
      `${shared.join(", ")} ${shared.length === 1 ? "stands" : "stand"} in two groups' tables: one group's ` +
        "KV overwrites the other's",
    );
  return words.length ? `✗ ${words.join("; ")}` : "";
}

function makeRequest(id: number) {
  const head = make("header", "le-step-head");
  const child = Object.assign(make("article", "le-step-request"), {
    kind: make("b", "le-step-kind"),
    bar: make("span", "le-step-bar"),
    range: make("span", "le-step-range"),
    groups: make("div", "le-step-groups"),
  });
  child.setAttribute("role", "listitem");
  head.append(badge(id), child.kind, child.bar, child.range);
  child.append(head, child.groups);
  return child;
}

function makeGroup() {
  const part = Object.assign(make("section", "le-step-group"), {
    name: make("h4", "le-step-name"),
    writes: make("div", "le-step-label"),
    tokens: make("div", "le-step-tokens"),
    reads: make("div", "le-step-label"),
    context: make("div", "le-step-context"),
    faults: make("div", "le-step-faults"),
  });
  part.append(part.name, part.writes, part.tokens, part.reads, part.context, part.faults);
  return part;
}

function paintLeftOut(cell: HTMLElement, more: number) {
  cell.className = "le-step-left-out le-quiet";
  for (const name of Object.keys(cell.dataset)) delete cell.dataset[name];
  cell.replaceChildren(`… ${more.toLocaleString("en")} more …`);
}

function paintBlock(cell: HTMLElement, { look, states, index, numCut }: ContextItem) {
  cell.className = "le-step-block";
  const bead = make("span");
  if (look) {
    dressBead(bead, look, { hasCount: false });
    cell.dataset.block = String(look.id);
    delete bead.dataset.block;
  } else {
    delete cell.dataset.block;
    bead.className = "le-step-absent";
    bead.append(numCut ? `⊘ ×${numCut}` : "⊘");
  }
  cell.replaceChildren(bead, squares(states));
  cell.setAttribute(
    "aria-label",
    `block ${index} of the table${look ? `, #${look.id}` : ", none"}: ${runsOf(states)
      .map(([state, count]) => `${count} ${SLOT_WORDS[state]}`)
      .join(", ")}`,
  );
}

// A square per slot, or a bar where the block has many.
function squares(states: SlotState[]) {
  const made = make("span", "le-step-squares"),
    isBar = states.length > MAX_SQUARES;
  made.classList.toggle("le-step-is-bar", isBar);
  for (const [state, count] of isBar ? runsOf(states) : states.map((state): [SlotState, number] => [state, 1])) {
    const square = make("i", `le-slot le-slot-${state}`);
    if (isBar) square.style.flexGrow = String(count);
    made.append(square);
  }
  return made;
}
