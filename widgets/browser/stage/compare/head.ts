// The first two lines of a comparison: title and play buttons, then the phase and the commands for both engines.

import { button, element, put, write } from "../../look/element.ts";
import type { Keys } from "../keyboard.ts";
import { Phases } from "../phases.ts";
import { speedChoice } from "../scrubber.ts";
import { writeSentence } from "../sentence_element.ts";
import type { PairStage } from "../stage.ts";
import { Prediction } from "./prediction.ts";

export class CompareHead {
  title = element("h2", "le-compare-title le-clip");
  phases = new Phases();
  transport: Transport;
  controls: PairControls;
  prediction: Prediction;
  element: HTMLElement;

  constructor(
    readonly stage: PairStage,
    keys: Keys,
  ) {
    this.transport = new Transport(stage);
    this.transport.element.append(button("?", "keys", () => keys.toggle(), "le-help"));
    this.controls = new PairControls(stage);
    this.prediction = new Prediction(stage);
    const parts = [this.transport, this.phases, this.controls, this.prediction].map((part) => part.element);
    this.element = element("header", "le-compare-head", {}, this.title, ...parts);
  }

  paint() {
    writeSentence(this.title, [this.stage.track.title]);
    this.phases.paint(stepWords(this.stage), this.stage.caption.phase);
    for (const part of [this.transport, this.controls, this.prediction]) part.paint();
  }
}

// |‹ ‹ play › ›| and the speed.
class Transport {
  first = button("|‹", "before this step (home)", () => this.stage.first());
  back = button("‹", "one moment back (←)", () => this.stage.back());
  play = button("Play", "play from here (r)", () => this.toggle(), "le-play");
  forth = button("›", "one moment forward (→)", () => this.stage.forward());
  last = button("›|", "the newest moment (end)", () => this.stage.last());
  speed = speedChoice(this.stage);
  element = element("div", "le-transport", { role: "group", ariaLabel: "time" });

  constructor(readonly stage: PairStage) {
    this.element.append(this.first, this.back, this.play, this.forth, this.last, this.speed);
  }

  toggle() {
    if (this.stage.isPlaying) this.stage.pause();
    else this.stage.play();
  }

  paint() {
    const { position, track, isPlaying } = this.stage;
    this.first.disabled = this.back.disabled = position <= track.first;
    this.forth.disabled = this.last.disabled = position >= track.end;
    write(this.play, isPlaying ? "Pause" : "Play");
    this.play.ariaPressed = String(isPlaying);
    put(this.speed, "value", String(this.stage.speed));
  }
}

function stepWords({ sides }: PairStage) {
  const [left, right] = sides.map(({ scene }) => scene.step);
  if (left !== right) return `step ${left} and ${right}`;
  return left ? `step ${left}` : "before step 1";
}

// Commands for both engines at once.
class PairControls {
  message = element("span", "le-message le-clip", { role: "status" });
  followUp = this.button("Follow-up", "run the story's next requests on both engines", "follow_up", "le-follow-up");
  caption = element("span", "le-quiet le-caption le-fine", "control both");
  step = this.button("Step both", "one step of each engine (s)", "step");
  phase = this.button("Phase", "one phase of a step (p)", "phase");
  run = button("Run", "run or pause both (space)", () =>
    this.stage.command(this.stage.status.running ? "pause" : "start"),
  );
  element = element("div", "le-compare-controls");
  isGone?: boolean;
  wrong?: string;

  constructor(readonly stage: PairStage) {
    this.element.append(this.message, this.followUp, this.caption, this.step, this.phase, this.run);
    stage.on("answer", ({ error }) => this.say(error || ""));
    stage.on("failure", (message) => this.say(message));
    stage.on("gone", () => this.hear(true, "No kernel: this is the saved state."));
    stage.on("silence", () => this.say("The kernel is busy or missing."));
    stage.on("present", () => this.hear(false, ""));
  }

  button(text: string, title: string, command: string, className?: string) {
    return button(text, title, () => this.stage.command(command), className);
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
