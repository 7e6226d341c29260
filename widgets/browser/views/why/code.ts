// The method that decided the shown event, and the method that emitted it; an override is shown as a difference from
// the method that it overrides.

import { button, element, put, takeKey, targetOf, write } from "../../look/element.ts";
import { visible } from "../../model/hidden_text.ts";
import type { Seam, SeamMethod, Selection } from "../../model/payloads.ts";
import type { Recording } from "../../model/recording.ts";
import type { Side } from "../../model/side.ts";
import { mentions } from "../about.ts";
import type { PythonPiece } from "./text.ts";
import { lineDiff, pieces } from "./text.ts";

const FAR = 20_000; // events back in which to look for a decision about the selection

// The seam of an event: of its variant ("BlockFreed:merged"), else of its kind; null where the recording has none.
function seamOf(recording: Recording, i: number): Seam | null {
  const code = recording.header.code || {},
    kind = recording.kind(i);
  return code[`${kind}:${variantOf(recording, i)}`] || code[kind] || null;
}

function variantOf(recording: Recording, i: number) {
  if (recording.kind(i) === "BlockCached") return recording.field(i, "is_full") ? "" : "tail";
  if (recording.kind(i) === "BlockTouched") return recording.field(i, "is_fork") ? "fork" : "";
  return recording.field(i, "reason") ?? "";
}

export class Code {
  selection: Selection | null = null;
  shown?: string;
  selected = 0;
  isFullText = false;
  isAtEmitter = false; // the reader follows the lines that emit, from event to event
  head = element("p", "le-code-head");
  fullText = button("whole text", "", () => this.toggleFullText(), "le-code-full");
  reason = element("p", "le-code-reason");
  methods = element("div", "le-code-methods", { role: "tablist", ariaLabel: "Methods that took part" });
  sheet = element("pre", "le-code-sheet", { tabIndex: 0, role: "tabpanel" });
  element = element(
    "section",
    "le-code",
    { ariaLabel: "Code" },
    element("div", "le-code-top le-row", {}, this.head, this.fullText),
    this.reason,
    this.methods,
    this.sheet,
  );
  moment!: number;
  seam: Seam | null = null;
  drawn?: Seam | null;

  constructor(readonly side: Side) {
    this.methods.addEventListener("click", (event) => this.click(event));
    this.methods.addEventListener("keydown", (event) => this.onKey(event));
  }

  paint(moment: number) {
    this.moment = moment;
    this.show();
  }

  mark(selection: Selection | null) {
    this.selection = selection;
    this.show();
  }

  // The chosen event; else the last decision about the selection; else the event that has just happened.
  get event(): number | null {
    const { recording, selection } = this,
      last = Math.min(this.moment ?? 0, recording.end) - 1; // a restarted recording may be shorter
    const selected = selection?.kind === "event" ? Number(selection.id) : (this.lastDecision(last) ?? last);
    return selected >= recording.start && selected < recording.end ? selected : null;
  }

  get recording() {
    return this.side.recording;
  }

  // The newest event up to a number that names the selection and whose method is known.
  lastDecision(last: number): number | null {
    const { recording } = this,
      names = mentions(recording, this.selection);
    if (names)
      for (let i = last; i >= Math.max(recording.start, last - FAR); i--)
        if (names(i) && seamOf(recording, i)) return i;
    return null;
  }

  show() {
    const { recording, hasRecording } = this.side,
      { event } = this;
    if (!hasRecording) return;
    const seam = event === null ? null : seamOf(recording, event);
    const hasCode = Object.keys(recording.header.code || {}).length > 0;
    const signature = `${recording.header.lab} ${event} ${hasCode}`;
    if (signature === this.shown && seam === this.seam) return;
    this.shown = signature;
    if (seam !== this.seam) {
      this.seam = seam;
      this.selected = this.isAtEmitter ? Math.max(0, this.all.findIndex(emits)) : 0;
    }
    this.describe(recording, event, seam, hasCode);
    if (seam !== this.drawn) this.draw();
  }

  describe(recording: Recording, event: number | null, seam: Seam | null, hasCode: boolean) {
    this.element.classList.toggle("le-is-empty", !seam);
    if (seam && event !== null) return this.head.replaceChildren(...this.headOf(recording, event, seam));
    const nothing =
      event === null
        ? "Nothing has happened yet: take a step or show an event."
        : `No method is known for ${recording.kind(event)}.`;
    this.head.replaceChildren(
      element("span", "le-code-quiet", hasCode ? nothing : "This recording was saved without its code."),
    );
  }

  headOf(recording: Recording, event: number, seam: Seam) {
    const kind = element("b", "le-code-event", `${recording.kind(event)}, event ${event},`);
    kind.dataset.event = String(event);
    return [kind, element("span", "le-code-quiet", " decided by "), element("code", "", nameOf(seam))];
  }

  // -- the methods

