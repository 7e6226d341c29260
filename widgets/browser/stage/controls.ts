// Buttons, form and the lab's answers. They send commands, whose effects show when the lab's events arrive.

import { button, element, put, write } from "../look/element.ts";
import type { RequestOption, WireContent } from "../model/payloads.ts";
import type { Stage } from "./stage.ts";

const PATIENCE_MS = 400;

function number(value: number, min: number, max: number, title: string, className = "") {
  const bounds = { min: String(min), max: String(max), step: "1" };
  return element("input", `le-input ${className}`, { type: "number", value: String(value), title, ...bounds });
}

export class Controls {
  pending: string[] = [];
  prompt = element("input", "le-input le-prompt", {
    type: "text",
    title: "the prompt's text",
    placeholder: "a prompt, such as: Once upon a time",
    maxLength: 200000,
  });
  copies = number(1, 1, 64, "how many equal requests");
  maxTokens = number(16, 1, 100000, "at most so many new tokens each");
  options: Record<RequestOption, HTMLInputElement> = {
    n: number(1, 1, 16, "so many answers to the prompt, which share its blocks", "le-option"),
    beams: number(1, 1, 16, "a search for the likeliest text, with so many beams; 1: none", "le-option"),
    priority: number(0, -1000, 1000, "smaller is more urgent, also below 0", "le-option"),
  };
  step = button("Step", "One step: schedule, forward, sample, update (key s)", () => this.goOn("step"), "le-primary");
  phase = button("Phase", "One phase of a step (key p)", () => this.goOn("phase"));
  run = button("Run", "Step by itself, or pause (space)", () =>
    this.isRunning ? this.command("pause") : this.goOn("start"),
  );
  reset = button("Reset", "Empty the engine", () => this.command("reset"));
  submit = button("Add", "Add the requests to the waiting line");
  message = element("div", "le-message le-clip", { role: "status" });
  form = element("form", "le-form le-row");
  buttons = element("div", "le-buttons", {}, this.step, this.phase, this.run, this.reset);
  element = element("div", "le-controls le-row", {}, this.form, this.buttons);
  error = "";
  advice = ""; // for a step that had nothing to do
  note?: string;
  isRunning = false;
  isTyped = false; // a prompt was written that has not been added yet
  failures?: string[];
  stopped?: string;
  absence?: string;
  hint?: string;

