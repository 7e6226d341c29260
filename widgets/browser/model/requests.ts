// A request's state according to the events so far. Copies of a scene share it until one of them changes it.
import type { Image, RequestStatus } from "./payloads.ts";

export class RequestRecord {
  status: RequestStatus = "waiting";
  numComputed = 0;
  tables: number[][];
  written: number[]; // slots written so far, per group
  merged: readonly number[] = []; // its own blocks that others have replaced; some are freed after its end
  hit: number | null = null; // tokens found in the cache when it was admitted; null before
  external = 0; // tokens that the external tier held beyond them
  drafts: number[] = []; // guesses of the tokens that follow
  accepted: number[] = []; // guesses for which the step's tokens are still to come
  rejected: [start: number, end: number] | null = null; // slots of rejected guesses, from numComputed on
  numJudged = 0; // guesses that were judged, as far as this scene has seen it
  numAccepted = 0;
  scheduled: { start: number; num: number; isPrefill: boolean } | null = null; // in this step
  priority = 0; // smaller is more urgent
  numReplaced = 0; // times that it went on as another beam, as far as this scene has seen it
  leader: number | null = null; // the request whose tokens it waits for, in no queue
  firstBeam: number | null = null; // of the beam search that it is in
  numPreempted = 0;
  finishReason: string | null = null;
  isLoading = false;
  isForgotten = false; // the engine no longer keeps it; it is drawn until the next step begins
  lastKeys: ({ index: number; key: number } | undefined)[] = []; // per group: its newest full block in the map
  stamp: number;
  tablesStamp: number; // tables of another stamp are shared with a copy
  taken: number[] | null = null; // `tokens`, kept until there are more
  numTokens = this.numPrompt;

  constructor(
    readonly id: number,
    public store: TokenStore,
    public numPrompt: number,
    readonly maxTokens: number | null,
    numGroups: number,
    stamp: number,
  ) {
    this.tables = Array.from({ length: numGroups }, () => []);
    this.written = new Array(numGroups).fill(0);
    this.stamp = this.tablesStamp = stamp;
  }

  // Has finished, and a connector still reads or writes its blocks.
  get isHolding() {
    return this.status === "finished" && this.tables.some((table) => table.length > 0);
  }

  // All its tokens, as a plain array to read and not to keep. `token`, `tokensBetween` and `numTokens` cost less.
  get tokens() {
    if (this.store.ids.length === this.numTokens) return this.store.ids;
    if (this.taken?.length !== this.numTokens) this.taken = this.store.ids.slice(0, this.numTokens);
    return this.taken;
  }

  // Its tokens, then the guesses that are not judged yet.
  get tokensWithDrafts() {
    return this.drafts.length ? [...this.tokens, ...this.drafts] : this.tokens;
  }

  token(i: number) {
    return this.store.ids[i];
  }

  tokensBetween(start: number, end: number) {
    return this.store.ids.slice(start, Math.min(end, this.numTokens));
  }

  append(token: number) {
    const { store, numTokens } = this;
    if (numTokens === store.ids.length) store.ids.push(token);
    else if (store.ids[numTokens] !== token) {
      this.store = store.fork(numTokens);
      this.store.ids.push(token);
    }
    this.numTokens++;
    this.taken = null;
  }

  // Another text after the prompt.
  replaceGenerated(tokens: number[]) {
    this.store = this.store.fork(this.numPrompt);
    this.store.ids.push(...tokens);
    this.numTokens = this.store.ids.length;
    this.taken = null;
  }

  // Names the tokens up to the end of a block in a table.
  prefixHash(size: number, index: number) {
    return this.store.prefixHash(size, index, this.numTokens);
  }

  // True for a slot that holds KV of a rejected guess.
  isGarbage(position: number) {
    return (
      this.rejected !== null && position >= Math.max(this.rejected[0], this.numComputed) && position < this.rejected[1]
    );
  }

  // Tables that this record alone may change.
  ownTables() {
    if (this.tablesStamp !== this.stamp) {
      this.tables = this.tables.map((table) => table.slice());
      this.tablesStamp = this.stamp;
    }
    return this.tables;
  }

  // Empties the tables: preempted and finished requests hold no blocks.
  clear(status: RequestStatus) {
    this.status = status;
    this.numComputed = 0;
    this.drafts = [];
    this.rejected = null;
    this.tables = this.tables.map(() => []);
    this.written = this.written.map(() => 0);
    this.merged = [];
    this.tablesStamp = this.stamp;
    this.isLoading = false;
  }

  copy(stamp: number) {
    const other = Object.assign(Object.create(RequestRecord.prototype), this);
    other.written = this.written.slice();
    other.stamp = stamp;
    return other;
  }
}

// A request's tokens, appended to and never changed, so that all scenes share them: each knows how many it has.

export class TokenStore {
  chains = new Map<number, number[]>(); // block size -> hash of the prefix up to the end of each full block

  constructor(
    readonly ids: number[],
    readonly images: Image[] = [], // other content behind equal placeholder tokens
  ) {}

  // The image behind a placeholder token; isFirst: it is the first of its tokens.
  imageAt(position: number) {
    const found = this.images.find(([start, length]) => position >= start && position < start + length);
    return found && { name: found[2], isFirst: position === found[0] };
  }

  // The first `count` tokens, to go another way from there.
  fork(count: number) {
    const other = new TokenStore(this.ids.slice(0, count), this.images);
    for (const [size, chain] of this.chains) other.chains.set(size, chain.slice(0, Math.floor(count / size)));
    return other;
  }

  // Names the first (index + 1) * size tokens, or the first `count` if those are fewer, block by block.
  prefixHash(size: number, index: number, count: number) {
    let chain = this.chains.get(size);
    if (!chain) this.chains.set(size, (chain = []));
    if (index < chain.length) return chain[index];
    let hash = chain.length ? chain[chain.length - 1] : 0;
    for (let i = chain.length; i <= index; i++) {
      const end = Math.min(count, (i + 1) * size);
      hash = linked(hash, this.ids, i * size, end);
      for (const [start, length, name] of this.images)
        if (start < end && start + length > i * size)
          hash = linked(hash, [start - i * size, length, ...name].map(numberOf), 0, name.length + 2);
      if (end === (i + 1) * size) chain.push(hash);
    }
    return hash;
  }
}

function numberOf(part: number | string) {
  return typeof part === "number" ? part : (part.codePointAt(0) ?? 0);
}

// 53 bits: the hash of some tokens after a parent's.
function linked(parent: number, ids: number[], start: number, end: number) {
  let low = (parent >>> 0) ^ 0x9e3779b9,
    high = Math.floor(parent / 0x100000000) ^ (end - start);
  for (let i = start; i < end; i++) {
    low = Math.imul(low ^ ids[i], 0x85ebca6b);
    low ^= low >>> 13;
    high = Math.imul(high ^ ids[i] ^ (low >>> 7), 0xc2b2ae35);
    high ^= high >>> 16;
  }
  low = Math.imul(low ^ (high >>> 5), 0x27d4eb2f);
  return ((high ^ (low >>> 15)) & 0x1fffff) * 0x100000000 + (low >>> 0);
}
