// The alarm: broken rules and a failed step, counted in red, with a sentence and a link to the Why? answer.

import { button, element, put, write } from "../look/element.ts";
import type { Crash, Violation } from "../model/alarms.ts";
import { alarmsAt } from "../model/alarms.ts";
import { counted } from "../model/names.ts";
import type { Side } from "../model/side.ts";
import { eventOf, moveToMoment } from "../views/view.ts";
import type { Stage } from "./stage.ts";

// How many there are: a click asks why, of one after the other, the first one first.
export class AlarmCount {
  asked = -1;
  found: Violation[] = [];
  number = element("span", "le-alarm-number", "0");
  words = element("span", "le-alarm-noun");
  element = button("", "", () => this.ask(), "le-alarm-count");

  constructor(
    readonly stage: Stage,
    readonly side: Side,
  ) {
    this.element.append("⚠ ", this.number, this.words);
  }

  // True if a rule is broken at the moment that the side shows.
  paint() {
    this.found = alarmsAt(this.side.recording, this.side.moment).violations;
    const { length } = this.found;
    put(this.element, "hidden", !length);
    write(this.number, length);
    write(this.words, counted(length, " violation").replace(/^\d+ /, ""));
    const [first] = this.found;
    if (first)
      put(this.element, "title", `rules that the checks found broken, the first: ${first.message}. Click: why?`);
    return length > 0;
  }

  ask() {
    this.asked = (this.asked + 1) % this.found.length;
    lead(this.stage, this.side, this.found[this.asked].event);
  }
}

// The step that failed last: a click shows the moment before it was rolled back.
export class CrashSign {
  element = button(
    "",
    "show the moment of the failure, with the blocks held then",
    () => moveToMoment(this.stage, this.side, this.crash?.moment ?? this.side.moment),
    "le-alarm-crash",
  );
  crash!: Crash | null;

  constructor(
    readonly stage: Stage,
    readonly side: Side,
  ) {}

  paint() {
    const { crash } = alarmsAt(this.side.recording, this.side.moment);
    put(this.element, "hidden", !crash);
    if (crash) write(this.element, `step ${crash.step} failed`);
    return (this.crash = crash);
  }
}

// Both above the sentence, with the words of the failure, or of the first violation.
export class Alarm {
  about = 0;
  count = new AlarmCount(this.stage, this.side);
  crash = new CrashSign(this.stage, this.side);
  words = element("button", "le-alarm-words", { type: "button", title: "why?" });
  element = element("div", "le-alarm le-row", { role: "status" }, this.count.element, this.crash.element, this.words);

  constructor(
    readonly stage: Stage,
    readonly side: Side,
  ) {
    this.words.addEventListener("click", () => lead(stage, side, this.about));
  }

  paint() {
    this.count.paint();
    const crash = this.crash.paint(),
      alarm = crash ?? this.count.found[0];
    put(this.element, "hidden", !alarm);
    if (!alarm) return;
    this.about = alarm.event;
    write(
      this.words,
      crash ? `${crash.error} in ${crash.method}: ${crash.message}` : `in step ${alarm.step}: ${alarm.message}`,
    );
    put(this.words, "title", `${this.words.textContent}. Click: why?`);
  }
}

// The event is chosen, and asked about where there is a place for answers.
function lead(stage: Stage, side: Side, event: number) {
  stage.askWhy?.("event", side.index);
  stage.select(eventOf(stage, side, event));
}
