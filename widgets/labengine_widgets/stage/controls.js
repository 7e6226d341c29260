// Buttons, form and keys. They send wishes; what comes of them is seen when the lab's events arrive.
import { element } from "./tables.js";

const PATIENCE_MS = 400;
const KEYS = [
  ["space", "run or pause"],
  ["s", "one step"],
  ["p", "one phase of a step"],
  ["← →", "back and forth through the last step"],
  ["home end", "before the step, after it"],
  ["r", "replay the last step"],
  ["Esc", "skip the play (any other key, too)"],
  ["?", "these keys"],
];

function button(text, title, className = "") {
  const made = element("button", `le-button ${className}`, text);
  made.type = "button";
  made.title = title;
  if (!/\w/.test(text)) made.setAttribute("aria-label", title);
  return made;
}

function field(label, input) {
  const made = element("label", "le-field");
  made.append(element("span", "", label), input);
  return made;
}

function input(type, value, title, className = "") {
  const made = element("input", className);
  Object.assign(made, { type, value, title });
  return made;
}

export class Controls {
  constructor(wish) {
    this.pending = [];
    this.wish = (action, rest) => {
      this.expect(action);
      wish(action, rest);
    };
    this.prompt = input("text", "", "the prompt's text", "le-prompt");
    this.prompt.placeholder = "a prompt, such as: Once upon a time";
    this.prompt.maxLength = 200000;
    this.copies = input("number", 2, "how many equal requests");
    this.maxTokens = input("number", 16, "at most so many new tokens each");
    for (const [box, most] of [[this.copies, 64], [this.maxTokens, 100000]]) Object.assign(box, { min: 1, max: most, step: 1 });
    this.step = button("Step", "One step: schedule, forward, sample, update (key s)", "le-primary");
    this.phase = button("Phase", "One phase of a step (key p)");
    this.run = button("Run", "Step by itself, or pause (space)");
    this.reset = button("Reset", "Empty the engine");
    this.message = element("div", "le-message");
    this.message.setAttribute("role", "status");
  }

  elements() {
    const form = element("form", "le-form");
    const add = button("Add", "Add the requests to the waiting line");
    add.type = "submit";
    form.append(field("Prompt", this.prompt), field("copies", this.copies), field("max tokens", this.maxTokens), add);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.wish("add", { prompt: this.prompt.value, copies: this.copies.valueAsNumber, max_tokens: this.maxTokens.valueAsNumber });
    });
    this.step.addEventListener("click", () => this.wish("step"));
    this.phase.addEventListener("click", () => this.wish("phase"));
    this.run.addEventListener("click", () => this.wish(this.isRunning ? "pause" : "start"));
    this.reset.addEventListener("click", () => this.wish("reset"));
    const buttons = element("div", "le-buttons");
    buttons.append(this.step, this.phase, this.run, this.reset);
    const bar = element("div", "le-controls");
    bar.append(form, buttons);
    return [bar, this.message];
  }

  showStatus(status) {
    this.isRunning = status.running;
    this.run.textContent = status.running ? "Pause" : "Run";
    this.step.disabled = this.phase.disabled = status.running;
    this.failures = status.listener_failures || [];
    this.showMessage();
  }

  // What takes long is said: a model's first forward, for one.
  expect(action) {
    this.error = "";
    this.pending.push(action);
    setTimeout(() => this.showMessage(), PATIENCE_MS);
  }

  showAnswer(answer) {
    this.pending.splice(this.pending.indexOf(answer.action), 1);
    this.error = answer.error ? `${answer.action}: ${answer.error}` : "";
    if (!answer.error && answer.action === "add") this.prompt.select();
    this.showMessage();
  }

  // What to do next, where nothing more important is to be said.
  showHint(hint) {
    if (hint === (this.hint || "")) return;
    this.hint = hint;
    this.showMessage();
  }

  showSilence() {
    this.absence = "No answer yet: this is the state as it was last seen. If the kernel has no such lab any more, run the cell again.";
    this.showMessage();
  }

  showGone() {
    this.pending = [];
    this.absence = "The kernel that this lab lived in is gone: run the cell again for a new one.";
    for (const one of [this.step, this.phase, this.run, this.reset]) one.disabled = true;
    this.showMessage();
  }

  showPresence() {
    if (!this.absence) return;
    this.absence = "";
    this.run.disabled = this.reset.disabled = false;
    this.showMessage();
  }

  showMessage() {
    const failure = this.failures && this.failures.length ? `A listener was dropped because it raised ${this.failures.at(-1)}` : "";
    this.message.textContent = this.absence || this.error || failure || (this.pending.length ? `working: ${this.pending[0]} …` : this.hint || "");
    this.message.title = this.message.textContent;
    this.message.classList.toggle("le-error", Boolean(this.absence || this.error || failure));
  }
}

// Back, forth, replay, and a slider over the frames of the last step.
export class Scrubber {
  constructor(player) {
    this.player = player;
    this.slider = input("range", 0, "the moments of the last step");
    this.slider.setAttribute("aria-label", "moment of the last step");
    this.count = element("span", "le-count");
    this.back = button("‹", "one moment back (←)");
    this.forth = button("›", "one moment on (→)");
    this.replay = button("Replay", "play the last step again (r)");
  }

  elements() {
    this.slider.addEventListener("input", () => this.player.seek(this.slider.valueAsNumber));
    this.back.addEventListener("click", () => this.player.seek(this.player.position - 1));
    this.forth.addEventListener("click", () => this.player.seek(this.player.position + 1));
    this.replay.addEventListener("click", () => (this.player.isPlaying ? this.player.skip() : this.player.replay()));
    return [this.back, this.slider, this.forth, this.count, this.replay];
  }

  draw() {
    const { position, frames, isPlaying, isHeld } = this.player, total = frames.length;
    this.slider.min = 0;
    this.slider.max = total;
    this.slider.value = position;
    this.slider.disabled = this.replay.disabled = !total;
    this.back.disabled = position === 0;
    this.forth.disabled = position === total;
    this.count.textContent = total ? `moment ${position} of ${total}` : "no step to replay yet";
    this.replay.textContent = isPlaying ? "Skip" : isHeld ? "Play" : "Replay";
  }
}

export function keysDialog() {
  const made = element("div", "le-keys");
  made.hidden = true;
  made.setAttribute("role", "dialog");
  made.setAttribute("aria-label", "Keys");
  made.append(element("h4", "", "Keys, while the dashboard has the focus"));
  const list = element("dl");
  for (const [key, meaning] of KEYS) list.append(element("dt", "", key), element("dd", "", meaning));
  made.append(list);
  return made;
}

// The root's keys; a text field keeps its own. Every key is kept from the notebook, where s or d would mean something else.
export function onKey(event, { player, controls, keys }) {
  event.stopPropagation();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target, isTyping = target.matches?.("input, textarea, select") && target.type !== "range";
  if (isTyping) return event.key === "Escape" ? target.blur() : undefined;
  if (event.key === " " && target.matches?.("button")) return;
  const acts = {
    " ": () => controls.run.click(),
    s: () => controls.step.click(),
    p: () => controls.phase.click(),
    r: () => player.replay(),
    ArrowLeft: () => player.seek(player.position - 1),
    ArrowRight: () => player.seek(player.position + 1),
    Home: () => player.seek(0),
    End: () => player.skip(),
    Escape: () => (keys.hidden ? player.skip() : (keys.hidden = true)),
    "?": () => (keys.hidden = !keys.hidden),
  };
  const act = acts[event.key];
  if (act) {
    event.preventDefault();
    act();
  } else if (player.isPlaying && event.key.length === 1) player.skip();
}
