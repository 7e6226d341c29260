// The reader's prediction of the blocks used after a step: the question, the two numbers, and whether they are right.

import { button, element, write } from "../../look/element.ts";
import type { PairStage } from "../stage.ts";

export class Prediction {
  said: { numbers: number[]; from: number; due: number } | null = null;
  words = element("span", "le-predict-words", { role: "status" });
  fields = ["left", "right"].map((name) => {
    const words = `your prediction for the ${name} side`;
    return element("input", "le-input", {
      type: "number",
      min: "0",
      title: words,
      ariaLabel: words,
      placeholder: name,
    });
  });
  ok = button("Predict", "submit the prediction and continue");
  element = element("form", "le-predict le-row", {}, this.words, ...this.fields, this.ok);

  constructor(readonly stage: PairStage) {
    this.ok.type = "submit";
    this.element.addEventListener("submit", (event) => this.keep(event));
  }

  keep(event: Event) {
    event.preventDefault();
    const numbers = this.fields.map(({ valueAsNumber }) => valueAsNumber),
      { stage } = this,
      { track } = stage;
    if (numbers.some(Number.isNaN)) return this.fields[numbers.findIndex(Number.isNaN)].focus();
    const due = track.span(stage.position).end;
    this.said = { numbers, from: stage.position, due };
    stage.root.focus();
    stage.visibility.approach();
    // the story stops on the way
    stage.player.play(stage.position, Math.min(due, track.nextStop(stage.position) ?? due));
    stage.changed();
  }

  // Shows the question at its guided stop, then the prediction, and from the step's end on both numbers.
  paint() {
    const { stage, said } = this,
      { track, position } = stage,
      stop = track.guideAt(position),
      question = track.questions[stop] || "";
    // their line is kept free, so that nothing jumps
    stage.root.classList.toggle("le-has-questions", track.questions.some(Boolean));
    const isDue = said && position >= said.due && position < (track.nextStop(said.due) ?? Infinity);
    const isAsked = question !== "" && !said;
    const isPending = said && position > said.from && position < said.due;
    this.element.hidden = !isAsked && !isPending && !isDue;
    for (const part of [...this.fields, this.ok]) part.hidden = !isAsked;
    this.fields.forEach((field, side) => (field.max = String(stage.sides[side].scene.numBlocks)));
    if (isAsked) write(this.words, question);
    if (isPending && said) write(this.words, `You predict ${said.numbers.join(" and ")} blocks.`);
    if (isDue && said) write(this.words, this.judged(said.numbers));
  }

  judged(said: number[]) {
    const used = this.stage.sides.map(({ scene }) => scene.score.used),
      isRight = said.every((number, side) => number === used[side]);
    return `You said ${said.join(" and ")}: ${isRight ? "right." : `it is ${used.join(" and ")}.`}`;
  }
}
