// Names on screen: requests A, B, C; contents p, q, r; blocks #7; lists and counts. Equal to those of wording.py.

import { withSigns } from "./hidden_text.ts";

const LETTERS = "pqrstuvwxyz";
const HASH_DIGITS = 8;
const MAX_LISTED = 6;

// A to Z, then AA, AB ...
export function requestName(request: number) {
  let name = "";
  for (let remaining = request + 1; remaining > 0; remaining = Math.floor((remaining - 1) / 26))
    name = String.fromCharCode(65 + ((remaining - 1) % 26)) + name;
  return name;
}

// "A.2" for the second beam of A's search; beams are numbered in the order of their requests.
export function beamName(request: number, first: number) {
  return `${requestName(first)}.${request - first + 1}`;
}

const ID_START = 13, // of a long id: vLLM's begin alike, as in "chatcmpl-", and differ soon after, and at the end
  ID_END = 6;

// An engine's id, cut in the middle.
export function shortId(id: string) {
  const characters = [...id];
  if (characters.length <= ID_START + ID_END + 1) return id;
  return `${characters.slice(0, ID_START).join("")}…${characters.slice(-ID_END).join("")}`;
}

// " · A = cmpl-1f3a", after a mention of A; empty where requests have only letters.
export function idSuffix(request: number, id: string) {
  return id ? ` · ${requestName(request)} = ${id}` : "";
}

// Letters p to z, then p1 to z1, p2 ...
export function contentName(number: number) {
  const round = Math.floor(number / LETTERS.length);
  return LETTERS[number % LETTERS.length] + (round || "");
}

// "#0, #1 and #2", each once.
export function blockNames(ids: number[]) {
  return listed([...new Set(ids)].map((id) => `#${id}`));
}

// " of group 1"; empty for group 0, the only one of most models.
export function groupSuffix(group: number) {
  return group ? ` of group ${group}` : "";
}

export function hashName(hex: string) {
  return `${hex.slice(0, HASH_DIGITS)}…`;
}

// "full", "window"; with a number from 1 where there are several of a kind.
export function groupName(groups: readonly { kind: string }[], group: number) {
  const kind = groups[group]?.kind ?? "full",
    alike = groups.map((_, i) => i).filter((i) => groups[i].kind === kind);
  return (kind === "sliding_window" ? "window" : kind) + (alike.length > 1 ? ` ${alike.indexOf(group) + 1}` : "");
}

// The text that a block of a state group shows instead of tokens.
export function stateWords(numTokens: number) {
  return `state after ${numTokens.toLocaleString("en")}`;
}

// The text of a placeholder token of an image: the first one names the image.
export function imageWord({ name, isFirst }: { name: string; isFirst: boolean }) {
  return isFirst ? `▦ ${readable(name, 24)}` : "▦";
}

// "F", "W"; with a number where there are several of a kind.
export function groupLetter(groups: readonly { kind: string }[], group: number) {
  const [kind, number = ""] = groupName(groups, group).split(" ");
  return kind[0].toUpperCase() + number;
}

// Tokens as running text; a model without words has numbers, which need a space between them.
export function joined(tokens: string[]) {
  if (tokens.every((token) => /^\d+$/.test(token))) return tokens.join(" ");
  return tokens.some((token) => BYTES.test(token)) ? spelled(tokens) : tokens.join("");
}

// Bytes of a character of which a token has a part: "\xf0\x9f" and "\x98\x80" are one.
const BYTES = /((?:\\x[89a-f][0-9a-f])+)/;

function spelled(tokens: string[]) {
  let text = "",
    bytes = "";
  for (const token of tokens) {
    token.split(BYTES).forEach((part, i) => {
      if (i % 2) bytes += part;
      else if (part) {
        text += characters(bytes) + part;
        bytes = "";
      }
    });
  }
  return text + characters(bytes);
}

// Characters of escaped bytes; bytes that make none stay as they are.
function characters(escaped: string) {
  let text = "";
  for (let at = 0; at < escaped.length; ) {
    const lead = Number.parseInt(escaped.slice(at + 2, at + 4), 16),
      end = at + 4 * (lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
    const whole = decoded(escaped.slice(at, end));
    text += whole ?? escaped.slice(at, at + 4);
    at = whole === null ? at + 4 : end;
  }
  return text;
}

function decoded(escaped: string) {
  try {
    return decodeURIComponent(escaped.replaceAll("\\x", "%"));
  } catch {
    return null;
  }
}

// "#0, #1 and #2"; of a long list the first two and the last one.
export function listed(words: string[]) {
  return separated(words).join("");
}

// The words of such a list and their separators.
export function separated<Word>(words: Word[]): (Word | string)[] {
  if (words.length > MAX_LISTED) return [words[0], ", ", words[1], " … ", words[words.length - 1]];
  if (!words.length) return ["nothing"];
  return words.flatMap((word, i) => (i ? [i === words.length - 1 ? " and " : ", ", word] : [word]));
}

// "1 block", "3 blocks", "1,024 table entries".
export function counted(number: number, noun: string) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural(noun)}`;
}

function plural(noun: string) {
  if (/[^aeiou]y$/.test(noun)) return `${noun.slice(0, -1)}ies`;
  return noun + (/(s|sh|ch|x)$/.test(noun) ? "es" : "s");
}

// Text of unknown origin as one visible line: line ends as signs, all else that is hidden as dots.
export function readable(text: string, limit: number) {
  const characters = [...text];
  return characters.length > limit ? `${withSigns(characters.slice(0, limit - 1).join(""))}…` : withSigns(text);
}

// A kind of event as words: "BlockAllocated" -> "block allocated".
export function kindName(kind: string) {
  return kind.replace(/(?!^)([A-Z])/g, " $1").toLowerCase();
}
