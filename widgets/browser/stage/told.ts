// While a play tells a sentence, tables of requests that it does not name are dimmed. (The pool dims its own cells.)

import { requestsIn } from "../model/sentence.ts";
import type { Stage } from "./stage.ts";

export class Told {
  constructor(readonly stage: Stage) {}

  paint() {
    const { stage } = this,
      { sentence, left, right } = stage.caption,
      said = stage.isPlaying ? [sentence, left ?? [], right ?? []].flatMap(requestsIn) : [];
    for (const head of stage.root.querySelectorAll<HTMLElement>(".le-tables-head[data-request]"))
      head.parentElement?.classList.toggle(
        "le-is-dimmed",
        said.length > 0 && !said.includes(Number(head.dataset.request)),
      );
  }
}
