// The text that a chat template puts around a user's words (ChatML): folded on screen, because it is always the same.

import type { TokenText } from "./phrases.ts";
import type { TokenStore } from "./requests.ts";

const OPENS = "<|im_start|>",
  CLOSES = "<|im_end|>",
  USER = "user",
  LINE_END = "⏎",
  MOST = 6; // tokens of an opening: that one, a role, and the line's end
const FOLDED = " [template]";

// The positions of the newest user's words, and where the answer begins.
interface Asked {
  start: number;
  end: number;
  answer: number;
}

const known = new WeakMap<TokenStore, Asked | null>();

// null for a text without a template.
function asked(store: TokenStore, textOf: TokenText): Asked | null {
  if (textOf(store.ids[0] ?? -1).trim() !== OPENS) return null;
  let found = known.get(store);
  if (found === undefined) known.set(store, (found = findAsked(store.ids.map((token) => textOf(token).trim()))));
  return found;
}

function findAsked(texts: string[]): Asked | null {
  const opened = texts.findLastIndex((text, i) => text === OPENS && texts[i + 1] === USER),
    start = behindOpening(texts, opened),
    end = texts.indexOf(CLOSES, start),
    answers = texts.indexOf(OPENS, end);
  return opened < 0 || end < 0 || answers < 0 ? null : { start, end, answer: behindOpening(texts, answers) };
}

// A role may be several tokens.
function behindOpening(texts: string[], at: number) {
  return at + texts.slice(at, at + MOST).indexOf(LINE_END) + 1;
}

// For a token of a template: one word where its run begins in a block, and none after that; null for other tokens.
export function templateWord(store: TokenStore, position: number, size: number, textOf: TokenText) {
  const found = asked(store, textOf);
  if (!found || position >= found.answer || (position >= found.start && position < found.end)) return null;
  return position % size === 0 || position === found.end ? FOLDED : "";
}
