// A side's numbers in fixed places: what is used now and was at the step's peak; what a look-up finds, and what it cannot; what was computed.
import { element, write } from "../look/element.ts";

// Words in i, then those in em, are left out where there is no room for them.
const FACTS = [
  [
    "peak",
    [
      ["", "peak"],
      ["i", " of this step"],
    ],
    "the most blocks used within this step",
  ],
  [
    "findable",
    [
      ["", "in "],
      ["em", "the "],
      ["", "map"],
    ],
    "full blocks that a look-up is served with, in use or free",
  ],
  ["lost", [["", "lost"]], "in use and full, but no entry of the map leads to them: no look-up finds them"],
  [
    "computed",
    [
      ["em", "tokens "],
      ["", "computed"],
    ],
    "tokens whose keys and values the model has computed since the recording began",
  ],
];

export class PairScore {
  constructor(side) {
    Object.assign(this, { side, facts: new Map(), work: { recording: null } });
    this.element = element("div", "le-pair-score");
    this.used = element("span", "le-pair-used");
    this.used.title = "blocks that some request holds now";
    this.number = element("b", "", "0");
    this.total = element("span");
    this.used.append(this.number, this.total);
    this.element.append(this.used, ...FACTS.map((fact) => this.fact(fact)));
  }

  fact([name, words, title]) {
    const made = element("span", `le-pair-fact le-pair-${name}`),
      number = element("b", "", "0");
    made.title = title;
    const told = element("span");
    told.append(...words.map(([tag, text]) => (tag ? element(tag, "", text) : text)));
    made.append(number, told);
    this.facts.set(name, { made, number });
    return made;
  }

  paint() {
    const { scene, moment } = this.side,
      { score } = scene;
    write(this.number, score.used);
    write(this.total, `of ${scene.numBlocks - (scene.nullBlock < 0 ? 0 : 1)} used`);
    const values = { ...score, computed: this.computedUpTo(moment) };
    for (const [name, { number }] of this.facts) write(number, values[name]);
    this.facts.get("lost").made.classList.toggle("le-is-lost", score.lost > 0);
  }

  // How many tokens were computed before a moment: counted where their slots are written, once per event. A step taken back counts.
  computedUpTo(moment) {
    const { recording } = this.side,
      { work } = this;
    if (work.recording !== recording || work.upTo > recording.end || work.start !== recording.start)
      Object.assign(work, { recording, start: recording.start, upTo: recording.start, at: [], sums: [] });
    for (; work.upTo < recording.end; work.upTo++) {
      if (recording.kind(work.upTo) !== "SlotsWritten" || recording.field(work.upTo, "group")) continue;
      work.sums.push(
        (work.sums.at(-1) || 0) + recording.field(work.upTo, "runs").reduce((sum, [, , length]) => sum + length, 0),
      );
      work.at.push(work.upTo + 1);
    }
    let low = 0,
      high = work.at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (work.at[middle] <= moment) low = middle + 1;
      else high = middle;
    }
    return low ? work.sums[low - 1] : 0;
  }
}
