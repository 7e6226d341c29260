// What a view without controls has to say: that its kernel is gone, that nobody answers, that a callback has raised.
import { element, write } from "../look/element.ts";

const GONE = "The kernel that this lab lived in is gone: run the cell again for a new one.";
const SILENCE =
  "No answer yet: this is the state as it was last seen. If the kernel has no such lab any more, run the cell again.";

export class Notice {
  constructor(stage) {
    this.element = element("div", "le-notice le-error");
    this.element.setAttribute("role", "status");
    this.words = { absence: "", failure: "", listener: "" };
    const say = (kind, text) => this.say(kind, text);
    stage.on("gone", () => say("absence", GONE));
    stage.on("silence", () => say("absence", SILENCE));
    stage.on("present", () => say("absence", ""));
    stage.on("failure", (message) => say("failure", message));
    stage.on("status", ({ listener_failures: failures = [] }) =>
      say("listener", failures.length ? `A listener was dropped because it raised ${failures.at(-1)}` : ""),
    );
    this.say("absence", "");
  }

  say(kind, text) {
    this.words[kind] = text;
    const { absence, failure, listener } = this.words,
      said = absence || failure || listener;
    write(this.element, said);
    this.element.hidden = !said;
  }
}
