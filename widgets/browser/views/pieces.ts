// Parts of the DOM views: keyed children that keep their places, block beads, badges, letters.

import { element as make } from "../look/element.ts";
import { hueOf, roundOf, shapeOf } from "../look/palette.ts";
import type { Violation } from "../model/alarms.ts";
import { contentName, requestName, stateWords } from "../model/names.ts";
import type { Block, Scene } from "../model/scene.ts";
import type { Group } from "../model/scene_state.ts";

const SVG = "http://www.w3.org/2000/svg";

// An item of a list: `signature` names how it looks, and no signature means that it is painted each time.
export interface Keyed {
  key: string | number;
  signature?: string | number | boolean;
}

// A child that `keep` made, with the key and the signature of its item.
interface Kept extends Element {
  keptAs?: string | number;
  signature?: Keyed["signature"];
}

// The key of the item for which a child was made.
export function keyOf(child: Kept): string | number | undefined {
  return child.keptAs;
}

// Keep one child per item, by key and in order. `create` makes an item's element once, `update` writes it where the
// signature is new.
export function keep<Item extends Keyed, Child extends HTMLElement>(
  parent: HTMLElement,
  items: Item[],
  create: (item: Item) => Child,
  update: (child: Child, item: Item, place: number) => void,
) {
  const old = new Map<string | number | undefined, Child & Kept>();
  for (const child of parent.children as Iterable<Child & Kept>) old.set(child.keptAs, child); // `create` made them all
  let at = parent.firstElementChild;
  for (const [place, item] of items.entries()) {
    let child = old.get(item.key);
    old.delete(item.key);
    if (!child) {
      child = create(item);
      child.keptAs = item.key;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    if (child.signature === item.signature && item.signature !== undefined) continue;
    child.signature = item.signature;
    update(child, item, place);
  }
  for (const child of old.values()) child.remove();
}

// A chain's two links, torn apart: the sign of a lost block.
export function cutLink() {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", "0 0 26 12");
  made.setAttribute("class", "le-cut");
  made.setAttribute("aria-label", "lost");
  for (const d of [
    "M9 2.5H5.5a3.5 3.5 0 0 0 0 7H9",
    "M17 2.5h3.5a3.5 3.5 0 0 1 0 7H17",
    "M11.4 3.4 10 .8",
    "M14.6 3.4 16 .8",
    "M11.4 8.6 10 11.2",
    "M14.6 8.6 16 11.2",
  ]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    made.append(path);
  }
  return made;
}

// How a block looks, and a text that changes when the look does.
export interface Look {
  id: number;
  block: Block;
  isDoubled: boolean;
  signature: string;
}

export function lookOf(scene: Scene, id: number): Look {
  const block = scene.block(id);
  const { content, refCount, fill, state, isLost, isHashed, isMapped, isKept, garbage } = block,
    isDoubled = block.groups.length > 1;
  const signature = [id, content, refCount, fill, state, isLost, isHashed, isMapped, isKept, isDoubled, !garbage].join(
    ":",
  );
  return { id, block, isDoubled, signature };
}

// A block as a bead: fill is content, border is life, vermilion hatch is lost. `parts` chooses what stands in it.
export function dressBead(
  target: HTMLElement,
  look: Look,
  { hasLetter = true, hasCount = true }: { hasLetter?: boolean; hasCount?: boolean } = {},
) {
  const { id, block } = look,
    isFull = block.content >= 0;
  target.dataset.block = String(id);
  target.style.setProperty("--hue", isFull ? hueOf(block.content) : "transparent");
  target.style.setProperty(
    "--le-fill",
    isFull || block.state !== null ? "100%" : `${Math.round((100 * (block.fill || 0)) / (block.size || 1))}%`,
  );
  const life = !block.isKept ? "le-is-live" : isFull || block.isHashed ? "le-is-kept" : "le-is-blank";
  target.className =
    `le-bead ${life}${isFull ? " le-is-full" : block.fill || block.state !== null ? " le-is-part" : ""}` +
    `${block.isLost ? " le-is-lost-bead" : ""}${look.isDoubled ? " le-is-doubled" : ""}` +
    `${isFull && roundOf(block.content) ? ` le-round-${roundOf(block.content)}` : ""}`;
  const parts: Element[] = [make("span", "le-bead-id", `#${id}`)];
  if (hasLetter && isFull)
    parts.push(
      make("b", block.isHashed ? "le-bead-letter" : "le-bead-letter le-is-unregistered", contentName(block.content)),
    );
  if (hasCount && block.refCount > 1) parts.push(make("span", "le-bead-count le-fine", `×${block.refCount}`));
  if (look.isDoubled) parts.push(make("span", "le-bead-twofold", "‼"));
  if (block.isLost) parts.push(cutLink());
  target.replaceChildren(...parts);
  target.ariaLabel = sayBlock(look);
}

function sayBlock({ id, block, isDoubled }: Look) {
  const parts = [
    `block ${id}`,
    block.refCount ? `ref count ${block.refCount}` : block.content >= 0 ? "freed, content kept" : "free, empty",
  ];
  if (block.content >= 0) parts.push(`content ${contentName(block.content)}`);
  if (block.state !== null) parts.push(`${stateWords(block.state)} tokens`);
  if (block.isLost) parts.push("lost");
  if (isDoubled) parts.push("in two groups' tables");
  return parts.join(", ");
}

// A long list's beginning and end; between them an item that counts what is left out.
export interface LeftOut extends Keyed {
  more: number;
}

export function middleLeftOut<T>(items: T[], limit: number, headShare = 0.5): (T | LeftOut)[] {
  const more = items.length - limit;
  if (more <= 0) return items;
  const head = Math.max(1, Math.floor(limit * headShare));
  return [
    ...items.slice(0, head),
    { key: "more", signature: `more${more}`, more },
    ...items.slice(items.length - (limit - head)),
  ];
}

export function moreText(number: number, noun = "") {
  return `… and ${number.toLocaleString("en")} more${noun ? ` ${noun}` : ""}`;
}

// A group's rule; of a group that is not there, blocks of one token.
export function groupOf(scene: Pick<Scene, "groups">, group: number): Group {
  return scene.groups[group] ?? { kind: "full", size: 1, window: null };
}

export function isNull(scene: Scene, id: number | null | undefined): boolean {
  return id === undefined || id === null || id < 0 || id === scene.nullBlock;
}

// [[value, how often in a row]].
export function runsOf<T>(values: T[]): [value: T, count: number][] {
  const runs: [T, number][] = [];
  for (const value of values) {
    const last = runs[runs.length - 1];
    if (last && last[0] === value) last[1] += 1;
    else runs.push([value, 1]);
  }
  return runs;
}

// A key to signs; they repeat what the elements themselves say.
export function legendOf(className: string, entries: [sign: Element, words: string, title?: string][]) {
  const keys = entries.map(([sign, words, title]) =>
    make("span", "le-tables-key", title ? { title } : {}, sign, words),
  );
  return make("div", className, { ariaHidden: "true" }, ...keys);
}

// A rule is broken here: a click asks why. said/is: the core's state differs from its events.
export function violated({ event, isSaid, rule }: Violation) {
  const made = make("b", "le-violated", {
    textContent: isSaid ? "said/is" : "!",
    ariaLabel: isSaid ? "the core's state differs from its events: why?" : `the rule ${rule} is broken: why?`,
  });
  Object.assign(made.dataset, { event: String(event), about: "event" });
  return made;
}

// A request: a shape and a letter, never a hue, for hue is content.
export function badge(request: number) {
  const made = make("span", `le-badge le-${shapeOf(request)}`, {}, make("span", "", requestName(request)));
  made.dataset.request = String(request);
  return made;
}
