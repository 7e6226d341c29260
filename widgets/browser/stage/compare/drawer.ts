// The drawer below the comparison, closed at first, for one side at a time: the answers to Why?, the log,
// the timeline and the step.

import { element, write } from "../../look/element.ts";
import { Drawer } from "../panel.ts";
import type { PairStage } from "../stage.ts";

const NAMES = ["why", "log", "timeline", "step"];

export class CompareDrawer {
  side = 0;
  drawers = [0, 1].map((side) => new Drawer(this.stage, NAMES, side));
  buttons = [0, 1].map((side) => {
    const made = element("button", "le-tab", { type: "button", role: "radio" });
    made.addEventListener("click", () => this.show(side));
    return made;
  });
  choice = element("div", "le-drawer-side le-row", { role: "radiogroup", ariaLabel: "side" }, ...this.buttons);
  element = element("section", "le-drawers", {}, this.choice, ...this.drawers.map((drawer) => drawer.element));

  constructor(readonly stage: PairStage) {
    this.show(0);
  }

  // The same view stays open, of the other side.
  show(side: number) {
    const open = this.drawers[this.side].open;
    this.side = side;
    this.drawers.forEach((drawer, i) => {
      drawer.element.classList.toggle("le-is-shut", i !== side);
      drawer.show(i === side ? open : null);
    });
    this.stage.root.classList.toggle("le-is-drawn", open !== null);
    this.buttons.forEach((made, i) => (made.ariaChecked = String(i === side)));
  }

  askWhy(about?: string, side: number = this.side) {
    this.show(side);
    this.drawers[side].askWhy(about);
  }

  paint() {
    const { names, whyDifferent } = this.stage.track,
      drawer = this.drawers[this.side];
    this.buttons.forEach((made, i) => write(made, names[i]));
    const why = drawer.open === "why" && drawer.entries.get("why")?.view;
    if (why && whyDifferent && why.links === null && !this.stage.selection) why.showAnswer?.(whyDifferent);
  }
}
