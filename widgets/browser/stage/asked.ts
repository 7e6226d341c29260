// The question that the next step answers: a click or a number is the reader's prediction, the step's end judges it.

import { button, element, write } from "../look/element.ts";
import { contentName, requestName } from "../model/names.ts";
import type { Asked, Selection, WireContent } from "../model/payloads.ts";
import { remark } from "./pointing.ts";
import type { Stage } from "./stage.ts";

const HOW = {
  block: "Click a block.",
  request: "Click a request.",
  hash: "Click an entry in the prefix map.",
  number: "",
};
const GUESS = "your prediction";
const MARKS = { said: "le-said", truth: "le-truth" } as const;

export class AskedQuestion {
  words = element("span", "le-asked-words", { role: "status" });
  field = element("input", "le-input", { type: "number", min: "0", step: "1", title: GUESS, ariaLabel: GUESS });
  ok = button("Predict", "submit the prediction; the next step gives the answer");
  refusal = element("span", "le-asked-refusal", { role: "alert" });
  reason = element("span", "le-asked-more le-asked-reason");
  hint = element("span", "le-asked-more le-asked-hint");
  legend = element(
    "span",
    "le-asked-more le-asked-legend",
    {},
    element("span", "le-said", "clicked"),
    element("span", "le-truth", "right"),
  );
  buttons = {
    go: button("See what happens", "take the step that gives the answer", () => this.wish("go"), "le-primary"),
    again: button("Again", "the same question, from before the step", () => this.wish("again")),
    hint: button("Hint", "one more hint", () => this.wish("hint")),
    another: button("Another one", "the same question with new numbers", () => this.wish("another")),
  };
  wishes = element("span", "le-asked-wishes le-wrap", {}, ...Object.values(this.buttons));
  element = element("form", "le-asked le-row", { noValidate: true }); // the form itself reports a wrong number
  marked: Record<keyof typeof MARKS, HTMLElement[]> = { said: [], truth: [] };
  refused = ""; // why the newest answer was rejected
  wasNextHidden = false;
  predicted = ""; // what the play of the step has still to confirm

  constructor(readonly stage: Stage) {
    this.ok.type = "submit";
    const { words, field, ok, refusal, legend, reason, hint, wishes } = this;
    this.element.append(words, field, ok, refusal, legend, reason, hint, wishes);
    this.element.addEventListener("submit", (event) => this.submit(event));
    stage.on("status", () => this.hideNext());
    stage.on("select", (selection, isHeard) => isHeard && this.take(selection));
    stage.on("command", (action) => ["step", "wish"].includes(action) && this.deselect());
    stage.on("answer", (answer) => this.hear(answer));
    stage.on("painted", () => this.mark());
  }

  // One step, as the Step button takes it; any other wish goes to the question.
  wish(wish: string) {
    const { stage } = this,
      { offers = [] } = stage.status.asked ?? {};
    this.refuse("");
    if (wish === "go" && !offers.includes("go")) stage.command("step");
    else {
      if (wish !== "hint") stage.last();
      stage.command("wish", { wish });
    }
    stage.root.focus({ preventScroll: true });
  }

  // A clicked answer gets the mark of an answer, and not a selection's as well.
  deselect() {
    const { asked } = this.stage.status;
    if (asked && this.stage.selection?.kind === asked.kind) this.stage.select(null);
  }

  hear({ action, error }: WireContent) {
    if (action === "predict" || action === "wish") this.refuse(error ?? "");
  }

  refuse(words: string) {
    this.refused = words;
    this.stage.changed();
  }

  // All views are repainted when the head of the free queue is hidden, or shown again.
  hideNext() {
    const { isNextHidden } = this.stage.sides[0];
    if (isNextHidden !== this.wasNextHidden) this.stage.repaint();
    this.wasNextHidden = isNextHidden;
  }

  submit(event: Event) {
    event.preventDefault();
    const number = this.field.valueAsNumber;
    this.refuse(refusalOf(number));
    if (this.refused) return this.field.focus();
    this.stage.command("predict", { prediction: number });
    this.stage.root.focus();
  }

  // A click on a subject of the asked kind is a prediction.
  take(selection: Selection | null) {
    const { asked } = this.stage.status;
    if (asked?.is_open && selection?.kind === asked.kind) this.stage.command("predict", { prediction: selection.id });
  }

  // Marks the prediction and the right answer, once the step is over, in every view that has them.
  mark() {
    const { asked } = this.stage.status,
      isOver = Boolean(asked?.verdict && asked.prediction === null && this.isRevealed),
      { judged } = this.stage.sides[0];
    let isChanged = false; // for what is drawn
    for (const one of ["said", "truth"] as const) {
      const subjects = (isOver && asked?.[one]) || [],
        wanted = subjects.map(([kind, id]) => ({ kind, id }));
      this.marked[one] = remark(this.stage.root, this.marked[one], wanted, MARKS[one]);
      const blocks = wanted.filter(({ kind }) => kind === "block").map(({ id }) => Number(id));
      if (blocks.length === judged[one].size && blocks.every((id) => judged[one].has(id))) continue;
      judged[one] = new Set(blocks);
      isChanged = true;
    }
    this.legend.hidden = !isOver || !(asked?.said?.length || asked?.truth?.length);
    if (isChanged) this.stage.repaint();
  }

  get isRevealed() {
    return !this.stage.isPlaying && !this.stage.status.running;
  }

  paint() {
    const { asked } = this.stage.status;
    this.element.hidden = !asked;
    this.stage.root.classList.toggle("le-is-asked", Boolean(asked));
    if (!asked) return;
    const { isRevealed } = this;
    if (asked.prediction !== null) this.predicted = `You predict ${this.named(asked)}.`;
    else if (isRevealed) this.predicted = "";
    const isAsked = asked.is_open && isRevealed;
    for (const part of [this.field, this.ok]) part.hidden = !isAsked || asked.kind !== "number";
    this.element.classList.toggle("le-is-right", isRevealed && asked.prediction === null && asked.is_right === true);
    this.element.classList.toggle("le-is-wrong", isRevealed && asked.prediction === null && asked.is_right === false);
    write(this.words, isRevealed ? this.question(asked) : this.predicted || asked.text);
    this.paintMore(asked, isRevealed);
  }

  paintMore(asked: Asked, isRevealed: boolean) {
    const { offers = [], reason = "", hint = "", prediction } = asked,
      isJudged = prediction === null && isRevealed;
    for (const [part, words] of [
      [this.refusal, isRevealed ? this.refused : ""],
      [this.reason, isJudged ? reason : ""],
      [this.hint, isRevealed ? hint : ""],
    ] as const) {
      write(part, words);
      part.hidden = !words;
    }
    for (const [wish, one] of Object.entries(this.buttons)) one.hidden = !offers.includes(wish);
    this.buttons.go.hidden = !asked.is_open || prediction === null;
    this.wishes.hidden = !isRevealed || !this.stage.hasControls;
  }

  question(asked: Asked) {
    const { text, verdict, is_open, is_right, prediction } = asked;
    if (is_open && prediction !== null)
      return `${text} You predict ${this.named(asked)}; the next step gives the answer.`;
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

// Why a number cannot be a prediction; empty if it can.
function refusalOf(number: number) {
  if (Number.isNaN(number)) return "Enter a number first.";
  if (number < 0) return "The number must not be negative: enter 0 or more.";
  return Number.isInteger(number) ? "" : "Enter a whole number.";
}
