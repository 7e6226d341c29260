// Sentences in parts: text, and mentions of what a reader can point at. words/mentions.py writes the same parts.

import { contentName, requestName } from "./names.ts";

// A content is that of a block, at the sentence's moment; its number is the recording's.
type ContentMention = [kind: "content", block: number, content?: number];
export type Mention = [kind: "block" | "request", id: number] | ContentMention;
export type Sentence = (string | Mention)[];

export function isContent(part: string | Mention): part is ContentMention {
  return part[0] === "content";
}

// Neighbouring pieces of text become one, and empty ones go.
export function joined(parts: Sentence): Sentence {
  const all: Sentence = [];
  for (const part of parts) {
    const last = all.at(-1);
    if (typeof part === "string" && typeof last === "string") all[all.length - 1] = last + part;
    else if (part) all.push(part);
  }
  return all;
}

export function textOf(sentence: Sentence) {
  return sentence.map((part) => (typeof part === "string" ? part : wordOf(part))).join("");
}

// The blocks and requests that it mentions.
export function blocksIn(sentence: Sentence) {
  return numbersOf(sentence, "block");
}

export function requestsIn(sentence: Sentence) {
  return numbersOf(sentence, "request");
}

function numbersOf(sentence: Sentence, kind: string) {
  return sentence.flatMap((part) => (part[0] === kind ? [Number(part[1])] : []));
}

export function wordOf([kind, id, content]: Mention) {
  if (kind === "request") return requestName(id);
  if (kind === "block") return `#${id}`;
  return content === undefined || content < 0 ? "it" : contentName(content);
}
