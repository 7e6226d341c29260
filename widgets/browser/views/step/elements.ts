// The elements of the Step view: a request, its groups, tokens with their slots, blocks with theirs.

import { element as make, write as say } from "../../look/element.ts";
import { counted, groupName, requestName } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import { badge, dressBead, keep, legendOf, runsOf } from "../pieces.ts";
import type { Faults, SlotState } from "./attention.ts";
import { SLOT_WORDS } from "./attention.ts";
import type { ContextItem, GroupItem, RequestItem, TokenItem } from "./items.ts";

const MAX_SQUARES = 8;

const KEYS: (keyof typeof SLOT_WORDS)[] = ["read", "fresh", "cut", "ahead", "hole", "wrong"];

interface TokenPlace {
  id: number;
  group: number;
  isWritten: boolean;
  isQuery: boolean;
  size: number;
}

export type RequestElement = ReturnType<typeof makeRequest>;

type GroupElement = ReturnType<typeof makeGroup>;

export function legend() {
  const made = legendOf(
    "le-step-legend le-wrap le-fine",
    KEYS.map((state) => [make("i", `le-slot le-slot-${state}`), SLOT_WORDS[state]]),
  );
  made.append(make("em", "", "click a token to see what its query reads"));
  return made;
}

function sayFaults(faults: Faults, blocks: GroupItem["blocks"]) {
  const words = faults
    .slice(0, 3)
    .map(
      ([position, state]) =>
        `position ${position}: ` +
        `${state === "hole" ? "nothing was ever written there" : "another token's KV is there"}`,
    );
  if (faults.length > 3) words.push(`and ${faults.length - 3} more`);
  const shared = blocks.flatMap((one) => ("look" in one && one.look?.isDoubled ? [`#${one.look.id}`] : []));
  if (shared.length)
    words.push(
      `${shared.join(", ")} ${shared.length === 1 ? "is" : "are"} in two groups' tables: one group's ` +
        "KV overwrites the other's",
    );
  return words.length ? `✗ ${words.join("; ")}` : "";
}

export function makeRequest(id: number) {
  const parts = {
      kind: make("b", "le-step-kind"),
      bar: make("span", "le-step-bar"),
      range: make("span", "le-step-range le-clip"),
    },
    head = make("header", "le-step-head", {}, badge(id), ...Object.values(parts)),
    groups = make("div", "le-step-groups"),
    child = make("article", "le-step-request", { role: "listitem" }, head, groups);
  return Object.assign(child, parts, { groups });
}

function makeGroup() {
  const parts = {
    name: make("h4", "le-step-name"),
    writes: make("div", "le-step-label le-fine"),
    tokens: make("div", "le-step-tokens le-wrap"),
    reads: make("div", "le-step-label le-fine"),
    context: make("div", "le-step-context le-wrap"),
    faults: make("div", "le-step-faults"),
  };
  return Object.assign(make("section", "le-step-group", {}, ...Object.values(parts)), parts);
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
  const runs = runsOf(states).map(([state, count]) => `${count} ${SLOT_WORDS[state]}`);
  cell.ariaLabel = `block ${index} of the table${look ? `, #${look.id}` : ", none"}: ${runs.join(", ")}`;
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

export function paintRequest(before: Scene, child: RequestElement, { id, now, groups, share }: RequestItem) {
  const end = now.start + now.num - 1;
  say(child.kind, now.isPrefill ? "prefill" : "decode");
  say(
    child.range,
    `${counted(now.num, "token")}, ` +
      `${now.num === 1 ? `position ${now.start}` : `positions ${now.start} to ${end}`}`,
  );
  child.bar.style.setProperty("--le-share", `${Math.max(1, 100 * share)}%`);
  keep(
    child.groups,
    groups,
    () => makeGroup(),
    (part, group) => paintGroup(before, part, group),
  );
  child.ariaLabel = `${requestName(id)}: ${now.isPrefill ? "prefill" : "decode"} of ${now.num}`;
}

function paintGroup(
  before: Scene,
  part: GroupElement,
  { group, rule, id, query, context, faults, tokens, blocks, isWritten, now, numWrong }: GroupItem,
) {
  const isAlone = before.groups.length === 1;
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
        : paintToken(cell, item, { id, group, isWritten, isQuery: item.position === query, size: rule.size }),
  );
  const numRead = query - context.first + 1,
    said = sayFaults(faults, blocks);
  say(
    part.reads,
    `${now.num > 1 ? `the query at ${query}` : "its query"} reads ` +
      `${counted(numRead, "token")}${context.first ? `, ${context.first} to ${query}` : ""}`,
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

function paintToken(
  cell: HTMLElement,
  { position, text, block, offset, slot, wanted }: TokenItem,
  { id, group, isWritten, isQuery, size }: TokenPlace,
) {
  const isWrong = slot !== wanted;
  cell.className =
    `le-step-token${isWritten ? "" : " le-step-planned"}${isWrong ? " le-step-misplaced" : ""}` +
    `${isQuery ? " le-step-query" : ""}`;
  Object.assign(cell.dataset, { block: String(block), position: String(position), of: `${id}:${group}` });
  const place = make("span", "le-step-place", {}, make("b", "", `#${block}`), ` +${offset}`);
  cell.replaceChildren(
    make("span", "le-step-position le-fine", position),
    make("span", "le-step-text", text.trim() || "␣"),
    place,
    make("span", "le-step-slot le-fine", isWrong ? `✗ ${slot}` : slot),
  );
  if (isWrong) cell.append(make("span", "le-step-wanted", `read from ${wanted}`));
  cell.ariaLabel =
    `position ${position}, ${text.trim()}: slot ${slot} = block ${block} × ${size} + ${offset}` +
    `${isWrong ? `, wrong: it will be read from slot ${wanted}` : ""}`;
}
