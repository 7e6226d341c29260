// step 1  schedule › forward › sample › update: the phase of the moment, or the one done last in an open step.

import { element, write } from "../look/element.ts";

const PHASES = ["schedule", "forward", "sample", "update"];

export class Phases {
  element = element("div", "le-phases");
  step = element("span", "le-quiet");
  names: HTMLElement[];

  constructor() {
    this.element.append(this.step);
    this.names = PHASES.map((phase, i) => {
      const name = element("span", "le-phase", phase);
      this.element.append(element("span", "le-quiet", i ? "›" : ""), name);
      return name;
    });
  }

  paint(step: string, current: string | null | undefined) {
    write(this.step, step);
    this.names.forEach((name, i) => {
      name.classList.toggle("le-is-now", PHASES[i] === current);
      if (PHASES[i] === current) name.setAttribute("aria-current", "step");
      else name.removeAttribute("aria-current");
    });
  }
}
