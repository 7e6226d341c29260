// Which requests of the block tables are unfolded: one choice for all tables of a stage, so that two sides stay on the same lines.
import { element as make, put } from "../look/element.ts";

const chosen = new WeakMap();

export class Folding {
  constructor(stage) {
    this.stage = stage;
    if (!chosen.has(stage)) chosen.set(stage, new Map());
    this.byHand = chosen.get(stage);
  }

  // isOpen: where nobody has chosen.
  isUnfolded(id, isOpen) {
    return this.byHand.get(id) ?? isOpen;
  }

  // A small button that turns a request's row.
  toggle(id) {
    const made = make("button", "le-tables-fold");
    made.type = "button";
    made.addEventListener("click", () => this.turn(id, made.getAttribute("aria-expanded") !== "true"));
    return made;
  }

  turn(id, isUnfolded) {
    this.byHand.set(id, isUnfolded);
    this.stage.repaint();
  }

  paint(made, isUnfolded) {
    const words = isUnfolded ? "fold to one row of blocks" : "unfold: the slots of every block, and their tokens";
    put(made, "textContent", isUnfolded ? "▾" : "▸");
    put(made, "title", words);
    made.setAttribute("aria-expanded", String(isUnfolded));
    made.setAttribute("aria-label", words);
  }
}
