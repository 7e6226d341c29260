// A hash of the map as a bead: its content's letter, and the blocks that a look-up is served with.

import { element as make } from "../../look/element.ts";
import { hueOf, roundOf } from "../../look/palette.ts";
import { blockNames, contentName } from "../../model/names.ts";
import { word } from "../../model/phrases.ts";
import type { Scene } from "../../model/scene.ts";
import type { Evicted } from "../../model/scene_state.ts";
import type { Keyed } from "../pieces.ts";
import { cutLink, legendOf } from "../pieces.ts";

const KEYS = [
  ["live", "in use"],
  ["kept", "free, still a hit"],
  ["twice", "twice: ▸ is used first"],
  ["lost", "lost: alive but not found"],
  ["gone", "evicted"],
];

export interface Bead extends Keyed {
  key: string;
  blocks: [block: number, isKept: boolean][];
  numBlocks: number;
  lost: number[];
  evicted: Evicted | undefined;
  isBroken: boolean;
  isComing: boolean;
  depth: number;
  isWide?: boolean;
}

function leaveRoom(bead: HTMLElement, isWide: boolean) {
  bead.className = `le-map-bead le-map-is-coming${isWide ? " le-map-is-wide" : ""}`;
  for (const name of Object.keys(bead.dataset)) delete bead.dataset[name];
  bead.replaceChildren();
  bead.ariaLabel = null;
}

function blockPart(id: number, isKept: boolean, isFirst: boolean) {
  const made = make("span", `le-map-block${isKept ? " le-map-free" : ""}`, `${isFirst ? "▸" : ""}#${id}`);
  made.dataset.block = String(id);
  return made;
}

function lostPart(id: number) {
  const title = `#${id} holds the same content and is in use, but no entry leads to it`,
    made = make("span", "le-map-block le-map-lost-block", { title }, cutLink(), `#${id}`);
  made.dataset.block = String(id);
  return made;
}

function sayBead(name: string, { blocks, numBlocks, lost, evicted, isBroken, depth }: Bead) {
  const parts = [`content ${name}, block ${depth} of its chain`];
  if (numBlocks)
    parts.push(`served with ${blocks.map(([id, isKept]) => `#${id}${isKept ? ", kept unused" : ""}`).join(", then ")}`);
  else parts.push(evicted ? `evicted: ${word("evicted", evicted.reason)}` : "no longer in the map");
  if (lost.length) parts.push(`lost: ${blockNames(lost)}`);
  if (isBroken) parts.push("cannot be reached: the previous hash is not in the map");
  return parts.join("; ");
}

export function legend() {
  return legendOf(
    "le-map-legend le-wrap le-fine",
    KEYS.map(([name, words]) => [name === "lost" ? cutLink() : make("i", `le-map-swatch le-map-is-${name}`), words]),
  );
}

export function paintBead(scene: Scene, bead: HTMLElement, item: Bead) {
  const { key, blocks, numBlocks, lost, evicted, isBroken, isWide, isComing } = item;
  if (isComing) return leaveRoom(bead, isWide ?? false);
  const content = scene.contentOf(key),
    isLive = blocks.some(([, isKept]) => !isKept);
  const life = numBlocks ? (isLive ? "live" : "kept") : "gone";
  bead.className =
    `le-map-bead le-map-is-${life}${numBlocks > 1 ? " le-map-is-twice" : ""}` +
    `${isBroken ? " le-map-is-broken" : ""}${isWide ? " le-map-is-wide" : ""}`;
  bead.dataset.hash = key;
  bead.dataset.anchor = `map:${key}`;
  bead.style.setProperty("--hue", hueOf(content));
  const round = numBlocks && roundOf(content) ? ` le-round-${roundOf(content)}` : "",
    parts: Element[] = [make("b", `le-map-letter${round}`, contentName(content))];
  blocks.forEach(([id, isKept], i) => parts.push(blockPart(id, isKept, numBlocks > 1 && i === 0)));
  if (numBlocks > blocks.length) parts.push(make("span", "le-quiet", `+${numBlocks - blocks.length}`));
  if (!numBlocks) parts.push(make("span", "le-map-sign", evicted && !lost.length ? `✕ #${evicted.block}` : "✕"));
  for (const id of lost) parts.push(lostPart(id));
  bead.replaceChildren(...parts);
  bead.ariaLabel = sayBead(contentName(content), item);
}
