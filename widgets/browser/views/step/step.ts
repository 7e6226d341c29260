// One step's batch: how many tokens each request computes, the slot every one's KV goes to, and the context that
// attention reads.

import { element as make, write as say, targetOf } from "../../look/element.ts";
import { counted, requestName } from "../../model/names.ts";
import type { Scene } from "../../model/scene.ts";
import { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import { MarkedView } from "../marks.ts";
import type { LeftOut } from "../pieces.ts";
import { keep, moreText } from "../pieces.ts";
import type { ScheduledShare, StepFacts } from "../step_facts.ts";
import { factsAt, shadowAt } from "../step_facts.ts";
import type { CsvRow, PaintMoment, ViewHost } from "../view.ts";
import { mappingOf } from "./attention.ts";
import type { RequestElement } from "./elements.ts";
import { legend, makeRequest, paintRequest } from "./elements.ts";
import type { RequestItem, Room } from "./items.ts";
import { requestItem } from "./items.ts";

export const title = "Step";

const MAX_REQUESTS = 64;
const MAX_TOKENS_IN_ALL = 320;
const MAX_BLOCKS_IN_ALL = 320;
const NOTHING = new Changes();

export function create(stage: ViewHost, side: Side) {
  return new Step(stage, side);
}

class Step extends MarkedView {
  queries = new Map<string, number>();
  known = new Map<number, { item: RequestItem; name: string }>();
  summary = make("p", "le-step-summary");
  list = make("div", "le-step-list", { role: "list" });
  scene!: Scene;
  facts!: StepFacts;
  start!: number;
  forward?: number | null;
  before!: Scene;

  constructor(stage: ViewHost, side: Side) {
    super(stage, side, "le-step", "The step's batch: tokens, slots, and what attention reads");
    this.element.append(this.summary, legend(), this.list);
    this.element.addEventListener("click", (event) =>
      this.choose(targetOf(event).closest?.<HTMLElement>("[data-position]")),
    );
    this.element.addEventListener(
      "keydown",
      (event) => event.key === "Enter" && this.choose(this.element.querySelector<HTMLElement>(".le-at[data-position]")),
      true,
    );
  }

  // The query whose context is drawn: the last one, or the one chosen.
  choose(token: HTMLElement | null) {
    const { of, position } = token?.dataset ?? {};
    if (of === undefined) return;
    this.queries.set(of, Number(position));
    this.known.delete(Number(of.split(":")[0]));
    this.draw(NOTHING);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const facts = factsAt(this.side.recording, moment);
    const isNew = changes.all || facts.start !== this.start || facts.forward !== this.forward;
    if (facts.start !== this.start) this.queries.clear();
    if (isNew) this.known.clear();
    else if (facts.forward || (!changes.requests.size && !changes.blocks.size)) return;
    this.scene = scene;
    this.facts = facts;
    this.start = facts.start;
    this.forward = facts.forward;
    this.draw(changes);
  }

  // From the forward pass on, the tables as it had them: what the update merges or frees later was read all the same.
  draw(changes: Pick<Changes, "requests" | "blocks">) {
    const { facts, scene } = this;
    this.before = facts.forward ? shadowAt(this.side.recording, "forward", facts.forward) || scene : scene;
    const ids = [...facts.scheduled.keys()],
      shown = [...facts.scheduled].slice(0, MAX_REQUESTS);
    const most = Math.max(1, ...[...facts.scheduled.values()].map(({ num }) => num));
    this.paintSummary(ids);
    this.element.classList.toggle("le-step-empty", !ids.length);
    const share = {
      tokens: Math.max(4, Math.floor(MAX_TOKENS_IN_ALL / Math.max(1, shown.length))),
      blocks: Math.max(6, Math.floor(MAX_BLOCKS_IN_ALL / Math.max(1, shown.length))),
      most,
    };
    const items: (RequestItem | LeftOut)[] = shown.map(([id, now]) => this.itemOnce(id, now, share, changes));
    if (ids.length > shown.length) items.push({ key: "more", signature: ids.length, more: ids.length - shown.length });
    keep<RequestItem | LeftOut, HTMLElement>(
      this.list,
      items,
      (item) => ("more" in item ? make("p", "le-quiet") : makeRequest(item.id)),
      (child, item) =>
        "more" in item
          ? say(child, moreText(item.more, "requests"))
          : paintRequest(this.before, child as RequestElement, item),
    );
    this.markAgain();
  }

  paintSummary(ids: number[]) {
    const { facts } = this;
    if (!facts.isStep) return say(this.summary, "No step yet.");
    const total = [...facts.scheduled.values()].reduce((sum, { num }) => sum + num, 0);
    const numFaults = facts.slots.reduce(
      (sum, slots) => sum + mappingOf(this.before, slots).filter(({ slot, wanted }) => slot !== wanted).length,
      0,
    );
    const parts = [`Step ${facts.step}: ${counted(ids.length, "request")}, ${counted(total, "token")}`];
    parts.push(
      facts.forward
        ? "KV written"
        : facts.slots.length
          ? "KV is being written"
          : ids.length
            ? "not computed yet"
            : "no request is scheduled yet",
    );
    if (numFaults) parts.push(`✗ ${numFaults} to the wrong slot`);
    if (facts.isRolledBack) parts.push("rolled back");
    this.summary.classList.toggle("le-step-has-faults", numFaults > 0);
    say(this.summary, parts.join(" · "));
  }

  // Worked out again when the request changed, or one of the blocks drawn for it.
  itemOnce(id: number, now: ScheduledShare, share: Room, changes: Pick<Changes, "requests" | "blocks">) {
    const known = this.known.get(id),
      name = JSON.stringify(share);
    const isSame =
      known &&
      known.name === name &&
      !changes.requests.has(id) &&
      !known.item.groups.some(({ blocks }) =>
        blocks.some((one) => "block" in one && one.block !== null && changes.blocks.has(one.block)),
      );
    if (isSame) return known.item;
    const item = requestItem(this, id, now, share);
    this.known.set(id, { item, name });
    return item;
  }

  csv() {
    const rows: CsvRow[] = [["request", "group", "position", "block", "offset", "slot", "wanted"]];
    for (const slots of this.facts?.slots || [])
      for (const { position, block, offset, slot, wanted } of mappingOf(this.before, slots))
        rows.push([requestName(slots.request), slots.group, position, block, offset, slot, wanted]);
    return rows;
  }
}
