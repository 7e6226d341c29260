// One view, or a few, of one lab: with a sentence and a scrubber, without the controls.
import { element } from "../look/element.js";
import { Difference } from "./difference.js";
import { Marks, Sentence } from "./head.js";
import { Keys, onKey } from "./keys.js";
import { Notice } from "./notice.js";
import { overlay } from "./overlay.js";
import { panel } from "./panel.js";
import { Scrubber } from "./scrubber.js";

export function lay(stage, root, { views }) {
  const keys = new Keys(stage),
    layer = overlay(stage),
    scrubber = new Scrubber(stage),
    sentence = new Sentence(stage),
    main = element("div", "le-main");
  const panels = views.map((name) => panel(stage, name)).filter(Boolean);
  main.append(...panels);
  root.classList.add("le-single");
  root.style.setProperty("--le-num-views", panels.length);
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
