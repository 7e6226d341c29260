// The method that decided the event one looks at, and the one that emitted it; an override as a difference from what it overrides.
import { element, seen, write } from "../look/element.ts";
import { lineDiff } from "./line_diff.ts";
import { mentions } from "./mentions.ts";
import { pieces } from "./python_text.ts";

export const title = "Code";

const FAR = 20_000; // events back, in which a decision about what is chosen is looked for

export function create(stage, side) {
  return new Code(stage, side);
}

// The seam of an event: of its variant ("BlockFreed:merged"), else of its kind; null where the recording has none.
export function seamOf(recording, i) {
  const code = recording.header.code || {},
    kind = recording.kind(i);
  return code[`${kind}:${variantOf(recording, i)}`] || code[kind] || null;
}

function variantOf(recording, i) {
  if (recording.kind(i) === "BlockCached") return recording.field(i, "is_full") ? "" : "tail";
  return recording.field(i, "reason") ?? "";
}

class Code {
  constructor(stage, side) {
    Object.assign(this, { stage, side, selection: null, shown: undefined, chosen: 0, isWhole: false });
    this.element = element("section", "le-code");
    this.element.setAttribute("aria-label", "Code");
    this.head = element("p", "le-code-head");
    this.reason = element("p", "le-code-reason");
    this.methods = element("div", "le-code-methods");
    this.methods.setAttribute("role", "tablist");
    this.methods.setAttribute("aria-label", "Methods that had a say");
    this.methods.addEventListener("click", (event) => this.click(event));
    this.methods.addEventListener("keydown", (event) => this.onKey(event));
    this.sheet = element("pre", "le-code-sheet");
    this.sheet.tabIndex = 0;
    this.sheet.setAttribute("role", "tabpanel");
    this.whole = element("button", "le-button le-code-whole", "whole text");
    this.whole.type = "button";
    this.whole.addEventListener("click", () => this.toggleWhole());
    const top = element("div", "le-code-top");
    top.append(this.head, this.whole);
    this.element.append(top, this.reason, this.methods, this.sheet);
  }

  paint(scene, changes, { moment }) {
    this.moment = moment;
    this.show();
  }

  mark(selection) {
    this.selection = selection;
    this.show();
  }

  destroy() {
    this.element.remove();
  }

  // The chosen event; else the last decision about what is chosen; else the event that has just happened.
  get event() {
    const { recording, selection } = this,
      last = (this.moment ?? 0) - 1;
    const chosen = selection?.kind === "event" ? Number(selection.id) : (this.lastDecision(last) ?? last);
    return recording && chosen >= recording.start && chosen < recording.end ? chosen : null;
  }

  get recording() {
    return this.side.recording;
  }

  // The newest of the events up to one that speak of what is chosen, and of which the method is known.
  lastDecision(last) {
    const { recording } = this,
      speaks = recording && mentions(recording, this.selection);
    if (speaks)
      for (let i = last; i >= Math.max(recording.start, last - FAR); i--)
        if (speaks(i) && seamOf(recording, i)) return i;
    return null;
  }

  show() {
    const { recording } = this.side,
      { event } = this;
    if (!recording) return;
    const seam = event === null ? null : seamOf(recording, event);
    const hasCode = Object.keys(recording.header.code || {}).length > 0;
    const signature = `${recording.header.lab} ${event} ${hasCode}`;
    if (signature === this.shown && seam === this.seam) return;
    Object.assign(this, { shown: signature });
    if (seam !== this.seam) Object.assign(this, { seam, chosen: 0 });
    this.tell(recording, event, seam, hasCode);
    if (seam !== this.drawn) this.draw();
  }

  tell(recording, event, seam, hasCode) {
    this.element.classList.toggle("le-is-empty", !seam);
    if (seam) return this.head.replaceChildren(...this.headOf(recording, event, seam));
    const nothing =
      event === null
        ? "Nothing has happened yet: take a step, or stand at an event."
        : `No method is known for ${recording.kind(event)}.`;
    this.head.replaceChildren(
      element("span", "le-code-quiet", hasCode ? nothing : "This recording was saved without its code."),
    );
  }

