// The state at a moment as it is drawn: blocks with content, owners and slots, requests, queue, map, tier, score.

import { fillOf, garbageOf, imagesOf, numGuessed, stateOf, tokensOf } from "./blocks.ts";
import { imageWord } from "./names.ts";
import type { Place } from "./places.ts";
import { SceneState } from "./scene_state.ts";

// A block as it is drawn.
export interface Block {
  id: number;
  refCount: number;
  places: Place[];
  isFree: boolean;
  isMapped: boolean;
  content: number;
  fill: number;
  isHashed: boolean;
  isLost: boolean;
  isCachedFree: boolean;
  isDuplicate: boolean;
  node: number; // of the prefix tree, that has it; 0 for none
  isEvictable: boolean; // its node has no locks
  isKept: boolean; // no request uses it: it is free, or evictable
  owners: number[];
  groups: number[];
  tokens: (number | null)[];
  keys: string[];
  strays: Map<number, number | null> | null;
  promised: number; // slots that it is registered for and that are not written
  images: ReturnType<typeof imagesOf>; // behind its tokens
  numGuessed: number; // of its tokens, the last ones that are guesses, not judged yet
  garbage: [start: number, end: number] | null; // slots that hold KV of rejected guesses
  pins: number; // references that no table holds
  size: number;
  keepsStates: boolean; // it is for one state instead of the KV of `size` tokens
  state: number | null; // after how many tokens its state is
  freedAt: number;
  actual?: number; // its KV's content, where the checks know that it does not match the hash; -1: unknown
}

export class Scene extends SceneState {
  get score() {
    const { numUsed, peak, map, numLost, tree } = this;
    return { used: numUsed, peak, findable: map.size, lost: numLost, evictable: tree.numEvictable };
  }

  // {slots: [{request, group, start, runs}], sampled: Map(request -> token)} of this step so far.
  get written() {
    return { slots: this.slots, sampled: this.sampled };
  }

  get slots() {
    return this.slotRows.map(([, request, group, start, runs]) => ({ request, group, start, runs }));
  }

  // Map("group:hex" -> {block, moment, reason}): what the map lost last, the oldest first.
  get evicted() {
    return new Map([...this.evictedById].map(([key, how]) => [this.shared.keys.text(key), how]));
  }

  // -- a block

  block(id: number): Block {
    const refCount = this.refCounts[id],
      keys = this.keysOf(id),
      isFree = this.queue.has(id);
    const isMapped = keys.some((key) => this.map.holds(key, id)),
      places = this.places.of(id);
    const isDrawn = refCount > 0 || keys.length > 0;
    return {
      id,
      refCount,
      places,
      isFree,
      isMapped,
      content: this.contentOfBlock[id],
      fill: this.fill(id),
      isHashed: keys.length > 0,
      isLost: this.isLostFlag[id] === 1,
      isCachedFree: isFree && isMapped,
      isDuplicate: refCount > 0 && this.twins.count(this.contentOfBlock[id]) > 1,
      node: this.nodeOf[id],
      isEvictable: this.isEvictable(id),
      isKept: this.isKept(id),
      owners: isDrawn ? [...new Set(places.map(([request]) => request))] : [],
      groups: isDrawn ? [...new Set(places.map(([, group]) => group))].sort((a, b) => a - b) : [],
      tokens: isDrawn ? tokensOf(this, id) : [],
      keys: keys.map((key) => this.shared.keys.text(key)),
      strays: this.strays.get(id) ?? null,
      promised: this.sizeOf(id) - (this.promised.get(id) ?? this.sizeOf(id)),
      images: isDrawn ? imagesOf(this, id, this.sizeOf(id)) : null,
      numGuessed: numGuessed(this, id),
      garbage: garbageOf(this, id),
      pins: this.pins.get(id) ?? 0,
      size: this.sizeOf(id),
      keepsStates: this.keepsStates(id),
      state: stateOf(this, id),
      freedAt: this.freedAt[id],
    };
  }

  // Slots written, as far as a reader has to look.
  fill(id: number) {
    if (!this.refCounts[id] && this.firstKey[id] < 0) return 0;
    return fillOf(this, id, true);
  }

  // The number of the block's content; -1 while it is not full.
  content(id: number) {
    return this.contentOfBlock[id];
  }

  isMapped(id: number) {
    return this.keysOf(id).some((key) => this.map.holds(key, id));
  }

  isEvictable(id: number) {
    return this.tree.nodes.get(this.nodeOf[id])?.numLocks === 0;
  }

  // No request uses the block.
  isKept(id: number) {
    return !this.refCounts[id] || (this.places.head[id] < 0 && this.isEvictable(id));
  }

  // The number of the content behind "group:hex"; -1 for one that was never seen.
  contentOf(text: string) {
    return this.contents.known(this.shared.keys.find(text));
  }
}

// The text in each written slot.
export function wordsOf({ tokens, images }: Block, textOf: (token: number, slot: number) => string) {
  return tokens.map((token, slot) => {
    const image = images?.[slot];
    if (image) return ` ${imageWord(image)}`;
    return token === null ? "–" : textOf(token, slot);
  });
}