  get all(): SeamMethod[] {
    return this.seam ? [this.seam, ...(this.seam.methods || [])] : [];
  }

  draw() {
    this.drawn = this.seam;
    const { all } = this,
      method = all[this.selected];
    this.methods.replaceChildren(...all.map((one, i) => this.tab(one, i)));
    this.methods.hidden = all.length < 2;
    this.fullText.hidden = !method?.base;
    if (!method) {
      write(this.reason, "");
      this.sheet.replaceChildren();
      return;
    }
    write(this.reason, method.reason);
    write(this.fullText, this.isFullText ? "difference" : "whole text");
    this.fullText.ariaPressed = String(this.isFullText);
    this.sheet.replaceChildren(
      ...(method.base && !this.isFullText ? differenceOf(method, method.base) : textOf(method)),
    );
    this.scrollToLit();
    put(this.sheet, "ariaLabel", `Source of ${nameOf(method)}`);
  }

  scrollToLit() {
    const { sheet } = this,
      lit = sheet.querySelector(".le-code-lit");
    sheet.scrollTop = 0;
    if (!lit) return;
    const below = lit.getBoundingClientRect().bottom - sheet.getBoundingClientRect().top;
    if (below > sheet.clientHeight) sheet.scrollTop = below - sheet.clientHeight / 2;
  }

  tab(method: SeamMethod, i: number) {
    const isSelected = i === this.selected,
      made = element("button", "le-code-tab", { type: "button", role: "tab", tabIndex: isSelected ? 0 : -1 });
    made.ariaSelected = String(isSelected);
    made.append(element("code", "", nameOf(method)));
    const words = [method.is_custom ? "override" : "", method.is_emitter ? "emits" : ""].filter(Boolean).join(", ");
    if (words) made.append(element("span", "le-code-mark", words));
    put(made, "title", method.reason || nameOf(method));
    return made;
  }

  click(event: MouseEvent) {
    const tab = targetOf(event).closest(".le-code-tab");
    if (tab) this.choose([...this.methods.children].indexOf(tab));
  }

  onKey(event: KeyboardEvent) {
    const go = (step: number) => () => {
      this.choose((this.selected + step + this.all.length) % this.all.length);
      (this.methods.children[this.selected] as HTMLElement).focus();
    };
    takeKey(event, { ArrowRight: go(1), ArrowLeft: go(-1) });
  }

  choose(i: number) {
    this.selected = i;
    this.isAtEmitter = emits(this.all[i]);
    this.draw();
  }

  toggleFullText() {
    this.isFullText = !this.isFullText;
    this.draw();
  }
}

function emits(method: SeamMethod) {
  return Boolean(method.is_emitter);
}

function nameOf(method: { class: string; seam: string }) {
  return `${method.class}.${method.seam.split(".").pop()}`;
}

// -- text

function* textOf(method: SeamMethod) {
  yield caption(`${method.module}${method.line ? `, line ${method.line}` : ""}`);
  const lines = visible(method.source).split("\n"),
    coloured = pieces(lines);
  for (let i = 0; i < lines.length; i++)
    yield lineOf(" ", method.line ? method.line + i : "", coloured[i], litOf(method, i));
}

function* differenceOf(method: SeamMethod, base: NonNullable<SeamMethod["base"]>) {
  const before = visible(base.source).split("\n"),
    after = visible(method.source).split("\n");
  const old = pieces(before),
    fresh = pieces(after);
  yield caption(`${method.module}${method.line ? `, line ${method.line}` : ""}`);
  yield caption(`− ${base.class}, which it overrides`, "le-code-was");
  yield caption(`+ ${method.class}`, "le-code-is");
  for (const row of lineDiff(before, after)) {
    const isOld = row.sign === "-",
      number = row.new === null ? "" : (method.line || 1) + row.new;
    yield lineOf(
      isOld ? "−" : row.sign,
      number,
      (isOld ? old[row.old ?? 0] : fresh[row.new ?? 0]) ?? [],
      `${{ "-": "le-code-was", "+": "le-code-is", " ": "" }[row.sign]} ${litOf(method, row.new)}`,
    );
  }
}

// The line that emits the shown event.
function litOf({ emits_at }: SeamMethod, line: number | null) {
  return line !== null && line === emits_at ? "le-code-lit" : "";
}

function caption(text: string, className = "") {
  return element("span", `le-code-caption le-fine ${className}`, text);
}

function lineOf(sign: string, number: string | number, coloured: PythonPiece[], className: string) {
  const made = element("span", `le-code-line ${className}`),
    words = element("span", "le-code-words");
  if (className.includes("le-code-lit")) made.ariaCurrent = "true";
  made.append(element("span", "le-code-number le-fine", number), element("span", "le-code-sign", sign), words);
  for (const [text, kind] of coloured) words.append(kind ? element("span", `le-py-${kind}`, text) : text);
  return made;
}