  headOf(recording, event, seam) {
    const kind = element("b", "le-code-event", `${recording.kind(event)}, event ${event},`);
    kind.dataset.event = event;
    return [kind, element("span", "le-code-quiet", " decided by "), element("code", "", nameOf(seam))];
  }

  // -- the methods -----------------------------------------------------------------------------------------------------

  get all() {
    return this.seam ? [this.seam, ...(this.seam.methods || [])] : [];
  }

  draw() {
    this.drawn = this.seam;
    const { all } = this,
      method = all[this.chosen];
    this.methods.replaceChildren(...all.map((one, i) => this.tab(one, i)));
    this.methods.hidden = all.length < 2;
    this.whole.hidden = !method?.base;
    if (!method) {
      write(this.reason, "");
      this.sheet.replaceChildren();
      return;
    }
    write(this.reason, method.reason);
    write(this.whole, this.isWhole ? "difference" : "whole text");
    this.whole.setAttribute("aria-pressed", String(this.isWhole));
    this.sheet.replaceChildren(...(method.base && !this.isWhole ? differenceOf(method) : textOf(method)));
    this.sheet.scrollTop = 0;
    this.sheet.setAttribute("aria-label", `Source of ${nameOf(method)}`);
  }

  tab(method, i) {
    const made = element("button", "le-code-tab");
    made.type = "button";
    made.setAttribute("role", "tab");
    made.setAttribute("aria-selected", String(i === this.chosen));
    made.tabIndex = i === this.chosen ? 0 : -1;
    made.append(element("code", "", nameOf(method)));
    const words = [method.is_custom ? "override" : "", method.is_emitter ? "emits" : ""].filter(Boolean).join(", ");
    if (words) made.append(element("span", "le-code-mark", words));
    made.title = method.reason || nameOf(method);
    return made;
  }

  click(event) {
    const tab = event.target.closest(".le-code-tab");
    if (tab) this.choose([...this.methods.children].indexOf(tab));
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose((this.chosen + step + this.all.length) % this.all.length);
    this.methods.children[this.chosen].focus();
  }

  choose(i) {
    this.chosen = i;
    this.draw();
  }

  toggleWhole() {
    this.isWhole = !this.isWhole;
    this.draw();
  }
}

function nameOf(method) {
  return `${method.class}.${method.seam.split(".").pop()}`;
}

// -- text ----------------------------------------------------------------------------------------------------------------

function* textOf(method) {
  yield caption(`${method.module}${method.line ? `, line ${method.line}` : ""}`);
  const lines = method.source.split("\n"),
    coloured = pieces(lines);
  for (let i = 0; i < lines.length; i++) yield lineOf(" ", method.line ? method.line + i : "", coloured[i], "");
}

function* differenceOf(method) {
  const before = method.base.source.split("\n"),
    after = method.source.split("\n");
  const old = pieces(before),
    fresh = pieces(after);
  yield caption(`${method.module}${method.line ? `, line ${method.line}` : ""}`);
  yield caption(`− ${method.base.class}, which it overrides`, "le-code-was");
  yield caption(`+ ${method.class}`, "le-code-is");
  for (const row of lineDiff(before, after)) {
    const isOld = row.sign === "-",
      number = row.new === null ? "" : (method.line || 1) + row.new;
    yield lineOf(
      isOld ? "−" : row.sign,
      number,
      isOld ? old[row.old] : fresh[row.new],
      { "-": "le-code-was", "+": "le-code-is", " ": "" }[row.sign],
    );
  }
}

function caption(text, className = "") {
  return element("span", `le-code-caption ${className}`, text);
}

function lineOf(sign, number, coloured, className) {
  const made = element("span", `le-code-line ${className}`),
    words = element("span", "le-code-words");
  made.append(element("span", "le-code-number", number), element("span", "le-code-sign", sign), words);
  for (const [text, kind] of coloured) words.append(kind ? element("span", `le-py-${kind}`, text) : seen(text));
  return made;
}
