// The blocks of the pool with rings, and the rings.

import type { Misnamed, Violation } from "../../model/alarms.ts";
import { alarmsAt, misnamedAt, violationOf } from "../../model/alarms.ts";
import { differing, unlike } from "../../model/differing.ts";
import type { Scene } from "../../model/scene.ts";
import type { Side } from "../../model/side.ts";
import { aboutOf } from "../about.ts";
import type { Ink } from "../canvas.ts";
import type { Subject, ViewHost } from "../view.ts";
import type { CellRect } from "./cell.ts";
import { pin, ring } from "./cell.ts";

const RIGHT = "#009e73",
  CLICKED = "#d55e00";

// What a painting's rings are about.
interface Ringed {
  hasMark: boolean; // a card marks by itself that it is unlike the other side's
  selected: Set<number>;
  pointed: Set<number>;
}

export class Outlines {
  pointed: Subject | null = null;
  selected: Subject | null = null;
  focus = new Set<number>(); // where to look
  different = new Set<number>(); // not as at the marked moment, or not as on the other side
  violated = new Map<number, Violation>(); // the first violation that names each block
  misnamed = new Map<number, Misnamed>(); // blocks whose KV does not match their hash
  ids = new Set<number>(); // all of these together

  constructor(
    readonly host: ViewHost,
    readonly side: Side,
  ) {}

  // All blocks with a ring. In a comparison the reference is the other side.
  find(scene: Scene, reference: Scene | null, focus: number[]) {
    this.takeViolations();
    this.focus = new Set(focus);
    this.different = !reference
      ? new Set()
      : this.host.isPair
        ? unlike(scene, reference)
        : differing(scene, reference).blocks;
    this.ids = new Set<number>([
      ...this.focus,
      ...this.different,
      ...this.named(this.pointed),
      ...this.named(this.selected),
      ...this.violated.keys(),
      ...this.misnamed.keys(),
      ...this.side.judged.said,
      ...this.side.judged.truth,
    ]);
    return this.ids;
  }

  takeViolations() {
    const { recording, moment } = this.side,
      { violations } = alarmsAt(recording, moment);
    this.misnamed = misnamedAt(recording, moment);
    this.violated = new Map();
    for (const id of violations.flatMap(({ blocks }) => blocks)) {
      const first = violationOf(violations, { block: id });
      if (first) this.violated.set(id, first);
    }
  }

  // The blocks related to a subject.
  named(subject: Subject | null) {
    return aboutOf(subject, this.side).block;
  }

  // Pointed at: a thin grey ring, or a line in the ring that is there. The current event: a thin ring. Selected: a
  // thick ring with a pin.
  paintRings(ink: Ink, rect: CellRect, id: number, { hasMark, selected, pointed }: Ringed) {
    const { theme } = ink,
      { said, truth } = this.side.judged,
      isSelected = selected.has(id),
      isRinged = isSelected || this.focus.has(id);
    if (this.different.has(id) && !(this.host.isPair && hasMark)) ring(ink, rect, theme.accent, 2, [5, 3]);
    if (truth.has(id)) return ring(ink, rect, RIGHT, 4);
    if (said.has(id)) return ring(ink, rect, CLICKED, 4, [6, 4]);
    if (isRinged) ring(ink, rect, theme.accent, isSelected ? 3.5 : 2);
    if (isSelected) pin(ink, rect, theme.accent);
    if (pointed.has(id)) ring(ink, rect, isRinged ? theme.paper : theme.soft, isRinged ? 1 : 1.5);
  }
}
