// What is not as it was at the marked moment gets an outline, in every view: found by what its elements stand for.
import { differing } from "../views/differing.ts";
import { counted } from "./telling.ts";

const KINDS = [
  ["block", "blocks", Number],
  ["request", "requests", Number],
  ["hash", "keys", String],
];
const NOUNS = { blocks: "block", requests: "request", keys: "hash" };

export class Difference {
  // tell(words): what has changed, counted.
  constructor(stage, tell) {
    Object.assign(this, { stage, tell, marked: new Set() });
  }

  paint() {
    const now = new Set();
    this.found = null;
    for (const side of this.stage.sides) if (side.reference) this.find(side, now);
    for (const one of this.marked) if (!now.has(one)) one.classList.remove("le-changed");
    for (const one of now) one.classList.add("le-changed");
    this.marked = now;
    this.tell(this.found ? `since ${this.stage.reference.name}: ${changedWords(this.found)}` : "");
  }

  find(side, now) {
    const found = (this.found = differing(side.scene, side.reference));
    for (const { view, side: index, isShown } of this.stage.shows) {
      if (index !== side.index || !isShown()) continue;
      for (const [kind, name, idOf] of KINDS)
        for (const one of view.element.querySelectorAll(`[data-${kind}]`))
          if (mostly(one) === kind && found[name].has(idOf(one.dataset[kind]))) now.add(one);
    }
  }
}

// "4 blocks, 1 request, 2 hashes changed".
function changedWords(found) {
  const parts = Object.entries(NOUNS)
    .filter(([name]) => found[name].size)
    .map(([name, noun]) => counted(found[name].size, noun));
  return parts.length ? `${parts.join(", ")} changed` : "nothing has changed";
}

// What an element is first of all: a row of the map leads to blocks, and is a hash.
function mostly(one) {
  return ["hash", "block", "request"].find((kind) => kind in one.dataset);
}
