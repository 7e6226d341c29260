// The bar above the log: which events are in it, by kind, by what they are about, by words, by the selection.

import { button, element } from "../../look/element.ts";
import { TOPIC_NAMES } from "../../model/event_rows.ts";
import { kindName, requestName } from "../../model/names.ts";
import type { Header, Selection } from "../../model/payloads.ts";
import type { Side } from "../../model/side.ts";
import { storyOf } from "../../model/story.ts";
import { mentions } from "../about.ts";

// "#3 A" -> a block and a request; any other word matches no event.
function subjectsOf(text: string): (Selection | null)[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((word) => {
      if (/^#\d+$/.test(word)) return { kind: "block", id: Number(word.slice(1)) };
      if (/^[a-z]{1,3}$/i.test(word)) return { kind: "request", id: requestId(word.toUpperCase()) };
      return null;
    });
}

function requestId(name: string) {
  let id = 0;
  for (const character of name) id = id * 26 + character.charCodeAt(0) - 64;
  return requestName(id - 1) === name ? id - 1 : -1;
}

function field(ariaLabel: string, placeholder: string, className: string) {
  return element("input", `le-input ${className}`, { type: "search", placeholder, ariaLabel });
}

const NOT_RECORDED =
  "Recording is off: this lab keeps no events, so the log begins with its first view. Use Lab(..., " +
  "record=True) to keep them all.";

// The log's interface for the filter.
interface LogActs {
  onChange: () => void;
  leave: () => void; // to the lines
  words: (event: number) => string;
  selection: () => Selection | null;
}

export class LogFilter {
  element = element("div", "le-log-bar le-row");
  note = element("p", "le-log-note", { textContent: NOT_RECORDED, hidden: true });
  kinds = element("select", "le-input le-log-kinds", { ariaLabel: "kind of event" });
  about = field("block or request", "#3, A, or both: #3 A", "le-log-about");
  text = field("words", "words in the line", "le-log-text");
  count = element("span", "le-log-count", { role: "status" });
  only = button("selection", "only events that mention the selection", () => this.toggleOnly(), "le-log-only");
  isOnly = false; // only events that name the selection
  offered?: Header;

  constructor(
    readonly side: Side,
    readonly acts: LogActs,
  ) {
    this.only.ariaPressed = "false";
    this.kinds.addEventListener("change", () => this.acts.onChange());
    for (const field of [this.about, this.text]) {
      field.addEventListener("input", () => this.acts.onChange());
      field.addEventListener("keydown", (event) => this.onFieldKey(event, field));
    }
    this.element.append(this.kinds, this.about, this.text, this.only, this.count);
  }

  offerKinds() {
    if (this.offered === this.side.recording.header) return;
    this.offered = this.side.recording.header;
    this.note.hidden = this.offered.is_recorded !== false;
    const names = this.offered.kinds.map(([name]) => name),
      selected = this.kinds.value;
    const options: [value: string, words: string][] = [
      ["", "all kinds"],
      ...TOPIC_NAMES.map((name, i): [string, string] => [`topic:${i}`, `all about: ${name}`]),
      ...names.map((name): [string, string] => [name, kindName(name)]),
    ];
    this.kinds.replaceChildren(...options.map(([value, words]) => new Option(words, value)));
    this.kinds.value = selected;
  }

  // (event number) -> whether it belongs in the log; null where everything does.
  judgement() {
    const kind = this.kinds.value,
      about = this.about.value.trim(),
      text = this.text.value.trim().toLowerCase();
    if (!kind && !about && !text && !this.isOnly) return null;
    const { recording } = this.side,
      tests: ((event: number) => boolean)[] = [];
    if (kind.startsWith("topic:")) tests.push((i) => storyOf(recording).topic(i) === Number(kind.slice(6)));
    else if (kind) tests.push((i) => recording.kind(i) === kind);
    for (const subject of subjectsOf(about)) tests.push((subject && mentions(recording, subject)) ?? (() => false));
    if (this.isOnly) tests.push(mentions(recording, this.acts.selection()) ?? (() => false));
    if (text)
      tests.push((i) => this.acts.words(i).toLowerCase().includes(text) || kindName(recording.kind(i)).includes(text));
    return (i: number) => tests.every((test) => test(i));
  }

  toggleOnly() {
    this.isOnly = !this.isOnly;
    this.only.ariaPressed = String(this.isOnly);
    this.acts.onChange();
  }

  onFieldKey(event: KeyboardEvent, field: HTMLInputElement) {
    event.stopPropagation();
    if (event.key === "Escape" && field.value) {
      field.value = "";
      this.acts.onChange();
    } else if (event.key === "Enter" || event.key === "ArrowDown") this.acts.leave();
    else return;
    event.preventDefault();
  }
}
