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
  copies = number(1, 1, 64, "number of identical requests");
  maxTokens = number(16, 1, 100000, "maximum number of tokens that each generates");
  options: Record<RequestOption, HTMLInputElement> = {
    n: number(1, 1, 16, "number of answers to the prompt, which share its blocks", "le-option"),
    beams: number(1, 1, 16, "number of beams in a search for the likeliest text; 1: no search", "le-option"),
    priority: number(0, -1000, 1000, "smaller is more urgent; may be negative", "le-option"),
  };
  step = button("Step", "One step: schedule, forward, sample, update (key s)", () => this.goOn("step"), "le-primary");
  phase = button("Phase", "One phase of a step (key p)", () => this.goOn("phase"));
  run = button("Run", "Keep stepping, or pause (space)", () =>
    this.isRunning ? this.command("pause") : this.goOn("start"),
  );
  reset = button("Reset", "Empty the engine", () => this.command("reset"));
  submit = button("Add", "Add the requests to the waiting queue");
  notice = new Notice(this.stage, "le-message le-clip");
  message = this.notice.element;
  form = element("form", "le-form le-row");
  buttons = element("div", "le-buttons", {}, this.step, this.phase, this.run, this.reset);
  element = element("div", "le-controls le-row", {}, this.form, this.buttons);
  isRunning = false;
  isTyped = false; // a prompt was written that has not been added yet

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
    stage.on("gone", () => this.showGone());
    stage.on("present", () => this.showPresence());
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

  // A reader who has written a prompt and presses Step means that prompt.
  goOn(action: string) {
    const isIdle = !this.isTyped && !this.hasWork();
    if (this.isTyped) this.add();
    this.command(action);
    if (!isIdle) return;
    this.notice.say({ advice: "Add a prompt first: no request is waiting or running." });
  }

  onPrompt() {
    this.isTyped = this.prompt.value.trim() !== "";
    this.notice.say({ advice: "" });
  }

  // True if some request is not finished at the newest moment, which need not be the one that is shown.
  hasWork() {
    const [{ recording, hasRecording }] = this.stage.sides;
    if (!hasRecording) return true;
    const { requests } = recording.sceneAt(recording.end);
    return [...requests.values()].some(({ status, isHolding }) => status !== "finished" || isHolding);
  }

  command(action: string, fields?: Record<string, unknown>) {
    this.notice.say({ error: "", advice: "" });
    this.pending.push(action);
    setTimeout(() => this.showWork(), PATIENCE_MS); // a long wait gets a message, such as a model's first forward pass
    this.stage.command(action, fields);
  }

  showStatus() {
    const { status, isLive, hasControls } = this.stage;
    this.element.hidden = !hasControls;
    this.message.hidden = !isLive && !status.note;
    for (const name of Object.keys(this.options) as RequestOption[])
      put(this.options[name].parentElement as HTMLElement, "hidden", !status.request_options?.includes(name));
    this.isRunning = status.running;
    write(this.run, status.running ? "Pause" : "Run");
    for (const one of [this.step, this.phase]) put(one, "disabled", status.running);
    this.notice.say({ note: status.note, stopped: status.running ? "" : status.stopped });
  }

  showAnswer(answer: WireContent) {
    const at = this.pending.indexOf(answer.action ?? "");
    if (at >= 0) this.pending.splice(at, 1);
    this.showWork();
    if (answer.action === "predict" || answer.action === "wish") return; // the question says it
    this.notice.say({ error: answer.error ? `${answer.action}: ${answer.error}` : "" });
    if (!answer.error && answer.action === "add") this.prompt.select();
  }

  showWork() {
    this.notice.say({ working: this.pending.length ? `working: ${this.pending[0]} …` : "" });
  }

  showGone() {
    this.pending = [];
    this.showWork();
    for (const one of [this.step, this.phase, this.run, this.reset, this.submit]) one.disabled = true;
  }

  showPresence() {
    this.run.disabled = this.reset.disabled = this.submit.disabled = false;
    this.showStatus();
  }

  // A hint on the next action, if there is no more important message.
  paint() {
    const { isHeld } = this.stage.player;
    this.notice.say({ hint: isHeld ? "The step waits until you can see it: scroll up, or press Play." : "" });
  }
}

// The kinds of messages, most important first; the first three are errors.
const RANKS = ["absence", "error", "listener", "working", "advice", "note", "stopped", "hint"] as const;
const WRONG: readonly string[] = ["absence", "error", "listener"];

// Shows the most important message: the kernel is gone or does not answer, a callback has raised ...
export class Notice {
  element = element("div", this.className, { role: "status" });
  words: { [Kind in (typeof RANKS)[number]]?: string | null } = {};

  constructor(
    readonly stage: Stage,
    readonly className = "le-notice",
  ) {
    stage.on("gone", () => this.say({ absence: stage.wire.absence.gone }));
    stage.on("silence", () => this.say({ absence: stage.wire.absence.silence }));
    stage.on("present", () => this.say({ absence: "" }));
    stage.on("failure", (error) => this.say({ error }));
    stage.on("status", ({ listener_failures: failures }) =>
      this.say({ listener: failures?.length ? `A listener was removed because it raised ${failures.at(-1)}` : "" }),
    );
  }

  say(words: Notice["words"]) {
    Object.assign(this.words, words);
    const kind = RANKS.find((one) => this.words[one]);
    write(this.element, (kind && this.words[kind]) ?? "");
    put(this.element, "title", this.element.textContent);
    this.element.classList.toggle("le-error", WRONG.includes(kind ?? ""));
  }
}
