// The texts of the requests, word by word, above a pool in plain terms: words in a block are marked as they are there.

import { element, write } from "../look/element.ts";
import { hueOf } from "../look/palette.ts";
import { plainWord } from "../model/plain_words.ts";
import type { RequestRecord } from "../model/requests.ts";
import type { Scene } from "../model/scene.ts";
import { badge, keep } from "../views/pieces.ts";
import type { Stage } from "./stage.ts";

const MAX_TEXTS = 4;
const MAX_WORDS = 40;

interface Word {
  key: number;
  signature: string;
  text: string;
  block: number; // -1: it is in none
  hue: string;
}

export class Texts {
  element = element("div", "le-texts");

  constructor(readonly stage: Stage) {}

  // The newest texts still in progress, and older ones if there is room.
  paint() {
    const { scene } = this.stage.sides[0],
      all = [...scene.requests.values()].sort((a, b) => Number(isOver(a)) - Number(isOver(b)) || b.id - a.id),
      shown = all.slice(0, MAX_TEXTS).sort((a, b) => a.id - b.id);
    keep(
      this.element,
      shown.map((request) => ({ key: request.id, request })),
      ({ request }) => makeRow(request.id),
      (row, { request }) => keep(row.words, this.wordsOf(scene, request), makeWord, writeWord),
    );
  }

  wordsOf(scene: Scene, request: RequestRecord): Word[] {
    const { size } = scene.groups[0],
      tokens = request.tokensBetween(0, MAX_WORDS),
      [table] = request.tables;
    return tokens.map((token, position) => {
      const block = position < request.written[0] ? (table[Math.floor(position / size)] ?? -1) : -1,
        content = block < 0 ? -1 : scene.content(block),
        text = plainWord(this.stage.sides[0].text(token), token),
        hue = content < 0 ? "transparent" : hueOf(content);
      return { key: position, signature: `${text} ${block} ${hue}`, text, block, hue };
    });
  }
}

function isOver({ status }: RequestRecord) {
  return status === "finished";
}

function makeRow(id: number) {
  const words = element("span", "le-texts-words le-wrap");
  return Object.assign(element("div", "le-texts-row", {}, badge(id), words), { words });
}

function makeWord() {
  return element("span", "le-texts-word");
}

function writeWord(made: HTMLElement, { text, block, hue }: Word) {
  write(made, text.trim() || "␣");
  made.classList.toggle("le-is-written", block >= 0);
  made.style.setProperty("--hue", hue);
  if (block < 0) delete made.dataset.block;
  else made.dataset.block = String(block);
}