  constructor(readonly stage: Stage) {
    const fields = { Prompt: this.prompt, copies: this.copies, "max tokens": this.maxTokens, ...this.options };
    for (const [label, input] of Object.entries(fields))
      this.form.append(element("label", "le-field le-row", {}, element("span", "", label), input));
    this.submit.type = "submit";
    this.form.append(this.submit);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.add();
    });
    this.prompt.addEventListener("input", () => this.onPrompt());
    stage.on("status", () => this.showStatus());
    stage.on("answer", (answer) => this.showAnswer(answer));
    stage.on("silence", () => this.showSilence());
    stage.on("gone", () => this.showGone());
    stage.on("present", () => this.showPresence());
    stage.on("failure", (message) => this.showError(message));
    stage.on("began", () => this.showStatus());
  }

  add() {
    this.isTyped = false;
    this.command("add", {
      prompt: this.prompt.value,
      copies: this.copies.valueAsNumber,
      max_tokens: this.maxTokens.valueAsNumber,
      n: this.options.n.valueAsNumber,
      beams: this.options.beams.valueAsNumber,
      priority: this.options.priority.valueAsNumber,
    });
  }

  // Who has written a prompt and presses Step means that prompt.
  goOn(action: string) {
    const isIdle = !this.isTyped && !this.hasWork();
    if (this.isTyped) this.add();
    this.command(action);
    if (!isIdle) return;
    this.advice = "Add a prompt first: no request is waiting or running.";
    this.showMessage();
  }

  onPrompt() {
    this.isTyped = this.prompt.value.trim() !== "";
    this.advice = "";
    this.showMessage();
  }

  // True if some request is not finished at the newest moment, which need not be the one that is shown.
  hasWork() {
    const [{ recording, hasRecording }] = this.stage.sides;
    if (!hasRecording) return true;
    const { requests } = recording.sceneAt(recording.end);
    return [...requests.values()].some(({ status, isHolding }) => status !== "finished" || isHolding);
  }

  command(action: string, fields?: Record<string, unknown>) {
    this.error = this.advice = "";
    this.pending.push(action);
    setTimeout(() => this.showMessage(), PATIENCE_MS); // what takes long is said: a model's first forward, for one
    this.stage.command(action, fields);
  }

  showStatus() {
    const { status, isLive, hasControls } = this.stage;
    this.element.hidden = !hasControls;
    this.note = status.note || "";
    this.message.hidden = !isLive && !this.note;
    for (const name of Object.keys(this.options) as RequestOption[])
      put(this.options[name].parentElement as HTMLElement, "hidden", !status.request_options?.includes(name));
    this.isRunning = status.running;
    write(this.run, status.running ? "Pause" : "Run");
    for (const one of [this.step, this.phase]) put(one, "disabled", status.running);
    this.failures = status.listener_failures || [];
    this.stopped = (!status.running && status.stopped) || "";
    this.showMessage();
  }

  showAnswer(answer: WireContent) {
    const at = this.pending.indexOf(answer.action ?? "");
    if (at >= 0) this.pending.splice(at, 1);
    if (answer.action === "predict" || answer.action === "wish") return this.showMessage(); // the question says it
    this.error = answer.error ? `${answer.action}: ${answer.error}` : "";
    if (!answer.error && answer.action === "add") this.prompt.select();
    this.showMessage();
  }

  showError(message: string) {
    this.error = message;
    this.showMessage();
  }

  showSilence() {
    this.absence = this.stage.wire.absence.silence;
    this.showMessage();
  }

  showGone() {
    this.pending = [];
    this.absence = this.stage.wire.absence.gone;
    for (const one of [this.step, this.phase, this.run, this.reset, this.submit]) one.disabled = true;
    this.showMessage();
  }

  showPresence() {
    if (!this.absence) return;
    this.absence = "";
    this.run.disabled = this.reset.disabled = this.submit.disabled = false;
    this.showStatus();
  }

  // A hint on the next action, if there is no more important message.
  paint() {
    const { player } = this.stage;
    const hint = player.isHeld ? "The step waits until you can see it: scroll up, or press Play." : "";
    if (hint === (this.hint || "")) return;
    this.hint = hint;
    this.showMessage();
  }

  showMessage() {
    const failure = this.failures?.length ? `A listener was dropped because it raised ${this.failures.at(-1)}` : "";
    const working = this.pending.length ? `working: ${this.pending[0]} …` : "",
      isWrong = Boolean(this.absence || this.error || failure);
    write(
      this.message,
      this.absence || this.error || failure || working || this.advice || this.note || this.stopped || this.hint || "",
    );
    put(this.message, "title", this.message.textContent);
    this.message.classList.toggle("le-error", isWrong);
  }
}

// The message of a view without controls: its kernel is gone or does not answer, or a callback has raised.
export class Notice {
  element = element("div", "le-notice le-error", { role: "status" });
  words = { absence: "", failure: "", listener: "" };

  constructor(stage: Stage) {
    const say = (kind: keyof Notice["words"], text: string) => this.say(kind, text);
    stage.on("gone", () => say("absence", stage.wire.absence.gone));
    stage.on("silence", () => say("absence", stage.wire.absence.silence));
    stage.on("present", () => say("absence", ""));
    stage.on("failure", (message) => say("failure", message));
    stage.on("status", ({ listener_failures: failures = [] }) =>
      say("listener", failures?.length ? `A listener was dropped because it raised ${failures.at(-1)}` : ""),
    );
    this.say("absence", "");
  }

  say(kind: keyof Notice["words"], text: string) {
    this.words[kind] = text;
    const { absence, failure, listener } = this.words,
      said = absence || failure || listener;
    write(this.element, said);
    this.element.hidden = !said;
  }
}
