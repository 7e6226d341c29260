// While a play tells a sentence, tables of requests that it does not name are dimmed. (The pool dims its own cells.)

import { requestsIn } from "../model/sentence.ts";
import type { PairCaption } from "./pair_track.ts";

interface ToldStage {
  root: HTMLElement;
  isPlaying: boolean;
  caption: PairCaption;
}

export class Told {
  stage: ToldStage;

  constructor(stage: ToldStage) {
    this.stage = stage;
  }

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
