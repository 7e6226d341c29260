// What the marks mean, in one line below the columns.
import { element } from "../../look/element.ts";
import { cutLink } from "../../views/pieces.ts";

const MARKS: [name: string, text: string | null, words: string, title: string][] = [
  [
    "alike",
    "p",
    "same letter: same content",
    "the content of a full block: its tokens and all before them. Outlined with dots until its hash is in " +
      "the map; bars or dots on the block tell contents apart that share a colour",
  ],
  ["count", "••", "requests holding it", "the ref count of a block: how many requests' tables it stands in"],
  ["part", "", "not full yet", "the grey part is written"],
  [
    "kept",
    "",
    "free, content kept",
    "no request holds the block; until it is reused, a look-up can still find its content",
  ],
  [
    "lost",
    null,
    "lost: no hash leads to it",
    "in use and full, but no look-up finds it: not even a request with the same prompt",
  ],
  ["now", "", "computed in this step", "a token whose keys and values are computed in this step"],
  ["hit", "", "from the cache", "a token whose keys and values were found in the cache"],
  [
    "unlike",
    "≠",
    "differs from the other side",
    "marked on both sides, in tables, pool, map, numbers, and beside the free queue. In tables and map an " +
      "equal block with another id is no difference: which free block was allocated does not matter",
  ],
  ["current", "", "current event", "the blocks that the current sentence is about"],
];

export class Legend {
  element = element("div", "le-pair-legend");

  constructor() {
    this.element.setAttribute("role", "note");
    this.element.setAttribute("aria-label", "what the marks mean");
    this.element.append(...MARKS.map(entry));
  }

  paint() {}
}

function entry([name, text, words, title]: [name: string, text: string | null, words: string, title: string]) {
  const made = element("span", "le-pair-key");
  made.title = title;
  made.append(text === null ? cutLink() : element("i", `le-key-${name}`, text), words);
  return made;
}
