// What a view without controls has to say: that its kernel is gone, that nobody answers, that a callback has raised.

import { element, write } from "../look/element.ts";
import type { Stage } from "./stage.ts";

const GONE = "The kernel that this lab lived in is gone: run the cell again for a new one.";
const SILENCE =
  "No answer yet: this is the state as it was last seen. If the kernel has no such lab any more, run the cell again.";

export class Notice {
  element = element("div", "le-notice le-error");
  words = { absence: "", failure: "", listener: "" };

  constructor(stage: Stage) {
    this.element.setAttribute("role", "status");
    const say = (kind: keyof Notice["words"], text: string) => this.say(kind, text);
    stage.on("gone", () => say("absence", GONE));
    stage.on("silence", () => say("absence", SILENCE));
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
