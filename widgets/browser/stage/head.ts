// Above the picture: title, score, phases, and the sentence of the moment.

import { button, element, put, write } from "../look/element.ts";
import { meaning } from "../model/glossary.ts";
import type { Scene } from "../model/scene.ts";
import { textOf } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";
import { Alarm, AlarmCount } from "./alarm.ts";
import type { Keys } from "./keyboard.ts";
import { Phases } from "./phases.ts";
import type { Scrubber } from "./scrubber.ts";
import { writeSentence } from "./sentence_element.ts";
import type { Stage } from "./stage.ts";

const FACTS = [
  ["peak", "peak of the step", meaning("peak")],
  ["findable", "findable", meaning("findable")],
  ["lost", "lost", meaning("lost block")],
];

// Used, peak, findable, lost: of one side.
export class Score {
  side: Side;
  element = element("div", "le-score");
  number = element("b", "", "0");
  total = element("span");
  used = element("span", "le-used");
  facts: Map<string, { element: HTMLElement; number: HTMLElement }>;
  alarm: AlarmCount;

  constructor(stage: Stage, side: Side) {
    this.side = side;
    this.used.append(this.number, this.total);
    const facts = element("span", "le-facts");
    this.facts = new Map(FACTS.map(([name, words, title]) => [name, factElement(facts, words, title)]));
    this.alarm = new AlarmCount(stage, side);
    facts.append(this.alarm.element);
    this.element.append(this.used, facts);
  }

  paint() {
    const { scene } = this.side,
      { score } = scene;
    write(this.number, score.used);
    write(this.total, ` used of ${scene.numBlocks - (scene.nullBlock < 0 ? 0 : 1)}`);
    for (const [name, { number }] of this.facts) write(number, score[name as keyof Scene["score"]]);
    const lost = (this.facts.get("lost") as { element: HTMLElement }).element.classList,
      isBroken = this.alarm.paint();
    lost.toggle("le-is-lost", score.lost > 0);
    lost.toggle("le-is-doubtful", isBroken && !score.lost); // what is counted is what events say
  }
}

function factElement(parent: HTMLElement, words: string, title: string) {
  const made = element("span", "le-fact"),
    number = element("b", "", "0");
  made.title = title;
  made.append(number, ` ${words}`);
  parent.append(made);
  return { element: made, number };
}

export class Head {
  stage: Stage;
  element = element("header", "le-head");
  title = element("div", "le-title");
  score: Score;
  phases = new Phases();
  running = element("span", "le-running", "running");

  constructor(stage: Stage, keys: Keys) {
    this.stage = stage;
    this.score = new Score(stage, stage.sides[0]);
    this.phases.element.append(this.running);
    const help = button("?", "keys", "le-help");
    help.addEventListener("click", () => keys.toggle());
    this.element.append(this.title, help, this.score.element, this.phases.element);
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
  stage: Stage;
  element = element("div", "le-caption-line");
  alarm: Alarm;
  words = element("p", "le-sentence");

  constructor(stage: Stage) {
    this.stage = stage;
    this.alarm = new Alarm(stage, stage.sides[0]);
    this.words.setAttribute("aria-live", "polite");
    this.words.setAttribute("aria-atomic", "true");
    this.element.append(this.alarm.element, this.words);
  }

  paint() {
    const { sentence } = this.stage.caption;
    this.alarm.paint();
    writeSentence(this.words, sentence);
    put(this.words, "title", textOf(sentence)); // a narrow cell cuts it
  }
}

// What tests and style sheets may read of the moment.
export class MomentData {
  stage: Stage;
  scrubber: Scrubber;
  digits?: string;

  constructor(stage: Stage, scrubber: Scrubber) {
    this.stage = stage;
    this.scrubber = scrubber;
  }

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
