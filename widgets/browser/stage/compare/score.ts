// A side's numbers in fixed places: blocks used now and at the step's peak, findable and lost blocks, computed
// tokens.

import { element, put, write } from "../../look/element.ts";
import { countUpTo } from "../../model/arrays.ts";
import { meaning } from "../../model/glossary.ts";
import type { Recording } from "../../model/recording.ts";
import type { Side } from "../../model/side.ts";

type FactName = "peak" | "evictable" | "findable" | "lost" | "computed";

// Words in i, then those in em, are left out where they do not fit.
const left = (tag: "i" | "em", text: string) => element(tag, "", text);
const FACTS: [name: FactName, words: () => (string | HTMLElement)[], title: string][] = [
  ["peak", () => ["peak", left("i", " of this step")], meaning("peak")],
  ["evictable", () => ["evictable"], meaning("evictable")], // with a prefix tree, else:
  ["findable", () => ["in ", left("em", "the "), "map"], meaning("findable")],
  ["lost", () => ["lost"], meaning("lost block")],
  [
    "computed",
    () => [left("em", "tokens "), "computed"],
    "tokens whose keys and values the model has computed since the recording began",
  ],
];

// Computed tokens, summed up to the moments at which they were written.
interface Work {
  recording: Recording;
  start: number;
  upTo: number;
  at: number[];
  sums: number[];
}

export class PairScore {
  work: Work | null = null;
  number = element("b", "", "0");
  total = element("span");
  used = element("span", "le-pair-used", { title: "blocks that requests hold" }, this.number, this.total);
  numbers = FACTS.map(() => element("b", "", "0"));
  facts = FACTS.map(([name, words, title], i) =>
    element("span", `le-pair-fact le-pair-${name}`, { title }, this.numbers[i], element("span", "", {}, ...words())),
  );
  element = element("div", "le-pair-score le-wrap", {}, this.used, ...this.facts);

  constructor(readonly side: Side) {}

  paint() {
    const { scene, moment } = this.side,
      { score } = scene,
      values = { ...score, computed: this.computedUpTo(moment) };
    write(this.number, score.used);
    write(this.total, `of ${scene.numBlocks - (scene.nullBlock < 0 ? 0 : 1)} used`);
    FACTS.forEach(([name], i) => {
      write(this.numbers[i], values[name]);
      put(this.facts[i], "hidden", name === (this.side.recording.hasTree ? "findable" : "evictable"));
      this.facts[i].classList.toggle("le-is-lost", name === "lost" && score.lost > 0);
    });
  }

  // How many tokens were computed before a moment: counted where their slots are written, once per event. A
  // rolled-back step counts.
  computedUpTo(moment: number) {
    const { recording } = this.side;
    let { work } = this;
    if (!work || work.recording !== recording || work.upTo > recording.end || work.start !== recording.start)
      this.work = work = { recording, start: recording.start, upTo: recording.start, at: [], sums: [] };
    for (; work.upTo < recording.end; work.upTo++) {
      if (recording.kind(work.upTo) !== "SlotsWritten" || recording.field(work.upTo, "group")) continue;
      const runs = recording.field(work.upTo, "runs") ?? [];
      work.sums.push((work.sums.at(-1) ?? 0) + runs.reduce((sum, [, , length]) => sum + length, 0));
      work.at.push(work.upTo + 1);
    }
    return work.sums[countUpTo(work.at, moment) - 1] ?? 0;
  }
}
