// An attention read: the context of one query, block by block and slot by slot, through the block
// table.

import type { Scene } from "../../model/scene.ts";
import { groupOf, isNull } from "../pieces.ts";
import type { WrittenSlots } from "../step_facts.ts";

// A slot is: read, fresh (written in this step), cut (left of the window), ahead (not read by this query), free (no
// token), hole (never written), wrong (another token's KV).
export const SLOT_WORDS = {
  read: "read",
  fresh: "read, written now",
  cut: "outside the window",
  ahead: "after the query",
  free: "empty",
  hole: "never written",
  wrong: "another token's KV",
};

export type SlotState = keyof typeof SLOT_WORDS | "free";

// The blocks that a query reads, slot by slot; block is null where the table has none.
export interface Context {
  first: number;
  query: number;
  blocks: { index: number; block: number | null; states: SlotState[] }[];
}

// Positions that are read and do not hold their KV.
export type Faults = [position: number, state: SlotState][];

interface ReadState {
  first: number;
  query: number;
  fresh: number;
  tokens: number[]; // including the guesses after them
  isAbsent: boolean;
  strays: Map<number, number | null> | null | undefined;
  offset: number;
}

// A token and the slot of its KV. wanted: the slot where it will be looked for.
export interface MappedToken {
  position: number;
  token: number | undefined;
  block: number;
  offset: number;
  slot: number;
  wanted: number;
}

export function contextOf(scene: Scene, id: number, group: number, query: number, fresh: number): Context {
  const request = scene.request(id),
    tokens = request.tokensWithDrafts,
    { size, window } = groupOf(scene, group),
    table = request.tables[group] || [];
  const first = window ? Math.max(0, query - window + 1) : 0;
  const blocks: Context["blocks"] = [];
  for (let index = 0; index * size <= query; index++) {
    const block = table[index],
      strays = isNull(scene, block) ? null : scene.strays.get(block);
    const states: SlotState[] = [];
    for (let offset = 0; offset < size; offset++)
      states.push(
        stateAt(index * size + offset, {
          first,
          query,
          fresh,
          tokens,
          isAbsent: isNull(scene, block),
          strays,
          offset,
        }),
      );
    blocks.push({ index, block: isNull(scene, block) ? null : block, states });
  }
  return { first, query, blocks };
}

function stateAt(position: number, { first, query, fresh, tokens, isAbsent, strays, offset }: ReadState): SlotState {
  if (position >= tokens.length) return "free";
  if (position > query) return "ahead";
  if (position < first) return "cut";
  if (isAbsent) return "hole";
  if (strays?.has(offset)) {
    const token = strays.get(offset);
    if (token === null) return "hole";
    if (token !== tokens[position]) return "wrong";
  }
  return position >= fresh ? "fresh" : "read";
}

// Positions read whose slot does not hold their KV.
export function faultsIn({ blocks }: Context, size: number): Faults {
  const found: Faults = [];
  for (const { index, states } of blocks)
    states.forEach(
      (state, offset) => void ((state === "hole" || state === "wrong") && found.push([index * size + offset, state])),
    );
  return found;
}

// Token by token where a request's KV goes: {position, token, block, offset, slot, wanted: the slot where it will be
// looked for, or the same}.
export function mappingOf(scene: Scene, { request: id, group, start, runs }: WrittenSlots) {
  const request = scene.requests.get(id),
    tokens = request?.tokensWithDrafts ?? [],
    { size } = groupOf(scene, group),
    table = request?.tables[group] || [],
    found: MappedToken[] = [];
  let position = start;
  for (const [block, offset, length] of runs)
    for (let i = 0; i < length; i++, position++) {
      const home = table[Math.floor(position / size)],
        slot = block * size + offset + i;
      found.push({
        position,
        token: tokens[position],
        block,
        offset: offset + i,
        slot,
        wanted: isNull(scene, home) ? slot : home * size + (position % size),
      });
    }
  return found;
}
