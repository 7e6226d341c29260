// The external tier: what it is known to hold, which of it the pool could serve as well, and what goes back and forth.

import { element as make, write as say } from "../../look/element.ts";
import { hueOf } from "../../look/palette.ts";
import { contentName, counted, groupName, requestName } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes, Traffic } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { arrows } from "../arrows.ts";
import { Marks } from "../marks.ts";
import type { Keyed, LeftOut } from "../pieces.ts";
import { badge, keep } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt } from "../step_facts.ts";
import type { PaintMoment, ViewHost } from "../view.ts";

export const title = "External tier";

const MAX_HELD = 240;
const MAX_EVENTS = 24;

export function create(stage: ViewHost, side: Side) {
  return new TierView(stage, side);
}

interface HeldItem extends Keyed {
  key: string;
  isInPool: boolean;
  way: string;
  content: number;
}

class TierView {
  stage: ViewHost;
  side: Side;
  element = make("div", "le-tier-view");
  summary = make("p", "le-tier-summary");
  held = make("div", "le-tier-held");
  events = make("div", "le-tier-events");
  marks: Marks;
  scene!: Scene;
  facts!: StepFacts;
  start!: number;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "External tier: what it holds, and what was loaded and saved");
    this.element.append(
      this.summary,
      make("p", "le-tier-legend", "● in the pool as well  ○ only here  ↓ loaded, ↑ saved in this step"),
      this.held,
      make("h4", "le-tier-heading", "Back and forth, the newest first"),
      this.events,
    );
    this.marks = new Marks(stage, side, this.element);
    arrows(this.element, stage);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const facts = factsAt(this.side.recording, moment),
      isNewStep = facts.start !== this.start;
    if (!changes.all && !changes.tier && !changes.keys.size && !isNewStep) return;
    this.scene = scene;
    this.facts = facts;
    this.start = facts.start;
    const traffic = scene.traffic;
    this.element.classList.toggle("le-tier-empty", !scene.tier.size && !traffic.length);
    this.paintSummary();
    keep(
      this.held,
      this.heldItems(),
      () => make("span"),
      (cell, item) => {
        if (!("more" in item)) return this.paintHeld(cell, item);
        cell.className = "le-quiet";
        cell.replaceChildren(`… ${item.more.toLocaleString("en")} older`);
      },
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
    this.marks.again();
  }

  paintSummary() {
    const { scene, facts } = this;
    if (!scene.tier.size) return say(this.summary, "Nothing has been saved to an external tier.");
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
  heldItems(): (HeldItem | LeftOut)[] {
    const { scene } = this,
      keys = scene.tier.newest(MAX_HELD).reverse();
    const more = scene.tier.size - keys.length,
      moved = this.movedNow();
    const items = keys.map((key) => {
      const isInPool = scene.map.has(key),
        way = moved.get(key) || "";
      return {
        key,
        isInPool,
        way,
        content: scene.contentOf(key),
        signature: `${isInPool}${way}${scene.contentOf(key)}`,
      };
    });
    return more ? [{ key: "more", signature: more, more }, ...items] : items;
  }

  movedNow() {
    const moved = new Map<string, string>();
    for (const { isLoad, transfers } of this.facts.transfers)
      for (const [group, , , hex] of transfers) moved.set(`${group}:${hex}`, isLoad ? "↓" : "↑");
    return moved;
  }

  paintHeld(cell: HTMLElement, { key, isInPool, way, content }: HeldItem) {
    const { scene } = this,
      group = Number(key.slice(0, key.indexOf(":")));
    cell.className = `le-tier-entry${isInPool ? " le-tier-in-pool" : ""}${way ? " le-tier-moved" : ""}`;
    cell.dataset.hash = key;
    cell.dataset.anchor = `tier:${key}`;
    cell.style.setProperty("--hue", hueOf(content));
    cell.replaceChildren(
      make("b", "", contentName(content)),
      make("span", "le-tier-where", way || (isInPool ? "●" : "○")),
    );
    cell.setAttribute(
      "aria-label",
      `content ${contentName(content)}` +
        `${scene.groups.length > 1 ? ` of the ${groupName(scene.groups, group)} group` : ""}, ` +
        `${isInPool ? "in the pool as well" : "nowhere else"}` +
        `${way ? `, ${way === "↓" ? "loaded" : "saved"} in this step` : ""}`,
    );
  }

  paintEvent(line: HTMLElement, { event, request, isLoad, isFailed, transfers }: Traffic) {
    const { scene } = this;
    line.className =
      `le-tier-line${event >= this.facts.start && this.facts.isStep ? " le-tier-now" : ""}` +
      `${isFailed ? " le-tier-failed" : ""}`;
    line.dataset.event = String(event);
    const words = isFailed ? "✗ load failed: it will be recomputed" : isLoad ? "↓ loaded for" : "↑ saved of";
    line.replaceChildren(make("span", "le-tier-way", words), badge(request));
    transfers.slice(0, 12).forEach(([group, , block, hex]) => {
      const content = scene.contentOf(`${group}:${hex}`),
        made = make("span", "le-tier-transfer");
      made.dataset.block = String(block);
      made.append(make("b", "", contentName(content)), isLoad ? ` → #${block}` : ` ← #${block}`);
      if (scene.groups.length > 1) made.append(make("small", "", ` ${groupName(scene.groups, group)}`));
      line.append(made);
    });
    if (transfers.length > 12) line.append(make("span", "le-quiet", `… and ${transfers.length - 12} more`));
  }

  mark(selection: Selection | null) {
    this.marks.mark(selection);
  }

  csv() {
    return [
      ["group", "hash", "content", "in the pool"],
      ...[...(this.scene?.tier.keys() ?? [])].map((key: string) => [
        ...key.split(":"),
        contentName(this.scene.contentOf(key)),
        this.scene.map.has(key),
      ]),
    ];
  }

  destroy() {
    this.element.remove();
  }
}
