// Data that all scenes of a recording share: numbers of keys and contents, hash chains, tokens of requests, the tier.

import { lastBefore } from "./arrays.ts";
import type { EventRows } from "./event_rows.ts";
import { TierLog } from "./key_maps.ts";
import { ContentIndex, KeyIndex, Parents } from "./keys.ts";
import { TokenStore } from "./requests.ts";

// Contents since an engine started.
interface Epoch {
  from: number;
  contents: ContentIndex;
}

export class Shared {
  keys = new KeyIndex();
  parents = new Parents(this.keys);
  tierLog = new TierLog(this.keys);
  version = 0; // + 1 whenever the oldest events are forgotten
  epochs: Epoch[]; // contents are renumbered when the engine restarts
  numberedTo = 0; // contents of engine starts before this moment have numbers already
  stores = new WeakMap<EventRows["RequestAdded"], TokenStore>();

  constructor(start: number) {
    this.epochs = [{ from: start, contents: new ContentIndex() }];
  }

  // The tokens of a request from its RequestAdded on.
  storeOf(row: EventRows["RequestAdded"]) {
    let store = this.stores.get(row);
    if (!store) this.stores.set(row, (store = new TokenStore(row[2].slice(), row[8])));
    return store;
  }

  contentsAt(moment: number) {
    return this.epochs[lastBefore(this.epochs, moment + 1, ({ from }) => from)].contents;
  }

  beginContents(moment: number) {
    if (moment < this.numberedTo) return this.epochs[0].contents;
    const known = this.epochs.find(({ from }) => from === moment + 1);
    if (known) return known.contents;
    this.epochs.push({ from: moment + 1, contents: new ContentIndex() });
    return this.epochs[this.epochs.length - 1].contents;
  }

  // Engines that started before the oldest event here are forgotten, but for the one that runs at it.
  dropEpochs(start: number) {
    this.epochs = this.epochs.filter((_, i) => i === this.epochs.length - 1 || this.epochs[i + 1].from > start);
  }
}
