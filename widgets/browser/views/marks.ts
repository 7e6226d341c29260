// A view of elements: marks the selection and its related subjects, and scrolls them into view within its own frame.

import { element } from "../look/element.ts";
import type { Selection } from "../model/payloads.ts";
import type { Side } from "../model/side.ts";
import type { About } from "./about.ts";
import { aboutOf } from "./about.ts";
import { arrows, THINGS } from "./arrows.ts";
import type { ViewHost } from "./view.ts";

const KINDS = ["block", "request", "hash"] as const;
const HANDS = ["click", "keydown", "pointerdown", "wheel"];
const TRIES = 6; // rows that come into sight are painted a little later, and then move those below them

export abstract class MarkedView {
  element: HTMLElement; // which scrolls
  selection: Selection | null = null;
  tries = 0;
  wasFound = false;
  isByHand = false;
  isMarked = false;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
    className: string,
    label: string,
  ) {
    this.element = element("div", `le-scroll ${className}`, { role: "group", ariaLabel: label });
    const listening = { capture: true, passive: true };
    for (const kind of HANDS) this.element.addEventListener(kind, () => this.noteHand(), listening);
    arrows(this.element, stage);
  }

  // Pixels at the frame's top that something covers.
  covered() {
    return 0;
  }

  // The part of a found thing to show.
  shownPart(found: HTMLElement) {
    return found;
  }

  // The row of a thing that is not painted yet.
  rowOf(_about: About): Element | null | undefined {
    return null;
  }

  // A reader who selects something in this view sees it already, so nothing scrolls.
  noteHand() {
    this.isByHand = true;
    this.tries = 0;
    setTimeout(() => {
      this.isByHand = false;
    });
  }

  // Handles a new selection.
  mark(selection: Selection | null) {
    this.selection = selection?.kind ? selection : null;
    this.tries = this.selection && !this.isByHand ? TRIES : 0;
    this.wasFound = false;
    this.markLate();
  }

  // Called after painting. Elements found before may have moved since; the view does not scroll after them.
  markAgain() {
    if (this.wasFound) this.tries = 0;
    this.markLate();
  }

  // After rows were painted that came into sight: they may be new, and so may be what the selection is about.
  markLate() {
    if (!this.selection && !this.isMarked) return;
    this.isMarked = Boolean(this.selection);
    const about = aboutOf(this.selection, this.side);
    for (const one of this.element.querySelectorAll<HTMLElement>(THINGS)) {
      const isSelected =
        this.isMarked && one.getAttribute(`data-${this.selection?.kind}`) === String(this.selection?.id);
      one.classList.toggle("le-selected", isSelected);
      one.classList.toggle("le-related", !isSelected && isAbout(one, about));
    }
    if (this.tries && this.element.clientHeight) this.seek(about);
  }

  seek(about: About) {
    const found = ["le-selected", "le-related"]
      .map((name) => particular([...this.element.querySelectorAll<HTMLElement>(`.${name}`)]))
      .find((some) => some.length);
    const row = found ? null : this.rowOf(about);
    this.wasFound = Boolean(found);
    this.tries -= 1;
    if (row) this.scrollTo(row);
    else if (found && !found.some((one) => this.isSeen(one))) this.scrollTo(this.shownPart(found[0]));
  }

  isSeen(one: Element) {
    const { top, bottom, left, right } = this.inner(),
      rect = one.getBoundingClientRect();
    return rect.width > 0 && rect.top >= top && rect.bottom <= bottom && rect.left >= left && rect.right <= right;
  }

  inner() {
    const { top, left } = this.element.getBoundingClientRect(),
      { clientHeight, clientWidth } = this.element;
    return { top: top + this.covered(), bottom: top + clientHeight, left, right: left + clientWidth };
  }

  // Scrolls this frame and no other: the page stays where the reader has it.
  scrollTo(one: Element) {
    const frame = this.element,
      inner = this.inner(),
      rect = one.getBoundingClientRect();
    frame.scrollTop += away(rect.top, rect.bottom, inner.top, inner.bottom);
    if (frame.scrollWidth > frame.clientWidth) frame.scrollLeft += away(rect.left, rect.right, inner.left, inner.right);
  }

  destroy() {
    this.element.remove();
  }
}

function isAbout(one: Element, about: About) {
  return KINDS.some((kind) => {
    const id = about[kind].size ? one.getAttribute(`data-${kind}`) : null;
    if (id === null) return false;
    return kind === "hash" ? about.hash.has(id) : about[kind].has(Number(id));
  });
}

// A block of a request rather than the request, where both are marked.
function particular(found: HTMLElement[]) {
  const some = found.filter(({ dataset }) => dataset.request === undefined);
  return some.length ? some : found;
}

// How far a stretch lies outside of another one; of one that does not fit its beginning counts.
function away(from: number, to: number, low: number, high: number) {
  const room = 4;
  if (from - room < low) return from - room - low;
  return to + room > high ? Math.min(to + room - high, from - room - low) : 0;
}
