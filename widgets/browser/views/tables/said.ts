// A request's text in one line: a long one is cut at its beginning, between two words, so that its end stays in
// sight. This step's token is set apart.

import { element, put, write } from "../../look/element.ts";
import type { Theme } from "../../look/theme.ts";
import { Ink } from "../canvas.ts";

const PARTS = /^(?:\\x[89a-f][0-9a-f])+/;

export type SaidElement = ReturnType<typeof makeSaid>;

export function makeSaid() {
  const label = element("span", "le-quiet"),
    words = element("span", "le-tables-words");
  return Object.assign(element("div", "le-tables-said", {}, label, words), {
    label,
    words,
    said: "",
    tail: "",
    shown: "",
  });
}

// Writes the lines. Their width is observed and never queried, because a query forces a layout.
export class SaidLines {
  rooms = new Map<Element, number>(); // pixels of the words, by their elements
  sizes = new ResizeObserver((entries) => this.hear(entries));
  lines = new Map<Element, SaidElement>();
  letter = 0; // pixels of one, as all are as wide

  constructor(readonly theme: () => Theme) {}

  watch(line: SaidElement) {
    this.lines.set(line.words, line);
    this.sizes.observe(line.words);
  }

  hear(entries: ResizeObserverEntry[]) {
    for (const { target, contentRect } of entries) {
      const line = this.lines.get(target);
      if (!line?.isConnected) this.forget(target);
      else if (this.rooms.get(target) !== contentRect.width) {
        this.rooms.set(target, contentRect.width);
        this.show(line);
      }
    }
  }

  forget(words: Element) {
    this.sizes.unobserve(words);
    this.lines.delete(words);
    this.rooms.delete(words);
  }

  // fresh: the newest tokens' text.
  paint(line: SaidElement, said: string, fresh: string) {
    const tail = endOf(said, fresh);
    Object.assign(line, { said, tail: said.endsWith(tail) ? tail : "" });
    line.classList.toggle("le-is-silent", !said);
    write(line.label, said ? "says" : " ");
    put(line.words, "title", said);
    this.show(line);
  }

  show(line: SaidElement) {
    const { words, said, tail } = line,
      shown = cutBefore(said, this.numLetters(words)),
      signature = `${shown}\n${tail}`;
    if (line.shown === signature) return;
    line.shown = signature;
    const start = Math.max(0, shown.length - tail.length),
      text = element("bdi", "", shown.slice(0, start));
    if (tail) text.append(element("mark", "le-tables-fresh", shown.slice(start)));
    words.replaceChildren(text);
  }

  numLetters(words: Element) {
    const room = this.rooms.get(words);
    if (room === undefined) return Number.POSITIVE_INFINITY;
    this.letter ||= widthOfLetter(this.theme());
    return Math.floor(room / this.letter);
  }

  close() {
    this.sizes.disconnect();
  }
}

function widthOfLetter(theme: Theme) {
  const ink = new Ink(document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D, theme);
  ink.font({ family: theme.code });
  return ink.width("0");
}

// The end of a text that so many letters have room for, from the beginning of a word on; a word that has none is cut.
function cutBefore(text: string, most: number) {
  if (text.length <= most) return text;
  const from = text.length - most + 1,
    space = text.indexOf(" ", from);
  return `…${text.slice(space < 0 ? from : space)}`;
}

// The end of a text, written by the newest tokens. Bytes that complete a character make this character new.
function endOf(said: string, tail: string) {
  if (said.endsWith(tail)) return tail;
  const whole = tail.replace(PARTS, ""),
    before = [...said.slice(0, said.length - whole.length)];
  return (before.at(-1) ?? "") + whole;
}
