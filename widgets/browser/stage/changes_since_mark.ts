// Outlines, in every view, the elements whose subjects have changed since the marked moment.

import type { Differences } from "../model/differing.ts";
import { differing } from "../model/differing.ts";
import { counted } from "../model/names.ts";
import type { Scene } from "../model/scene.ts";
import type { Side } from "../model/side.ts";
import type { Stage } from "./stage.ts";

const KINDS = [
  ["block", "blocks"],
  ["request", "requests"],
  ["hash", "keys"],
] as const;
const NOUNS: Record<keyof Differences, string> = { blocks: "block", requests: "request", keys: "hash" };

export class Difference {
  marked = new Set<HTMLElement>();
  found!: Differences | null;

  // report(words): is called with the number of changes of each kind.
  constructor(
    readonly stage: Stage,
    readonly report: (words: string) => void,
  ) {}

  paint() {
    const now = new Set<HTMLElement>();
    this.found = null;
    for (const side of this.stage.sides) if (side.reference) this.find(side, side.reference, now);
    for (const one of this.marked) if (!now.has(one)) one.classList.remove("le-changed");
    for (const one of now) one.classList.add("le-changed");
    this.marked = now;
    this.report(
      this.found && this.stage.reference ? `since ${this.stage.reference.name}: ${changedWords(this.found)}` : "",
    );
  }

  find(side: Side, reference: Scene, now: Set<HTMLElement>) {
    const found = (this.found = differing(side.scene, reference));
    for (const { view, side: index, isShown } of this.stage.shows) {
      if (index !== side.index || !isShown()) continue;
      for (const [kind, name] of KINDS)
        for (const one of view.element.querySelectorAll<HTMLElement>(`[data-${kind}]`))
          if (mostly(one) === kind && has(found, name, one.dataset[kind] ?? "")) now.add(one);
    }
  }
}

function has(found: Differences, name: keyof Differences, id: string) {
  return name === "keys" ? found.keys.has(id) : found[name].has(Number(id));
}

// "4 blocks, 1 request, 2 hashes changed".
function changedWords(found: Differences) {
  const parts = (Object.entries(NOUNS) as [keyof Differences, string][])
    .filter(([name]) => found[name].size)
    .map(([name, noun]) => counted(found[name].size, noun));
  return parts.length ? `${parts.join(", ")} changed` : "nothing has changed";
}

// The first subject of an element: a row of the map names blocks, but is a hash.
function mostly(one: HTMLElement) {
  return ["hash", "block", "request"].find((kind) => kind in one.dataset);
}
