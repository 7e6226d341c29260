// Marks what is chosen, and what that is about, in a view of elements; and brings it into sight within the view's own frame.
import { aboutOf } from "./about.ts";

const THINGS = "[data-block], [data-request], [data-hash], [data-event]";
const KINDS = ["block", "request", "hash"];
const HANDS = ["click", "keydown", "pointerdown", "wheel"];
const TRIES = 6; // rows that come into sight are painted a little later, and then move those below them

export class Marks {
  // frame: the view's element, which scrolls. covered(): pixels at its top that something stands before; whole(found): what has
  // to be seen of it; rowOf(about): the row of what is not painted yet.
  constructor(stage, side, frame, { covered = () => 0, whole = (found) => found, rowOf = () => null } = {}) {
    Object.assign(this, { stage, side, frame, covered, whole, rowOf });
    Object.assign(this, { selection: null, tries: 0, wasFound: false, isByHand: false, isMarked: false });
    for (const kind of HANDS) frame.addEventListener(kind, () => this.noteHand(), { capture: true, passive: true });
  }

  // Who chooses something in this view has it before them: nothing moves there.
  noteHand() {
    this.isByHand = true;
    this.tries = 0;
    setTimeout(() => (this.isByHand = false));
  }

  // Something else is chosen.
  mark(selection) {
    this.selection = selection?.kind ? selection : null;
    this.tries = this.selection && !this.isByHand ? TRIES : 0;
    this.wasFound = false;
    this.late();
  }

  // After all was painted. What was found before may have moved with what happened since: nobody runs after it.
  again() {
    if (this.wasFound) this.tries = 0;
    this.late();
  }

  // After rows were painted that came into sight: they may be new, and so may be what the selection is about.
  late() {
    if (!this.selection && !this.isMarked) return;
    this.isMarked = Boolean(this.selection);
    const about = aboutOf(this.selection, this.side);
    for (const one of this.frame.querySelectorAll(THINGS)) {
      const isChosen = this.isMarked && one.getAttribute(`data-${this.selection.kind}`) === String(this.selection.id);
      one.classList.toggle("le-selected", isChosen);
      one.classList.toggle("le-related", !isChosen && isAbout(one, about));
    }
    if (this.tries && this.frame.clientHeight) this.seek(about);
  }

  seek(about) {
    const { frame } = this,
      found = ["le-selected", "le-related"]
        .map((name) => particular([...frame.querySelectorAll(`.${name}`)]))
        .find((some) => some.length);
    const row = found ? null : this.rowOf(about);
    this.wasFound = Boolean(found);
    this.tries -= 1;
    if (row) this.reveal(row);
    else if (found && !found.some((one) => this.isSeen(one))) this.reveal(this.whole(found[0]));
  }

  isSeen(one) {
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
  reveal(one) {
    const { frame } = this,
      inner = this.inner(),
      rect = one.getBoundingClientRect();
    frame.scrollTop += away(rect.top, rect.bottom, inner.top, inner.bottom);
    if (frame.scrollWidth > frame.clientWidth) frame.scrollLeft += away(rect.left, rect.right, inner.left, inner.right);
  }
}

function isAbout(one, about) {
  return KINDS.some((kind) => {
    const id = about[kind].size ? one.getAttribute(`data-${kind}`) : null;
    return id !== null && about[kind].has(kind === "hash" ? id : Number(id));
  });
}

// A block of a request rather than the request, where both are marked.
function particular(found) {
  const some = found.filter(({ dataset }) => dataset.request === undefined);
  return some.length ? some : found;
}

// How far a stretch lies outside of another one; of one that does not fit its beginning counts.
function away(from, to, low, high) {
  const room = 4;
  if (from - room < low) return from - room - low;
  return to + room > high ? Math.min(to + room - high, from - room - low) : 0;
}
