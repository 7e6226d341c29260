// The items of the Step view: each request's tokens with their slots, and the blocks that attention reads.

import type { Scene } from "../../model/scene.ts";
import type { Group } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { groupOf, lookOf, middleLeftOut } from "../pieces.ts";
import type { ScheduledShare, StepFacts, WrittenSlots } from "../step_facts.ts";
import type { Context, Faults, MappedToken, SlotState } from "./attention.ts";
import { contextOf, faultsIn, mappingOf } from "./attention.ts";

// How much of each request there is room for, and the tokens of the largest share.
export interface Room {
  tokens: number;
  blocks: number;
  most: number;
}

// A block of a context, or those left of the window as one item. look: null where the table has no block.
export interface ContextItem extends Keyed {
  index: number;
  block: number | null;
  states: SlotState[];
  numCut?: number;
  look?: Look | null;
}

export interface TokenItem extends Keyed, MappedToken {
  text: string;
}

export interface GroupItem extends Keyed {
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

export interface RequestItem extends Keyed {
  id: number;
  now: ScheduledShare;
  groups: GroupItem[];
  share: number;
}

// Blocks that lie wholly outside the window need not be drawn one by one.
function withoutCut(blocks: ContextItem[]): ContextItem[] {
  const count = blocks.findIndex(({ states }) => states.some((state) => state !== "cut"));
  return count > 2
    ? [{ key: "cut", block: null, states: ["cut"], index: 0, numCut: count }, ...blocks.slice(count)]
    : blocks;
}

// A step, and what the reader asked to see of it. before: the state that the forward pass read; queries: the query
// whose context is drawn, by request and group.
interface Batch {
  side: Side;
  facts: StepFacts;
  before: Scene;
  queries: Map<string, number>;
}

export function requestItem(batch: Batch, id: number, now: ScheduledShare, share: Room): RequestItem {
  const { facts, before } = batch,
    written = facts.slots.filter((slots) => slots.request === id);
  const groups = before.groups.map((_, group) =>
    groupItem(
      batch,
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

function groupItem(
  batch: Batch,
  id: number,
  group: number,
  now: ScheduledShare,
  written: WrittenSlots[],
  share: Room,
): GroupItem {
  const { before, side } = batch,
    rule = groupOf(before, group),
    last = now.start + now.num - 1;
  const isWritten = written.length > 0;
  const mapping = (isWritten ? written : [planned(batch, id, group, now)]).flatMap((slots) => mappingOf(before, slots));
  const query = Math.min(last, Math.max(now.start, batch.queries.get(`${id}:${group}`) ?? last));
  const context = contextOf(before, id, group, query, now.start),
    faults = faultsIn(context, rule.size);
  const tokens = mapping.map(
    (slot): TokenItem => ({
      key: slot.position,
      ...slot,
      text: slot.token === undefined ? "" : side.text(slot.token),
    }),
  );
  const wrong = tokens.filter(({ slot, wanted }) => slot !== wanted);
  const shownTokens =
    wrong.length && tokens.length > share.tokens
      ? [...wrong.slice(0, share.tokens), { key: "more", more: tokens.length - Math.min(wrong.length, share.tokens) }]
      : middleLeftOut(tokens, share.tokens);
  const drawn = context.blocks.map((one): ContextItem => ({ key: one.index, ...one })),
    blocks = middleLeftOut(withoutCut(drawn), share.blocks, 0.25);
  for (const item of blocks) if ("states" in item) item.look = item.block === null ? null : lookOf(before, item.block);
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
function planned({ before }: Batch, id: number, group: number, now: ScheduledShare): WrittenSlots {
  const table = before.requests.get(id)?.tables[group] || [],
    { size } = groupOf(before, group),
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
