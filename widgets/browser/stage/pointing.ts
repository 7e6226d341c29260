// Hover, click and highlight for all elements with a subject, in any view, by event delegation on the root.

import { targetOf, write } from "../look/element.ts";
import type { Selection } from "../model/payloads.ts";
import type { Subject } from "../views/view.ts";
import { eventOf } from "../views/view.ts";
import { describe } from "./describe.ts";
import type { Stage } from "./stage.ts";

const KINDS = ["event", "hash", "block", "node", "request"] as const; // the most particular first
const MAX_BLOCKS = 128; // of a node, that are marked while the mouse is on it
const SELECTOR = KINDS.map((kind) => `[data-${kind}]`).join();

// The subject under the mouse, its side, and its element (null on a canvas).
interface PointedSubject extends Subject {
  side: number;
  from: HTMLElement | null;
}

export class Pointing {
  subject: PointedSubject | null = null;
  marked: HTMLElement[] = [];
  pointed: HTMLElement[] = [];

  constructor(
    readonly stage: Stage,
    signal: AbortSignal,
  ) {
    const { root } = stage;
    root.addEventListener("mousemove", (event) => this.hover(event), { signal });
    root.addEventListener("mouseleave", () => this.point(null), { signal });
    root.addEventListener("click", (event) => this.choose(event), { signal });
    root.addEventListener("keydown", (event) => event.key === "Enter" && this.chooseFocused(event), { signal });
    document.addEventListener("keydown", () => this.hideTip(), { signal, capture: true });
  }

  // The subject of a mouse event: {kind, id, side, from} or null.
  subjectAt(event: MouseEvent): PointedSubject | null {
    const target = targetOf(event),
      asked = this.askedFor(),
      found = (asked && target.closest?.<HTMLElement>(asked)) || target.closest?.<HTMLElement>(SELECTOR);
    if (found && this.stage.root.contains(found)) return subjectOf(found);
    for (const { view, side } of this.stage.painting.painted) {
      if (view.at && view.element.contains(targetOf(event))) {
        const subject = view.at(event);
        return subject && { ...subject, side, from: null };
      }
    }
    return null;
  }

  // While a question is open, a click on a block inside an entry of the map means the entry, if that is asked for.
  askedFor() {
    const { asked } = this.stage.status;
    return asked?.is_open && asked.kind !== "number" ? `[data-${asked.kind}]` : "";
  }

  hover(event: MouseEvent) {
    const subject = event.buttons ? null : this.subjectAt(event);
    this.point(subject);
    this.stage.root.classList.toggle("le-asks", Boolean(subject?.about && this.stage.askWhy));
    if (subject) this.showTip(subject, event);
  }

  point(subject: PointedSubject | null) {
    const { stage } = this;
    if (!subject && !this.subject) return;
    const isSame =
      subject &&
      this.subject &&
      subject.kind === this.subject.kind &&
      subject.id === this.subject.id &&
      subject.from === this.subject.from;
    if (isSame) return;
    this.subject = subject;
    if (!subject) this.hideTip();
    this.link();
    this.pointed = remark(stage.root, this.pointed, this.shown(), "le-pointed");
    for (const { view } of stage.painting.painted) view.point?.(subject);
  }

  // What elements are marked for the subject: of a node, its blocks.
  shown(): Pick<Subject, "kind" | "id">[] {
    const { subject } = this;
    if (subject?.kind !== "node") return subject ? [subject] : [];
    const { blocks = [] } = this.stage.sides[subject.side].scene.tree.nodes.get(Number(subject.id)) ?? {};
    return blocks.slice(0, MAX_BLOCKS).map((id) => ({ kind: "block", id }));
  }

  // By a key, or where what lay under the mouse has moved; the mouse brings it again.
  hideTip() {
    this.stage.tip.hidden = true;
  }

  // The requests that hold the block under the mouse.
  link() {
    const { stage, subject } = this;
    if (subject?.kind === "block") stage.links?.show(Number(subject.id), subject.side);
    else stage.links?.clear();
  }

  choose(event: MouseEvent) {
    const subject =
      targetOf(event).closest?.("button, input, select, textarea, summary, a") && !targetOf(event).closest(SELECTOR)
        ? null
        : this.subjectAt(event);
    if (!subject) return;
    const { stage } = this,
      { selection } = stage,
      { kind, id, side } = subject,
      selected: Selection = kind === "event" ? eventOf(stage, stage.sides[side], Number(id)) : { kind, id };
    const isSelected = selection && selection.kind === kind && selection.id === id && selection.side === selected.side;
    if (subject.about) stage.askWhy?.(subject.about, side);
    stage.select(isSelected && !subject.about ? null : selected);
  }

  chooseFocused(event: KeyboardEvent) {
    const found = targetOf(event).closest?.<HTMLElement>(SELECTOR);
    if (!found || targetOf(event).matches("button, input")) return;
    const { kind, id } = subjectOf(found);
    this.stage.select({ kind, id });
  }

  // After a paint: elements may be new.
  repainted() {
    if (this.stage.selection || this.subject) this.mark();
    if (this.subject) this.link();
    this.refresh();
  }

  mark() {
    const { stage } = this;
    this.marked = remark(stage.root, this.marked, stage.selection ? [stage.selection] : [], "le-selected");
    if (this.subject) this.pointed = remark(stage.root, this.pointed, this.shown(), "le-pointed");
  }

  refresh() {
    if (this.subject && !this.stage.tip.hidden)
      write(this.stage.tip, describe(this.stage, this.stage.sides[this.subject.side], this.subject));
  }

  showTip(subject: PointedSubject, event: MouseEvent) {
    const { tip, root } = this.stage,
      words = describe(this.stage, this.stage.sides[subject.side], subject);
    tip.hidden = !words;
    if (!words) return;
    write(tip, words);
    const origin = root.getBoundingClientRect(),
      x = event.clientX - origin.left,
      y = event.clientY - origin.top;
    tip.style.left = `${Math.max(4, Math.min(x + 14, origin.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > origin.height ? y - tip.offsetHeight - 8 : y + 18}px`;
  }
}

// The most particular thing that an element stands for.
function subjectOf(found: HTMLElement): PointedSubject {
  const kind = KINDS.find((one) => one in found.dataset) ?? "event",
    id = found.dataset[kind] ?? "";
  return {
    kind,
    id: kind === "hash" ? id : Number(id),
    side: Number(found.closest<HTMLElement>("[data-side]")?.dataset.side ?? 0),
    from: found,
    about: found.dataset.about,
  };
}

// Moves a class from the elements that had it to those of these subjects; returns the elements.
export function remark(
  root: HTMLElement,
  old: HTMLElement[],
  subjects: Pick<Subject, "kind" | "id">[],
  className: string,
) {
  const wanted = subjects.flatMap(({ kind, id }) => [
    ...root.querySelectorAll<HTMLElement>(`[data-${kind}="${CSS.escape(String(id))}"]`),
  ]);
  for (const one of old) if (!wanted.includes(one)) one.classList.remove(className);
  for (const one of wanted) one.classList.add(className);
  return wanted;
}
