// A request as the events have told it so far. Copies of a scene share it until one of them has something new to note.

export class RequestRecord {
  constructor(id, store, numPrompt, maxTokens, numGroups, stamp) {
    this.id = id;
    this.status = "waiting";
    this.store = store;
    this.numTokens = numPrompt;
    this.numPrompt = numPrompt;
    this.numComputed = 0;
    this.maxTokens = maxTokens;
    this.tables = Array.from({ length: numGroups }, () => []);
    this.written = new Array(numGroups).fill(0); // slots written so far, per group
    this.hit = null; // tokens found in the cache when it was admitted; null before
    this.external = 0; // tokens the external tier held beyond them
    this.scheduled = null; // its share of this step: {start, num, isPrefill}
    this.numPreempted = 0;
    this.finishReason = null;
    this.isLoading = false;
    this.isForgotten = false; // the engine keeps it no longer; it is drawn until the next step begins
    this.lastKeys = []; // per group: {index, key} of its newest full block in the map
    this.stamp = this.tablesStamp = stamp;
    this.taken = null;
  }

  // All its tokens, as a plain array to read and not to keep. `token`, `tokensBetween` and `numTokens` cost less.
  get tokens() {
    if (this.store.ids.length === this.numTokens) return this.store.ids;
    if (this.taken?.length !== this.numTokens) this.taken = this.store.ids.slice(0, this.numTokens);
    return this.taken;
  }

  token(i) {
    return this.store.ids[i];
  }

  tokensBetween(start, end) {
    return this.store.ids.slice(start, Math.min(end, this.numTokens));
  }

  append(token) {
    const { store, numTokens } = this;
    if (numTokens === store.ids.length) store.ids.push(token);
    else if (store.ids[numTokens] !== token) {
      this.store = store.fork(numTokens);
      this.store.ids.push(token);
    }
    this.numTokens++;
    this.taken = null;
  }

  // Names the tokens up to the end of a block in a table.
  prefixHash(size, index) {
    return this.store.prefixHash(size, index, this.numTokens);
  }

  // Tables that this record alone may change.
  ownTables() {
    if (this.tablesStamp !== this.stamp) {
      this.tables = this.tables.map((table) => table.slice());
      this.tablesStamp = this.stamp;
    }
    return this.tables;
  }

  // Preempted and finished requests hold nothing.
  clear(status) {
    this.status = status;
    this.numComputed = 0;
    this.tables = this.tables.map(() => []);
    this.written = this.written.map(() => 0);
    this.tablesStamp = this.stamp;
    this.isLoading = false;
  }

  copy(stamp) {
    const other = Object.assign(Object.create(RequestRecord.prototype), this);
    other.written = this.written.slice();
    other.stamp = stamp;
    return other;
  }
}
