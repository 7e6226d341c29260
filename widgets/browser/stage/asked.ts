// The question that the next step answers: a click or a number is the reader's prediction, the step's end judges it.

import { button, element, write } from "../look/element.ts";
import { contentName, requestName } from "../model/names.ts";
import type { Asked, Selection } from "../model/payloads.ts";
import type { Stage } from "./stage.ts";

const HOW = {
  block: "Click on a block.",
  request: "Click on a request.",
  hash: "Click on an entry of the prefix map.",
  number: "",
};

export class AskedQuestion {
  stage: Stage;
  element = element("form", "le-asked");
  words = element("span", "le-asked-words");
  field = element("input");
  ok = button("Predict", "keep the prediction; the next step answers");
  wasNextHidden = false;
  predicted = ""; // what the play of the step has still to confirm

  constructor(stage: Stage) {
    this.stage = stage;
    this.words.setAttribute("role", "status");
    Object.assign(this.field, { type: "number", min: 0, step: 1, title: "your prediction" });
    this.field.setAttribute("aria-label", this.field.title);
    this.ok.type = "submit";
    this.element.append(this.words, this.field, this.ok);
    this.element.addEventListener("submit", (event) => this.submit(event));
    stage.on("status", () => this.hideNext());
    stage.on("select", (selection, isHeard) => isHeard && this.take(selection));
  }

  // All views are painted anew when the head of the free queue is hidden, or shown again.
  hideNext() {
    const { isNextHidden } = this.stage.sides[0];
    if (isNextHidden !== this.wasNextHidden) this.stage.repaint();
    this.wasNextHidden = isNextHidden;
  }

  submit(event: Event) {
    event.preventDefault();
    const number = this.field.valueAsNumber;
    if (Number.isNaN(number)) return this.field.focus();
    this.stage.command("predict", { prediction: number });
    this.stage.root.focus();
  }

  // A click on what is asked for is a prediction.
  take(selection: Selection | null) {
    const { asked } = this.stage.status;
    if (asked?.is_open && selection?.kind === asked.kind) this.stage.command("predict", { prediction: selection.id });
  }

  paint() {
    const { asked, running } = this.stage.status;
    this.element.hidden = !asked;
    this.stage.root.classList.toggle("le-is-asked", Boolean(asked));
    if (!asked) return;
    const isRevealed = !this.stage.isPlaying && !running;
    if (asked.prediction !== null) this.predicted = `You predict ${this.named(asked)}.`;
    else if (isRevealed) this.predicted = "";
    const isAsked = asked.is_open && isRevealed;
    for (const part of [this.field, this.ok]) part.hidden = !isAsked || asked.kind !== "number";
    this.element.classList.toggle("le-is-right", isRevealed && asked.prediction === null && asked.is_right === true);
    this.element.classList.toggle("le-is-wrong", isRevealed && asked.prediction === null && asked.is_right === false);
    write(this.words, isRevealed ? this.question(asked) : this.predicted || asked.text);
  }

  question(asked: Asked) {
    const { text, verdict, is_open, is_right, prediction } = asked;
    if (is_open && prediction !== null) return `${text} You predict ${this.named(asked)}: the next step answers.`;
    const judged = verdict && `${is_right ? "✓" : "✗"} ${verdict}`;
    return [judged, is_open ? text : "", is_open ? HOW[asked.kind] : ""].filter(Boolean).join(" ");
  }

  // A prediction as the views call it; an entry of the map by its letter.
  named({ kind, prediction }: Asked) {
    if (kind === "block") return `#${prediction}`;
    if (kind === "request") return requestName(Number(prediction));
    return kind === "hash" ? contentName(this.stage.sides[0].scene.contentOf(String(prediction))) : String(prediction);
  }
}
