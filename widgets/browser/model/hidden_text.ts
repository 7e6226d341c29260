// Signs for what a reader does not see of a text, equal to those of labengine/record/hidden_text.py.

import table from "../../../labengine/record/hidden_text.json";

const GAP_COLUMNS = 80,
  GAP_LINES = 40;
const EMOJI = "[\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u27bf\\u2900-\\u2bff\\u3030\\u{1f000}-\\u{1faff}]";
const JOINING = "[\\u0620-\\u0dff]";
const DRAWN = `${EMOJI}[\\ufe0e\\ufe0f]?(?:\\u200d(?=${EMOJI}))?|${JOINING}[\\u200c\\u200d](?=${JOINING})`;
const RANGES = Object.values(table)
  .join(" ")
  .replace(/[^ -]+/g, "\\u{$&}")
  .replaceAll(" ", "");
const HIDDEN = new RegExp(`(${DRAWN})|[${RANGES}]`, "gu");
const GAP = new RegExp(`[ \\t]{10,}|\\n(?:[ \\t]*\\n){${GAP_LINES},}`, "g");
const PLAIN = new RegExp(`^(?!.* {${GAP_COLUMNS}})[ -~]*$`);
const SIGNS: Record<string, string> = { "\n": "⏎", "\r": "⏎", "\t": "⇥" };

// Text of unknown origin with its line ends and tabs, and with signs or dots for all else that is hidden.
export function visible(text: string) {
  return withSigns(text, "\n\t");
}

// A text with signs or dots for what draws nothing, and with long gaps marked.
export function withSigns(text: string, kept = "") {
  if (PLAIN.test(text)) return text;
  const drawn = text.replace(HIDDEN, (one, shaped) => shaped ?? (kept.includes(one) ? one : (SIGNS[one] ?? "·")));
  const body = drawn.replace(/[ \t\n]+$/, "");
  return body.replace(GAP, marked) + drawn.slice(body.length);
}

// The words for a gap. Empty lines stay, each with its sign, so that lines keep their numbers.
function marked(run: string, at: number, body: string) {
  const numEmpty = run.split("\n").length - 2;
  if (run[0] === "\n") return `\n⟨${numEmpty.toLocaleString("en")} empty lines⟩\n${"⏎\n".repeat(numEmpty - 1)}`;
  const isInside = body[at + run.length] !== "\n",
    columns = run.length + 7 * (run.split("\t").length - 1);
  return isInside && columns >= GAP_COLUMNS ? `⟨${run.length.toLocaleString("en")} blanks⟩` : run;
}
