// The external tier: its known contents, which of them are in the pool as well, pinned or being loaded, and all loads
// and saves.

import { element as make, write as say } from "../../look/element.ts";
import { hueOf } from "../../look/palette.ts";
import { contentName, counted, groupName, requestName } from "../../model/names.ts";
import type { RequestRecord } from "../../model/requests.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes, Traffic } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { MarkedView } from "../marks.ts";
import type { Keyed, LeftOut } from "../pieces.ts";
import { badge, keep, moreText } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt } from "../step_facts.ts";
import type { PaintMoment, ViewHost } from "../view.ts";

export const title = "External tier";

const MAX_HELD = 240;
const MAX_EVENTS = 24;
const MAX_TARGETS = 12;

export function create(stage: ViewHost, side: Side) {
  return new TierView(stage, side);
}

interface HeldItem extends Keyed {
  key: string;
  isInPool: boolean;
  way: string; // "⇣" while it is being loaded; "↓" loaded, "↑" saved in this step
  pins: number;
  content: number;
}

// Blocks that a load is to fill.
interface Loading extends Keyed {
  request: number;
  targets: Target[];
}

interface Target {
  block: number;
  content: number;
  group: number;
}

const WAYS: Record<string, string> = {
  "⇣": "being loaded now",
  "↓": "loaded in this step",
  "↑": "saved in this step",
};

class TierView extends MarkedView {
  summary = make("p", "le-tier-summary le-fine");
  loading = make("div", "le-tier-events");
  held = make("div", "le-tier-held le-wrap");
  events = make("div", "le-tier-events");
  scene!: Scene;
  facts!: StepFacts;
  start!: number;

  constructor(stage: ViewHost, side: Side) {
    super(stage, side, "le-tier-view", "External tier: its contents, loads and saves");
    const key =
      "● also in the pool  ○ only here  ⇣ being loaded  ↓ loaded, ↑ saved in this step  pin: protected from eviction";
    this.element.append(
      this.summary,
      make("p", "le-tier-legend le-fine", key),
      this.held,
      this.loading,
      make("h4", "le-tier-heading", "Loads and saves, newest first"),
      this.events,
    );
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const facts = factsAt(this.side.recording, moment),
      isNewStep = facts.start !== this.start;
    if (!changes.all && !changes.tier && !changes.keys.size && !isNewStep) return;
    this.scene = scene;
    this.facts = facts;
    this.start = facts.start;
    const traffic = scene.traffic;
    const loading = loadsUnderWay(scene);
    this.element.classList.toggle("le-tier-empty", !scene.tier.size && !traffic.length && !loading.length);
    this.paintSummary();
    keep(
      this.held,
      this.heldItems(new Set(loading.flatMap(({ targets }) => targets.map(({ content }) => content)))),
      () => make("span"),
      (cell, item) => {
        if (!("more" in item)) return this.paintHeld(cell, item);
        cell.className = "le-quiet";
        cell.replaceChildren(`… ${item.more.toLocaleString("en")} older`);
      },
    );
    keep(
      this.loading,
      loading,
      () => make("div"),
      (line, load) => this.paintLoading(line, load),
    );
    keep(
      this.events,
      traffic
        .slice(-MAX_EVENTS)
        .reverse()
        .map((transfer) => ({ key: transfer.event, signature: transfer.event > facts.start, transfer })),
      () => make("div"),
      (line, { transfer }) => this.paintEvent(line, transfer),
    );
    this.markAgain();
  }

  paintSummary() {
    const { scene, facts } = this;
    if (!scene.tier.size && !scene.traffic.length)
      return say(this.summary, "Nothing has been saved to an external tier.");
    const parts = [`holds ${counted(scene.tier.size, "block")}`];
    const sum = (isLoad: boolean) =>
      facts.transfers
        .filter((one) => one.isLoad === isLoad)
        .reduce((total, { transfers }) => total + transfers.length, 0);
    if (facts.isStep) parts.push(`this step: ↓ ${sum(true)} loaded, ↑ ${sum(false)} saved`);
    for (const [id, { num, isLoading }] of facts.external)
      parts.push(
        `${requestName(id)} found ${counted(num, "token")} there` +
          `${isLoading && scene.requests.get(id)?.isLoading ? ", loading" : ""}`,
      );
    say(this.summary, parts.join(" · "));
  }

  // In the order in which they came; the newest when there are too many.
  heldItems(loaded: Set<number>): (HeldItem | LeftOut)[] {
    const { scene } = this,
      keys = scene.tier.newest(MAX_HELD).reverse();
    const more = scene.tier.size - keys.length,
      moved = this.movedNow();
    const items = keys.map((key) => {
      const isInPool = scene.map.has(key),
        content = scene.contentOf(key),
        way = content >= 0 && loaded.has(content) ? "⇣" : moved.get(key) || "",
        pins = scene.tier.pins(key);
      return { key, isInPool, way, pins, content, signature: `${isInPool}${way}${pins}:${content}` };
    });
    return more ? [{ key: "more", signature: more, more }, ...items] : items;
  }

