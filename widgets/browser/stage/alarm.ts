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
  stage: Stage;
  side: Side;
  asked = -1;
  found: Violation[] = [];
  number = element("span", "le-alarm-number", "0");
  words = element("span", "le-alarm-noun");
  element = button("", "", "le-alarm-count");

  constructor(stage: Stage, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element.append("⚠ ", this.number, this.words);
    this.element.addEventListener("click", () => this.ask());
  }

  // True if a rule is broken at the moment that the side shows.
  paint() {
    this.found = alarmsAt(this.side.recording, this.side.moment).violations;
    const { length } = this.found;
    put(this.element, "hidden", !length);
    write(this.number, length);
    write(this.words, counted(length, " violation").replace(/^\d+ /, ""));
    if (length)
      put(
        this.element,
        "title",
        `rules that the checks found broken; the first: ${this.found[0].message}. Click: why?`,
      );
    return length > 0;
  }

  ask() {
    this.asked = (this.asked + 1) % this.found.length;
    lead(this.stage, this.side, this.found[this.asked].event);
  }
}

// The step that failed last: a click shows the moment before it was rolled back.
export class CrashSign {
  side: Side;
  element = button("", "show the moment at which it failed, with the blocks held then", "le-alarm-crash");
  crash!: Crash | null;

  constructor(stage: Stage, side: Side) {
    this.side = side;
    this.element.addEventListener("click", () => moveToMoment(stage, side, this.crash?.moment ?? this.side.moment));
  }

  paint() {
    const { crash } = alarmsAt(this.side.recording, this.side.moment);
    put(this.element, "hidden", !crash);
    if (crash) write(this.element, `step ${crash.step} failed`);
    return (this.crash = crash);
  }
}

// Both above the sentence, with the words of the failure, or of the first violation.
export class Alarm {
  stage: Stage;
  side: Side;
  element = element("div", "le-alarm");
  count: AlarmCount;
  crash: CrashSign;
  words = element("button", "le-alarm-words");
  about = 0;

  constructor(stage: Stage, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element.setAttribute("role", "status");
    this.count = new AlarmCount(stage, side);
    this.crash = new CrashSign(stage, side);
    Object.assign(this.words, { type: "button", title: "why?" });
    this.words.addEventListener("click", () => lead(stage, side, this.about));
    this.element.append(this.count.element, this.crash.element, this.words);
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
