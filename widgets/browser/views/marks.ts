// Marks the selection and its related subjects in a view of elements, and scrolls them into view within the view's own
// frame.

import type { Selection } from "../model/payloads.ts";
import type { Side } from "../model/side.ts";
import type { About } from "./about.ts";
import { aboutOf } from "./about.ts";
import type { ViewHost } from "./view.ts";

const THINGS = "[data-block], [data-request], [data-hash], [data-event]";
const KINDS = ["block", "request", "hash"] as const;
const HANDS = ["click", "keydown", "pointerdown", "wheel"];
const TRIES = 6; // rows that come into sight are painted a little later, and then move those below them

interface MarksOptions {
  covered: () => number; // pixels at the frame's top that are behind something
  shownPart: (found: HTMLElement) => HTMLElement; // what is to be seen of a thing that was found
  rowOf: (about: About) => Element | null | undefined; // the row of what is not painted yet
}

export class Marks {
  stage: ViewHost;
  side: Side;
  frame: HTMLElement;
  covered: () => number;
  shownPart: (found: HTMLElement) => HTMLElement;
  rowOf: (about: About) => Element | null | undefined;
  selection: Selection | null = null;
  tries = 0;
  wasFound = false;
  isByHand = false;
  isMarked = false;
  // frame: the view's element, which scrolls.
  constructor(
    stage: ViewHost,
    side: Side,
    frame: HTMLElement,
    { covered = () => 0, shownPart = (found) => found, rowOf = () => null }: Partial<MarksOptions> = {},
  ) {
    this.stage = stage;
    this.side = side;
    this.frame = frame;
    this.covered = covered;
    this.shownPart = shownPart;
    this.rowOf = rowOf;
    for (const kind of HANDS) frame.addEventListener(kind, () => this.noteHand(), { capture: true, passive: true });
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
    this.late();
  }

  // Called after painting. Elements found before may have moved since; the view does not scroll after them.
  again() {
    if (this.wasFound) this.tries = 0;
    this.late();
  }

  // After rows were painted that came into sight: they may be new, and so may be what the selection is about.
  late() {
    if (!this.selection && !this.isMarked) return;
    this.isMarked = Boolean(this.selection);
    const about = aboutOf(this.selection, this.side);
    for (const one of this.frame.querySelectorAll<HTMLElement>(THINGS)) {
      const isSelected =
        this.isMarked && one.getAttribute(`data-${this.selection?.kind}`) === String(this.selection?.id);
      one.classList.toggle("le-selected", isSelected);
      one.classList.toggle("le-related", !isSelected && isAbout(one, about));
    }
    if (this.tries && this.frame.clientHeight) this.seek(about);
  }

  seek(about: About) {
    const { frame } = this,
      found = ["le-selected", "le-related"]
        .map((name) => particular([...frame.querySelectorAll<HTMLElement>(`.${name}`)]))
        .find((some) => some.length);
    const row = found ? null : this.rowOf(about);
    this.wasFound = Boolean(found);
    this.tries -= 1;
    if (row) this.reveal(row);
    else if (found && !found.some((one) => this.isSeen(one))) this.reveal(this.shownPart(found[0]));
  }

  isSeen(one: Element) {
    const inner = this.inner(),
      rect = one.getBoundingClientRect();
    return (
      rect.width > 0 &&
      rect.top >= inner.top &&
      rect.bottom <= inner.bottom &&
      rect.left >= inner.left &&
      rect.right <= inner.right
    );
  }

  inner() {
    const { top, left } = this.frame.getBoundingClientRect(),
      { clientHeight, clientWidth } = this.frame;
    return { top: top + this.covered(), bottom: top + clientHeight, left, right: left + clientWidth };
  }

  // Scrolls this frame and no other: the page stays where the reader has it.
  reveal(one: Element) {
    const { frame } = this,
      inner = this.inner(),
      rect = one.getBoundingClientRect();
    frame.scrollTop += away(rect.top, rect.bottom, inner.top, inner.bottom);
    if (frame.scrollWidth > frame.clientWidth) frame.scrollLeft += away(rect.left, rect.right, inner.left, inner.right);
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
