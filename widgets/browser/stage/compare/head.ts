// The first two lines of a comparison: title and play buttons, then the phase and the commands for both engines.

import { button, element, put, write } from "../../look/element.ts";
import type { Keys } from "../keyboard.ts";
import { Phases } from "../phases.ts";
import { SPEEDS } from "../player.ts";
import { writeSentence } from "../sentence_element.ts";
import type { PairStage } from "../stage.ts";
import { Prediction } from "./prediction.ts";

export class CompareHead {
  stage: PairStage;
  element = element("header", "le-compare-head");
  title = element("h2", "le-compare-title");
  transport: Transport;
  phases = new Phases();
  controls: PairControls;
  prediction: Prediction;

  constructor(stage: PairStage, keys: Keys) {
    this.stage = stage;
    this.transport = new Transport(stage);
    const help = button("?", "keys", "le-help");
    help.addEventListener("click", () => keys.toggle());
    this.transport.element.append(help);
    this.controls = new PairControls(stage);
    this.prediction = new Prediction(stage);
    this.element.append(
      this.title,
      this.transport.element,
      this.phases.element,
      this.controls.element,
      this.prediction.element,
    );
  }

  paint() {
    writeSentence(this.title, [this.stage.track.title]);
    this.transport.paint();
    this.phases.paint(stepWords(this.stage), this.stage.caption.phase);
    this.controls.paint();
    this.prediction.paint();
  }
}

// |‹ ‹ play › ›| and the speed.
class Transport {
  stage: PairStage;
  element = element("div", "le-transport");
  buttons: HTMLButtonElement[];
  speed = element("select", "le-speed");

  constructor(stage: PairStage) {
    this.stage = stage;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "time");
    const buttons: [text: string, title: string, act: () => void][] = [
      ["|‹", "before this step (home)", () => stage.first()],
      ["‹", "one moment back (←)", () => stage.back()],
      ["Play", "play on from here (r)", () => this.toggle()],
      ["›", "one moment on (→)", () => stage.forward()],
      ["›|", "the newest moment (end)", () => stage.last()],
    ];
    this.buttons = buttons.map(([text, title, act]) => {
      const made = button(text, title);
      made.addEventListener("click", act);
      this.element.append(made);
      return made;
    });
    this.buttons[2].classList.add("le-play");
    this.speed.title = "how fast a play goes";
    this.speed.setAttribute("aria-label", this.speed.title);
    for (const speed of SPEEDS) this.speed.append(new Option(`${speed}×`, String(speed), speed === 1, speed === 1));
    this.speed.addEventListener("change", () => stage.setSpeed(Number(this.speed.value)));
    this.element.append(this.speed);
  }

  toggle() {
    if (this.stage.isPlaying) this.stage.pause();
    else this.stage.play();
  }

  paint() {
    const { position, track, isPlaying } = this.stage,
      [first, back, play, forth, last] = this.buttons;
    first.disabled = back.disabled = position <= track.first;
    forth.disabled = last.disabled = position >= track.end;
    write(play, isPlaying ? "Pause" : "Play");
    play.setAttribute("aria-pressed", String(isPlaying));
    if (this.speed.value !== String(this.stage.speed)) this.speed.value = String(this.stage.speed);
  }
}

function stepWords({ sides }: PairStage) {
  const [left, right] = sides.map(({ scene }) => scene.step);
  if (left !== right) return `step ${left} and ${right}`;
  return left ? `step ${left}` : "before step 1";
}

// Commands for both engines at once.
class PairControls {
  stage: PairStage;
  element = element("div", "le-compare-controls");
  followUp: HTMLButtonElement;
  caption = element("span", "le-quiet le-caption", "control both");
  step: HTMLButtonElement;
  phase: HTMLButtonElement;
  run: HTMLButtonElement;
  message = element("span", "le-message");
  isGone?: boolean;
  wrong?: string;

  constructor(stage: PairStage) {
    this.stage = stage;
    this.followUp = this.make(
      "Follow-up",
      "both engines run the next requests of the story",
      () => stage.command("follow_up"),
      "le-follow-up",
    );
    this.element.append(this.caption);
    this.step = this.make("Step both", "one step of either engine (s)", () => stage.command("step"));
    this.phase = this.make("Phase", "one phase of a step (p)", () => stage.command("phase"));
    this.run = this.make("Run", "run or pause both (space)", () =>
      stage.command(stage.status.running ? "pause" : "start"),
    );
    this.message.setAttribute("role", "status");
    this.element.prepend(this.message);
    stage.on("answer", ({ error }) => this.say(error || ""));
    stage.on("failure", (message) => this.say(message));
    stage.on("gone", () => this.hear(true, "No kernel: this is what was saved."));
    stage.on("silence", () => this.say("The kernel is busy, or there is none."));
    stage.on("present", () => this.hear(false, ""));
  }

  make(text: string, title: string, act: () => void, className?: string) {
    const made = button(text, title, className);
    made.addEventListener("click", act);
    this.element.append(made);
    return made;
  }

  hear(isGone: boolean, text: string) {
    this.isGone = isGone;
    this.say(text);
    this.stage.changed();
  }

  say(text: string) {
    this.wrong = text;
    this.show();
  }

  // The error message; without one, a note on the breakpoint at which a run stopped.
  show() {
    const text = this.wrong || this.stopped;
    write(this.message, text);
    put(this.message, "title", text);
    this.message.classList.toggle("le-error", Boolean(this.wrong));
  }

  get stopped() {
    const { sides, track, status } = this.stage;
    if (status.running) return "";
    return sides.flatMap(({ status: { stopped } }, i) => (stopped ? [`${track.names[i]} ${stopped}`] : [])).join("; ");
  }

  paint() {
    this.show();
    const { stage } = this,
      { followUp, end, guide } = stage.track,
      isLive = stage.isLive && !this.isGone;
    for (const each of [this.caption, this.step, this.phase, this.run]) each.hidden = !isLive;
    this.followUp.hidden = !isLive || !followUp || (guide.length > 0 && stage.position < end);
    if (followUp) write(this.followUp, followUp);
    this.followUp.classList.toggle("le-primary", stage.position >= end);
    write(this.run, stage.status.running ? "Pause" : "Run");
  }
}
