// One view, or a few, of one lab: with a sentence and a scrubber, without the controls.

import { element } from "../look/element.ts";
import { VIEWS } from "../views/index.ts";
import { Difference } from "./changes_since_mark.ts";
import { Marks, Sentence } from "./head.ts";
import { Keys, onKey } from "./keys.ts";
import { Notice } from "./notice.ts";
import { panel } from "./panel.ts";
import { Scrubber } from "./scrubber.ts";
import { overlay } from "./slides.ts";
import type { Stage } from "./stage.ts";

export function lay(stage: Stage, root: HTMLElement, { views }: { views: string[] }) {
  const keys = new Keys(stage),
    layer = overlay(stage),
    scrubber = new Scrubber(stage),
    sentence = new Sentence(stage),
    main = element("div", "le-main");
  const panels = views.filter((name) => name in VIEWS).map((name) => panel(stage, name));
  main.append(...panels);
  root.classList.add("le-single");
  root.style.setProperty("--le-num-views", String(panels.length));
  root.append(sentence.element, main, scrubber.element, new Notice(stage).element, layer, keys.element);
  for (const part of [
    sentence,
    scrubber,
    new Marks(stage, scrubber),
    new Difference(stage, (words) => scrubber.tell(words)),
  ])
    stage.add(part);
  root.addEventListener("keydown", (event) => onKey(event, { stage, scrubber, keys }));
  stage.open([
    [sentence.element, 0.6],
    [main, 0.3],
  ]);
}
