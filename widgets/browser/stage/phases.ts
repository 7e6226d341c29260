// step 1  schedule › forward › sample › update: the phase of the moment, or the one done last in an open step.

import { element, write } from "../look/element.ts";

const PHASES = ["schedule", "forward", "sample", "update"];

export class Phases {
  step = element("span", "le-quiet");
  names = PHASES.map((phase) => element("span", "le-phase", phase));
  element = element("div", "le-phases", {}, this.step);

  constructor() {
    this.names.forEach((name, i) => this.element.append(element("span", "le-quiet", i ? "›" : ""), name));
  }

  paint(step: string, current: string | null | undefined) {
    write(this.step, step);
    this.names.forEach((name, i) => {
      name.classList.toggle("le-is-now", PHASES[i] === current);
      name.ariaCurrent = PHASES[i] === current ? "step" : null;
    });
  }
}
