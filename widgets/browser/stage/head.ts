// Above the picture: title, score, phases, and the sentence of the moment.

import { button, element, put, write } from "../look/element.ts";
import { meaning } from "../model/glossary.ts";
import { textOf } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";
import { Alarm, AlarmCount } from "./alarm.ts";
import type { Keys } from "./keyboard.ts";
import { Phases } from "./phases.ts";
import type { Scrubber } from "./scrubber.ts";
import { writeSentence } from "./sentence_element.ts";
import type { Stage } from "./stage.ts";

const FACTS: [name: "peak" | "evictable" | "findable" | "lost", words: string, title: string][] = [
  ["peak", "peak of the step", meaning("peak")],
  ["evictable", "evictable", meaning("evictable")],
  ["findable", "findable", meaning("findable")],
  ["lost", "lost", meaning("lost block")],
];

// Used, peak, findable, lost: of one side. All that a prefix tree has is findable: there, what is evictable counts.
class Score {
  number = element("b", "", "0");
  total = element("span");
  used = element("span", "le-used", {}, this.number, this.total);
  numbers = FACTS.map(() => element("b", "", "0"));
  facts = FACTS.map(([, words, title], i) => element("span", "le-fact", { title }, this.numbers[i], ` ${words}`));
  alarm = new AlarmCount(this.stage, this.side);
  element = element(
    "div",
    "le-score",
    {},
    this.used,
    element("span", "le-facts", {}, ...this.facts, this.alarm.element),
  );

  constructor(
    readonly stage: Stage,
    readonly side: Side,
  ) {}

  paint() {
    const { scene } = this.side,
      { score } = scene;
    write(this.number, score.used);
    write(this.total, ` used of ${scene.numBlocks - (scene.nullBlock < 0 ? 0 : 1)}`);
    FACTS.forEach(([name], i) => write(this.numbers[i], score[name]));
    const { hasTree } = this.side.recording;
    FACTS.forEach(([name], i) => put(this.facts[i], "hidden", name === (hasTree ? "findable" : "evictable")));
    const { classList } = this.facts[FACTS.length - 1],
      isBroken = this.alarm.paint();
    classList.toggle("le-is-lost", score.lost > 0);
    classList.toggle("le-is-doubtful", isBroken && !score.lost); // the numbers follow the events
  }
}

export class Head {
  title = element("div", "le-title le-clip");
  score = new Score(this.stage, this.stage.sides[0]);
  phases = new Phases();
  running = element("span", "le-running", "running");
  element: HTMLElement;

  constructor(
    readonly stage: Stage,
    keys: Keys,
  ) {
    const help = button("?", "keys", () => keys.toggle(), "le-help");
    this.phases.element.append(this.running);
    this.element = element("header", "le-head", {}, this.title, help, this.score.element, this.phases.element);
  }

  paint() {
    const { stage } = this,
      { title, scene } = stage.sides[0];
    write(this.title, title);
    put(this.title, "title", title); // a narrow cell cuts it
    this.score.paint();
    this.phases.paint(scene.step ? `step ${scene.step}` : "no step yet", phaseOf(stage));
    put(this.running, "hidden", !stage.status.running);
  }
}

function phaseOf(stage: Stage) {
  const { phase } = stage.caption;
  return stage.position < stage.track.end ? phase : stage.status.phase || phase;
}

export class CaptionLine {
  alarm = new Alarm(this.stage, this.stage.sides[0]);
  words = element("p", "le-sentence", { ariaLive: "polite", ariaAtomic: "true" });
  element = element("div", "le-caption-line", {}, this.alarm.element, this.words);

  constructor(readonly stage: Stage) {}

  paint() {
    const { sentence } = this.stage.caption;
    this.alarm.paint();
    writeSentence(this.words, sentence);
    put(this.words, "title", textOf(sentence)); // a narrow cell cuts it
  }
}

// The moment's data for tests and style sheets.
export class MomentData {
  digits?: string;

  constructor(
    readonly stage: Stage,
    readonly scrubber: Scrubber,
  ) {}

  paint() {
    const { stage, scrubber } = this,
      [side] = stage.sides,
      { score } = side.scene;
    const marks = {
      ...score,
      step: side.scene.step,
      phase: phaseOf(stage) || "",
      sentence: textOf(stage.caption.sentence),
      moment: side.moment,
      end: side.recording.end,
      frame: scrubber.at,
      numFrames: scrubber.total,
      playing: stage.isPlaying,
      running: Boolean(stage.status.running),
    };
    const { dataset } = stage.root;
    for (const [name, value] of Object.entries(marks))
      if (dataset[name] !== String(value)) dataset[name] = String(value);
    stage.root.classList.toggle("le-hybrid", side.scene.groups.length > 1);
    const digits = String(String(side.scene.numBlocks).length);
    if (this.digits !== digits) stage.root.style.setProperty("--le-digits", (this.digits = digits));
  }
}
