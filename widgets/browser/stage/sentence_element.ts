// A sentence as elements: what it mentions lights up wherever it is drawn, and the other way round (pointing.ts).

import { element } from "../look/element.ts";
import { visible } from "../model/hidden_text.ts";
import type { Mention, Sentence } from "../model/sentence.ts";
import { wordOf } from "../model/sentence.ts";

const written = new WeakMap<Element, string>();

// A sentence that its place would cut is set smaller: nothing else has to move.
const places = new ResizeObserver((entries) => entries.forEach(({ target }) => fit(target)));

function fit(target: Element) {
  target.classList.remove("le-is-long");
  const isCut = target.scrollHeight > target.clientHeight + 2 || target.scrollWidth > target.clientWidth + 1;
  target.classList.toggle("le-is-long", isCut);
}

// Writes a sentence only if it has changed, which saves a layout.
export function writeSentence(target: Element, sentence: Sentence) {
  const wanted = JSON.stringify(sentence);
  if (written.get(target) === wanted) return;
  if (!written.has(target)) places.observe(target);
  written.set(target, wanted);
  target.replaceChildren(...sentence.map((part) => (typeof part === "string" ? visible(part) : mentionElement(part))));
  fit(target);
}

function mentionElement(mention: Mention) {
  const made = element("span", "le-mention", wordOf(mention));
  made.dataset[mention[0] === "request" ? "request" : "block"] = String(mention[1]);
  return made;
}
