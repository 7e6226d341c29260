// Sliders over a recorded workload: at each move Python runs it again, and the picture follows. While a run is on its
// way the newest figures wait; those between are never run.

import { element, put, write } from "../look/element.ts";
import { meaning } from "../model/glossary.ts";
import type { Outcome, Varied, VariedFigure } from "../model/payloads.ts";
import type { Stage } from "./stage.ts";

const NEEDED = "These sliders rerun the workload, which needs the engine: run the cell, or open the live page.";

const FACTS: [name: keyof Outcome["figures"], words: string, title: string][] = [
  ["peak", "peak", "the most blocks in use at once, over the whole run"],
  ["used", "used at the end", "blocks held by requests at the end of the run"],
  ["lost", "lost at the end", meaning("lost block")],
  ["computed", "tokens computed", "tokens whose keys and values were computed, including recomputed ones"],
  ["found", "tokens found", meaning("prefix hit")],
  ["preemptions", "preempted", meaning("preemption")],
  ["steps", "steps", meaning("step")],
];

// Puts sliders above a picture as soon as Python says that there is a workload to run again.
export function offerSliders(stage: Stage, varied?: Varied | null) {
  let sliders: Sliders | undefined;
  stage.on("varied", (content) => {
    sliders ??= new Sliders(stage);
    sliders.hear(content.varied ?? null, content.error ?? "");
  });
  if (varied) stage.emit("varied", { type: "varied", varied });
}

class Slider {
  range = element("input", "", { type: "range", min: "1", step: "1" });
  number = element("output");
  element: HTMLElement;

  constructor(
    readonly label: string,
    act: () => void,
  ) {
    this.range.addEventListener("input", () => {
      this.say();
      act();
    });
    this.element = element("label", "le-slider", {}, element("span", "", label), this.range, this.number);
  }

  get value() {
    return this.range.valueAsNumber;
  }

  place({ value, most }: VariedFigure) {
    put(this.range, "max", String(most));
    put(this.range, "value", String(value));
    this.say();
  }

  say() {
    write(this.number, this.value);
    this.range.ariaValueText = `${this.value} ${this.label}`;
  }
}

class Sliders {
  bar = element("div", "le-sliders");
  outcome = element("div", "le-outcome");
  message = element("p", "le-vary-message", { role: "status" });
  element = element(
    "section",
    "labengine-sliders",
    { ariaLabel: "the same workload with different numbers" },
    this.bar,
    this.outcome,
    this.message,
  );
  sliders = new Map<string, Slider>();
  isRunning = false;
  isWrong = false; // the newest figures are impossible
  note = "";
  isMoved = false; // since the figures of the newest run were sent
  step: number | null = null; // the one that the reader looked at; null for the newest moment

  constructor(readonly stage: Stage) {
    this.element.dataset.lmSuppressShortcuts = "true"; // the arrow keys are the sliders'
    stage.root.before(this.element);
    stage.end.signal.addEventListener("abort", () => this.element.remove());
    stage.on("gone", () => {
      this.isRunning = false;
      this.enable(false);
      this.say(NEEDED);
    });
    stage.on("silence", () => this.say(stage.wire.absence.silence));
    stage.on("present", () => {
      this.enable(true);
      if (!this.isWrong) this.say(this.note);
    });
  }

  enable(isEnabled: boolean) {
    for (const { range } of this.sliders.values()) range.disabled = !isEnabled;
  }

  say(words: string, isWrong = false) {
    this.isWrong = isWrong;
    write(this.message, words);
    this.message.classList.toggle("le-error", isWrong);
    for (const old of [this.outcome, this.stage.root]) old.classList.toggle("le-is-old", isWrong);
  }

  move() {
    this.isMoved = true;
    if (!this.isRunning) this.run();
  }

  run() {
    const { stage } = this,
      changes = Object.fromEntries([...this.sliders].map(([name, { value }]) => [name, value]));
    this.isMoved = false;
    this.isRunning = true;
    this.step = stage.position < stage.track.end ? stage.track.span(stage.position).step : null;
    if (!stage.wire.send({ type: "vary", changes })) stage.emit("gone");
  }

  // A run has come, its events before it; or a reason why there is none. Without figures there is no workload.
  hear(varied: Varied | null, error: string) {
    const wasAsked = this.isRunning;
    this.isRunning = false;
    this.element.hidden = !varied;
    if (!varied) return;
    for (const figure of varied.figures) this.slider(figure, !error && !this.isMoved);
    this.outcome.replaceChildren(...varied.outcome.map((one) => outcomeLine(one, varied.outcome.length > 1)));
    this.note = varied.note;
    this.say(error || varied.note, Boolean(error));
    if (wasAsked && !error) this.stand();
    if (this.isMoved) this.run();
  }

  slider(figure: VariedFigure, isPlaced: boolean) {
    let slider = this.sliders.get(figure.name);
    if (!slider) {
      slider = new Slider(figure.label, () => this.move());
      this.sliders.set(figure.name, slider);
      this.bar.append(slider.element);
    } else if (!isPlaced) return;
    slider.place(figure);
  }

  // Shows the end of the step at which the reader stood, as far as there is such a step.
  stand() {
    const { track } = this.stage;
    for (let index = 0; this.step !== null && index < track.numSpans; index++)
      if (track.spanOf(index).step === this.step) return this.stage.moveTo(track.endOf(index));
  }
}

function outcomeLine({ name, figures, wrong }: Outcome, isNamed: boolean) {
  const line = element("p");
  if (isNamed) line.append(element("strong", "", name));
  for (const [fact, words, title] of FACTS) {
    const number = element("b", fact === "lost" && figures.lost ? "le-is-lost" : "", figures[fact]),
      made = element("span", "le-outcome-fact", { title }, `${words} `, number);
    made.dataset.fact = fact;
    line.append(made);
  }
  if (wrong) line.append(element("span", "le-error", wrong));
  return line;
}
