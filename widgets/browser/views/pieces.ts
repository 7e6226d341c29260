// What the DOM views are made of: keyed children that keep their places, block beads, badges, letters.
import { element as make } from "../look/element.ts";
import { contentName, hueOf, roundOf } from "../look/palette.ts";

const SVG = "http://www.w3.org/2000/svg";

// Keeps one child per item, by key and in order; update writes only where the item's signature is new.
// An item is {key, signature, ...}; create(item) makes its element once; update(child, item, place).
export function keep(parent, items, create, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.keptAs, child);
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
export function lookOf(scene, id) {
  const block = scene.block(id);
  const groups = block.groups ? block.groups.length : 0;
  const flags = `${block.refCount ? "l" : "f"}${block.isLost ? "x" : ""}${block.isHashed ? "h" : ""}${block.isMapped ? "m" : ""}${groups > 1 ? "2" : ""}`;
  return {
    id,
    block,
    isDoubled: groups > 1,
    signature: `${id}:${block.content}:${block.refCount}:${block.fill}:${flags}`,
  };
}

// A block as a bead: fill is content, border is life, vermilion hatch is lost. `parts` chooses what stands in it.
export function dressBead(target, look, { hasLetter = true, hasCount = true } = {}) {
  const { id, block } = look,
    isFull = block.content >= 0;
  target.dataset.block = id;
  target.style.setProperty("--hue", isFull ? hueOf(block.content) : "transparent");
  target.style.setProperty(
    "--le-fill",
    isFull ? "100%" : `${Math.round((100 * (block.fill || 0)) / (block.size || 1))}%`,
  );
  const life = block.refCount ? "le-is-live" : isFull || block.isHashed ? "le-is-kept" : "le-is-blank";
  target.className = `le-bead ${life}${isFull ? " le-is-full" : block.fill ? " le-is-part" : ""}${block.isLost ? " le-is-lost-bead" : ""}${look.isDoubled ? " le-is-doubled" : ""}${isFull && roundOf(block.content) ? ` le-round-${roundOf(block.content)}` : ""}`;
  const parts = [make("span", "le-bead-id", `#${id}`)];
  if (hasLetter && isFull)
    parts.push(
      make("b", block.isHashed ? "le-bead-letter" : "le-bead-letter le-is-unregistered", contentName(block.content)),
    );
  if (hasCount && block.refCount > 1) parts.push(make("span", "le-bead-count", `×${block.refCount}`));
  if (look.isDoubled) parts.push(make("span", "le-bead-twofold", "‼"));
  if (block.isLost) parts.push(cutLink());
  target.replaceChildren(...parts);
  target.setAttribute("aria-label", sayBlock(look));
}

function sayBlock({ id, block, isDoubled }) {
  const parts = [
    `block ${id}`,
    block.refCount ? `ref count ${block.refCount}` : block.content >= 0 ? "freed, content kept" : "free, empty",
  ];
  if (block.content >= 0) parts.push(`content ${contentName(block.content)}`);
  if (block.isLost) parts.push("lost");
  if (isDoubled) parts.push("in two groups' tables");
  return parts.join(", ");
}

// A long list's beginning and end; between them an item that tells how much is left out.
export function middleLeftOut(items, limit, headShare = 0.5) {
  const more = items.length - limit;
  if (more <= 0) return items;
  const head = Math.max(1, Math.floor(limit * headShare));
  return [
    ...items.slice(0, head),
    { key: "more", signature: `more${more}`, more },
    ...items.slice(items.length - (limit - head)),
  ];
}

export function moreText(number, noun) {
  return `… and ${number.toLocaleString("en")} more${noun ? ` ${noun}` : ""}`;
}

// 'full', 'window'; with a number from 1 where there are several of a kind.
export function groupName(scene, group) {
  const { kind } = groupOf(scene, group),
    alike = scene.groups.map((_, i) => i).filter((i) => groupOf(scene, i).kind === kind);
  return (kind === "sliding_window" ? "window" : kind) + (alike.length > 1 ? ` ${alike.indexOf(group) + 1}` : "");
}

// A group's rule, whether the scene keeps it as the event has it, [kind, size, window], or by name.
export function groupOf(scene, group) {
  const rule = scene.groups[group];
  if (!rule) return { kind: "full", size: 1, window: null };
  return Array.isArray(rule)
    ? { kind: rule[0], size: rule[1], window: rule[2] }
    : { kind: rule.kind, size: rule.size ?? rule.blockSize, window: rule.window ?? null };
}

// Tokens as running text; a model without words has numbers, which need a space between them.
export function joined(texts) {
  return texts.join(texts.length && texts.every((text) => /^\s?\d+$/.test(text)) ? " " : "");
}

export function isNull(scene, id) {
  return id === undefined || id < 0 || id === scene.nullBlock;
}

// Whether a paint may change what stands here: everything, or one of these sets.
export function touches(changes, { blocks, requests, keys, queue, tier }) {
  return Boolean(
    changes.all ||
      (blocks && changes.blocks.size) ||
      (requests && changes.requests.size) ||
      (keys && changes.keys.size) ||
      (queue && changes.queue) ||
      (tier && changes.tier),
  );
}

// [[value, how often in a row]].
export function runsOf(values) {
  const runs = [];
  for (const value of values) {
    const last = runs[runs.length - 1];
    if (last && last[0] === value) last[1] += 1;
    else runs.push([value, 1]);
  }
  return runs;
}
