// What a chat template puts around a user's words (ChatML): folded where texts are shown, for it is alike each time.

import type { TokenText } from "./phrases.ts";
import type { RequestRecord } from "./requests.ts";

const OPENS = "<|im_start|>",
  CLOSES = "<|im_end|>",
  USER = "user";
const FOLDED = " [template]";

type Range = [start: number, end: number];
const known = new WeakMap<object, Range | null>(); // by the store of the tokens

// The positions of the newest user's words; null for a prompt without a template.
function asked({ store, numPrompt }: RequestRecord, textOf: TokenText): Range | null {
  if (textOf(store.ids[0] ?? -1).trim() !== OPENS) return null;
  const found = known.get(store);
  if (found !== undefined) return found;
  const texts = store.ids.slice(0, numPrompt).map((token) => textOf(token).trim()),
    start = texts.findLastIndex((text, i) => text === USER && texts[i - 1] === OPENS),
    end = texts.indexOf(CLOSES, start);
  const range: Range | null = start < 0 || end < 0 ? null : [start + 2, end]; // behind the line's end
  known.set(store, range);
  return range;
}

// For a token of a template: one word where its run begins in a block, and none behind that; null for other tokens.
export function templateWord(request: RequestRecord, position: number, size: number, textOf: TokenText) {
  const range = position < request.numPrompt ? asked(request, textOf) : null;
  if (!range || (position >= range[0] && position < range[1])) return null;
  return position % size === 0 || position === range[1] ? FOLDED : "";
}
