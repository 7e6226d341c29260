// Which requests of the block tables are unfolded: one choice for all tables of a stage, so that two sides stay on the
// same lines.

import { element as make, put } from "../look/element.ts";
import type { Stage } from "../stage/stage.ts";

const choices = new WeakMap<Stage, Map<number, boolean>>();

export class Folding {
  stage: Stage;
  byHand: Map<number, boolean>;

  constructor(stage: Stage) {
    this.stage = stage;
    this.byHand = choices.get(stage) ?? new Map();
    choices.set(stage, this.byHand);
  }

  // isOpen: where the reader has not chosen.
  isUnfolded(id: number, isOpen: boolean) {
    return this.byHand.get(id) ?? isOpen;
  }

  // A small button that turns a request's row.
  toggle(id: number) {
    const made = make("button", "le-tables-fold");
    made.type = "button";
    made.addEventListener("click", () => this.set(id, made.getAttribute("aria-expanded") !== "true"));
    return made;
  }

  set(id: number, isUnfolded: boolean) {
    this.byHand.set(id, isUnfolded);
    this.stage.repaint();
  }

  paint(made: HTMLElement, isUnfolded: boolean) {
    const words = isUnfolded ? "fold to one row of blocks" : "unfold: the slots of every block, and their tokens";
    put(made, "textContent", isUnfolded ? "▾" : "▸");
    put(made, "title", words);
    made.setAttribute("aria-expanded", String(isUnfolded));
    made.setAttribute("aria-label", words);
  }
}
