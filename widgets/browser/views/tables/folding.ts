// Which requests of the block tables are unfolded: one choice for all tables of a stage, so that two sides stay on the
// same lines.
import { element as make, put } from "../../look/element.ts";
import type { Recording } from "../../model/recording.ts";
import type { ViewHost } from "../view.ts";

const choices = new WeakMap<ViewHost, Map<number, boolean>>();

export class Folding {
  stage: ViewHost;
  byHand: Map<number, boolean>;

  constructor(stage: ViewHost) {
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

// Is this a story about slots? Its guide speaks of them, or a token's keys and values went to another slot than the
// tables say.

const known = new WeakSet<Recording>(); // once is enough: what is drawn must not come and go with every moment

export function isAboutSlots({ sides, track }: ViewHost) {
  if (track.guide.some((words) => /slots?/.test(words))) return true;
  for (const { scene, recording } of sides) if (scene?.strays.size) known.add(recording);
  return sides.some(({ recording }) => recording && known.has(recording));
}
