// Hatched pieces at the ends of the slider over all steps: there the stream has lost events.
import { element, put } from "../look/element.ts";
import type { Recording } from "../model/recording.ts";

const WIDTH = "24px"; // not to scale: a gap may be longer than what is known

function piece(side: "before" | "after") {
  return element("span", `le-gap le-gap-${side}`, { role: "img", hidden: true });
}

export class Gaps {
  before = piece("before");
  after = piece("after");

  constructor(readonly slide: HTMLElement) {
    slide.append(this.before, this.after);
  }

  // Old steps that were dropped lie between the gap and what is here: then there is none to draw.
  paint({ header }: Recording) {
    this.show(this.before, "--le-gap-before", header.first ? null : header.gap_before);
    this.show(this.after, "--le-gap-after", header.gap_after);
  }

  show(piece: HTMLElement, name: string, words?: string | null) {
    if (piece.title === (words ?? "")) return;
    put(piece, "title", words ?? "");
    piece.ariaLabel = words ?? "";
    piece.hidden = !words;
    this.slide.style.setProperty(name, words ? WIDTH : "0px");
  }
}