  movedNow() {
    const moved = new Map<string, string>();
    for (const { isLoad, transfers } of this.facts.transfers)
      for (const [group, , , hex] of transfers) moved.set(`${group}:${hex}`, isLoad ? "↓" : "↑");
    return moved;
  }

  paintHeld(cell: HTMLElement, { key, isInPool, way, pins, content }: HeldItem) {
    const { scene } = this,
      group = Number(key.slice(0, key.indexOf(":")));
    cell.className = `le-tier-entry${way ? " le-tier-moved" : ""}${pins ? " le-tier-pinned" : ""}`;
    cell.dataset.hash = key;
    cell.dataset.anchor = `tier:${key}`;
    cell.style.setProperty("--hue", content >= 0 ? hueOf(content) : "transparent");
    const name = content >= 0 ? contentName(content) : `${key.slice(key.indexOf(":") + 1).slice(0, 4)}…`;
    cell.replaceChildren(make("b", "", name), make("span", "le-tier-where le-fine", way || (isInPool ? "●" : "○")));
    if (pins) cell.append(make("span", "le-tier-pins", pins > 1 ? `pin ×${pins}` : "pin"));
    cell.ariaLabel =
      `${content >= 0 ? "content" : "hash"} ${name}` +
      `${scene.groups.length > 1 ? ` of the ${groupName(scene.groups, group)} group` : ""}, ` +
      `${isInPool ? "also in the pool" : "nowhere else"}` +
      `${way ? `, ${WAYS[way]}` : ""}${pins ? `, pinned by ${counted(pins, "transfer")}` : ""}`;
  }

  paintLoading(line: HTMLElement, { request, targets }: Loading) {
    line.className = "le-tier-line le-row le-fine le-tier-now";
    line.replaceChildren(make("span", "le-tier-way", "⇣ loading for"), badge(request));
    this.appendTargets(line, targets, "→");
  }

  appendTargets(line: HTMLElement, targets: Target[], way: string) {
    const { groups } = this.scene;
    for (const { block, content, group } of targets.slice(0, MAX_TARGETS)) {
      const name = make("b", "", content >= 0 ? contentName(content) : ""),
        made = make("span", "le-tier-transfer", {}, name, ` ${way} #${block}`);
      made.dataset.block = String(block);
      if (groups.length > 1) made.append(make("small", "", ` ${groupName(groups, group)}`));
      line.append(made);
    }
    if (targets.length > MAX_TARGETS) line.append(make("span", "le-quiet", moreText(targets.length - MAX_TARGETS)));
  }

  paintEvent(line: HTMLElement, { event, request, isLoad, isFailed, transfers }: Traffic) {
    const { scene } = this;
    line.className =
      `le-tier-line le-row le-fine${event >= this.facts.start && this.facts.isStep ? " le-tier-now" : ""}` +
      `${isFailed ? " le-tier-failed" : ""}`;
    line.dataset.event = String(event);
    const words = isFailed ? "✗ load failed: it will be recomputed" : isLoad ? "↓ loaded for" : "↑ saved from";
    line.replaceChildren(make("span", "le-tier-way", words), badge(request));
    const targets = transfers.map(([group, , block, hex]) => {
      return { group, block, content: scene.contentOf(`${group}:${hex}`) };
    });
    this.appendTargets(line, targets, isLoad ? "→" : "←");
  }

  csv() {
    return [
      ["group", "hash", "content", "in the pool", "pins"],
      ...[...(this.scene?.tier.keys() ?? [])].map((key: string) => [
        ...key.split(":"),
        this.scene.contentOf(key) >= 0 ? contentName(this.scene.contentOf(key)) : "",
        this.scene.map.has(key),
        this.scene.tier.pins(key),
      ]),
    ];
  }
}

// The loads that requests wait for, each with the blocks that it is to fill.
function loadsUnderWay(scene: Scene): Loading[] {
  const loads = [];
  for (const request of scene.requests.values()) {
    if (!request.isLoading) continue;
    const targets = scene.groups.flatMap((_, group) => targetsOf(scene, request, group));
    loads.push({ key: request.id, signature: JSON.stringify(targets), request: request.id, targets });
  }
  return loads;
}

// The letter of a block's content is known once the recording has it under a hash.
function targetsOf(scene: Scene, request: RequestRecord, group: number) {
  const { size } = scene.groups[group],
    first = request.hit ?? 0,
    targets = [];
  for (let index = Math.floor(first / size); index < Math.floor((first + request.external) / size); index++) {
    const block = request.tables[group][index];
    if (block === undefined || block < 0 || block === scene.nullBlock) continue;
    const content = scene.contents.prefixes[group]?.get(request.prefixHash(size, index)) ?? -1;
    targets.push({ block, content, group });
  }
  return targets;
}
