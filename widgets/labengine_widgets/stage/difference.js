// What is not as it was at the marked moment gets an outline, in every view: found by what its elements stand for.
import { differing } from "../views/differing.js";

const KINDS = [["block", "blocks", Number], ["request", "requests", Number], ["hash", "keys", String]];

export class Difference {
  constructor(stage) {
    Object.assign(this, { stage, marked: new Set() });
  }

  paint() {
    const now = new Set();
    for (const side of this.stage.sides) if (side.reference) this.find(side, now);
    for (const one of this.marked) if (!now.has(one)) one.classList.remove("le-changed");
    for (const one of now) one.classList.add("le-changed");
    this.marked = now;
  }

  find(side, now) {
    const found = differing(side.scene, side.reference);
    for (const { view, side: index, isShown } of this.stage.shows) {
      if (index !== side.index || !isShown()) continue;
      for (const [kind, name, idOf] of KINDS) for (const one of view.element.querySelectorAll(`[data-${kind}]`)) if (mostly(one) === kind && found[name].has(idOf(one.dataset[kind]))) now.add(one);
    }
  }
}

// What an element is first of all: a row of the map leads to blocks, and is a hash.
function mostly(one) {
  return ["hash", "block", "request"].find((kind) => kind in one.dataset);
}
