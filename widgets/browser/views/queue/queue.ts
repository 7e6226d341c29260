// The free queue in order: why each block is in it, whether its content is kept, and which block is evicted next.

import { element as make, write as say } from "../../look/element.ts";
import type { Violation } from "../../model/alarms.ts";
import { alarmsAt, violationOf } from "../../model/alarms.ts";
import { contentName, requestName } from "../../model/names.ts";
import type { Recording } from "../../model/recording.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { About } from "../about.ts";
import { MarkedView } from "../marks.ts";
import type { Keyed, LeftOut, Look } from "../pieces.ts";
import { dressBead, keep, lookOf, violated } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt, shadowAt } from "../step_facts.ts";
import type { PaintMoment, ViewHost } from "../view.ts";
import { VisibleRows } from "../visible_rows.ts";
import type { QueueSeats, Taken } from "./seats.ts";
import { seatsAt } from "./seats.ts";

export const title = "Free queue";

const MAX_HEAD = 64;
const MAX_TAIL = 16;
const PAGE = 16;
const REASONS: Record<string, (name: string) => string> = {
  finished: (name) => `${name} finished`,
  aborted: (name) => `${name} was aborted`,
  preempted: (name) => `${name} was preempted`,
  merged: (name) => `${name}'s copy, merged`,
  window: (name) => `left ${name}'s window`,
};

export function create(stage: ViewHost, side: Side) {
  return new Queue(stage, side);
}

interface SeatItem extends Keyed {
  key: number;
  block?: number;
  taken?: Taken | null;
  rank?: number;
  look?: Look;
  why?: string;
  broken?: Violation | null;
  more?: undefined;
}

type SeatElement = ReturnType<typeof makeSeat>;

class Queue extends MarkedView {
  items: (SeatItem | LeftOut)[] = [];
  summary = make("p", "le-queue-summary le-fine");
  list = make("ol", "le-queue-list");
  visible: VisibleRows;
  revealing!: { isStepEnd: boolean } | null;
  scene!: Scene;
  recording!: Recording;
  facts!: StepFacts;
  base?: number;
  stop?: number;
  isAtRest?: boolean; // a step's end, or the newest moment: empty seats have had their time
  place!: number;
  violations!: Violation[];
  broken?: string;
  wasNext?: HTMLElement;
  revealed?: string;
  next?: HTMLElement;

  constructor(stage: ViewHost, side: Side) {
    super(stage, side, "le-queue-view", "Free queue, the next block to be used first");
    this.element.append(this.summary, this.list);
    this.visible = new VisibleRows(this.element, this.list, () => this.markLate());
  }

  paint(scene: Scene, changes: Changes, { moment, isRunning, isPlaying }: PaintMoment) {
    const { recording } = this.side,
      isAtRest = !isPlaying && (isStepEnd(recording, moment) || moment === recording.end);
    const facts = factsAt(recording, moment),
      isNewStep = facts.base !== this.base || facts.stop !== this.stop;
    const isBrokenAnew = this.takeViolations(moment);
    const isStill =
      !isBrokenAnew &&
      !changes.all &&
      !changes.queue &&
      !changes.blocks.size &&
      !isNewStep &&
      isAtRest === this.isAtRest;
    this.revealing = isRunning ? null : { isStepEnd: isStepEnd(recording, moment) };
    if (isStill) return;
    this.isAtRest = isAtRest;
    this.scene = scene;
    this.recording = recording;
    this.facts = facts;
    this.base = facts.base;
    this.stop = facts.stop;
    const begun = shadowAt(recording, "start", facts.base);
    if (!begun) return;
    const numKnown = recording.takenBy === null ? MAX_HEAD + MAX_TAIL : scene.numBlocks; // any may be taken
    const seating = seatsAt(recording, begun, { from: facts.base, moment, to: facts.stop }, numKnown);
    this.paintSummary();
    const items = (this.items = this.itemsOf(seating).filter((item) => !isAtRest || "more" in item || isQueued(item)));
    if (this.side.isNextHidden) this.next = undefined;
    this.place = items.findIndex((item) => "rank" in item && item.rank === 1);
    this.visible.expect(isRunning ? items.length : 0); // at rest all seats are there to be read
    keep<SeatItem | LeftOut, HTMLElement>(
      this.list,
      items,
      (item) => (item.more ? make("li", "le-queue-more le-quiet") : makeSeat()),
      (child, item, place) =>
        item.more
          ? say(child, `… ${item.more.toLocaleString("en")} more …`)
          : this.visible.paint(child, () => this.paintSeat(child as SeatElement, item as SeatItem), place),
    );
    this.visible.settle();
    this.markAgain();
  }

  // Finds the places where the core's queue differs from the events; returns true if these have changed.
  takeViolations(moment: number) {
    this.violations = alarmsAt(this.side.recording, moment).violations.filter(({ isSaid }) => isSaid);
    const before = this.broken;
    this.broken = this.violations.map(({ event }) => event).join();
    return this.broken !== (before ?? "");
  }

  // When all views are painted, and measuring costs no more than the layout that is due anyway.
  settle() {
    if (this.revealing) this.reveal(this.revealing.isStepEnd);
    this.revealing = null;
  }

  // In a panel too low for all the seats the next one stays in sight; between steps it stands on top, with the line
  // after it.
  reveal(isStepEnd: boolean) {
    const { element, next, summary, place } = this,
      revealed = `${place} ${isStepEnd}`;
    if (!next || (next === this.wasNext && revealed === this.revealed)) return;
    this.wasNext = next;
    this.revealed = revealed;
    if (isStepEnd || !isSeen(element, summary, next))
      element.scrollTop = Math.max(
        0,
        next.offsetTop - (isStepEnd ? 0 : next.offsetHeight + 4) - summary.offsetHeight - 4,
      );
  }

  paintSummary() {
    const { scene } = this,
      next = scene.queue.first(1)[0];
    this.element.classList.toggle("le-queue-is-empty", next === undefined);
    const isOther = this.violations.some(({ fact: [about] }) => about === "queue" || about === "order");
    const differs = isOther ? " · the core's queue differs" : "";
    const none = "No block is free: a request that needs one must wait or preempt another.";
    if (next === undefined) return say(this.summary, none + differs);
    const free = `${scene.queue.size.toLocaleString("en")} free`;
    if (this.side.isNextHidden) return say(this.summary, `${free}, in order${differs}`);
    const { content, isHashed } = scene.block(next);
    const { headWord } = this.side,
      keeps = content >= 0 && isHashed,
      fate = keeps ? `${headWord === "next" ? "evicts" : "holds"} ${contentName(content)}` : "holds nothing";
    const { takenBy } = this.recording,
      chosen = takenBy === null ? "" : ` · ${takenBy} decides which is taken`;
    say(this.summary, `${free} · ${headWord} #${next}: ${fate}${chosen}${differs}`);
  }

  // Up to a page before the head and beyond it, and the tail's end; all of a short queue.
  itemsOf(seating: QueueSeats): (SeatItem | LeftOut)[] {
    const { low, high, head } = seating,
      seats: (SeatItem | LeftOut)[] = [];
    const isAll = high - low < MAX_HEAD + MAX_TAIL;
    const first = isAll ? low : Math.max(low, low + PAGE * Math.floor((head - low - PAGE / 2) / PAGE));
    const last = isAll ? high : Math.min(high, first + MAX_HEAD - 1),
      tail = isAll ? high + 1 : Math.max(last + 1, high - MAX_TAIL + 1);
    let rank = 0;
    for (let seat = first; seat <= last; seat++) {
      const isRanked = seat >= head && seating.seats.get(seat)?.taken === null && !this.side.isNextHidden;
      seats.push(this.item(seat, seating, isRanked ? ++rank : 0));
    }
    const ends = this.tailItems(tail, seating),
      more = seating.size - [...seats, ...ends].filter(isFree).length;
    return more ? [...seats, { key: "more", signature: more, more }, ...ends] : [...seats, ...ends];
  }

  // Seats far from the head may not be known by name: the queue's own end is. Blocks can be taken there, too.
  tailItems(tail: number, seating: QueueSeats) {
    const ids = tail <= seating.high ? this.scene.queue.first() : [],
      items: SeatItem[] = [];
    for (let seat = seating.high; seat >= tail; seat--) {
      const isTaken = Boolean(seating.seats.get(seat)?.taken);
      items.unshift(this.item(seat, seating, isTaken ? 0 : ids.length, isTaken ? undefined : ids.pop()));
    }
    return items;
  }

  item(seat: number, { seats }: QueueSeats, rank: number, known?: number): SeatItem {
    const { block = known, taken = null } = seats.get(seat) ?? {};
    if (block === undefined) return { key: seat, signature: "empty" };
    const look = lookOf(this.scene, block),
      why = taken ? `${taken.how} ${requestName(taken.request)}` : this.reason(block, look);
    const broken = violationOf(this.violations, { block });
    const shownRank = rank === 1 ? this.side.headWord : rank,
      signature = [block, taken?.event, shownRank, taken ? 0 : look.signature, why, broken?.event].join();
    return { key: seat, signature, block, taken, rank, look, why, broken };
  }

  reason(block: number, { block: { content, isHashed } }: Look) {
    const { recording, scene } = this,
      freed = scene.freedAt[block] ?? -1; // an event may name a block that is not there
    if (freed < 0) return content >= 0 || isHashed || recording.start > 0 ? "already free" : "never used";
    if (freed < recording.start) return "freed earlier";
    if (recording.kind(freed) === "NodeEvicted") return `evicted from node ${recording.field(freed, "node_id")}`;
    const words = REASONS[recording.field(freed, "reason") ?? ""];
    return words ? words(requestName(recording.field(freed, "request_id") ?? 0)) : "freed";
  }

  paintSeat(child: SeatElement, { block, taken, rank, look, why = "", broken }: SeatItem) {
    const isHead = rank === 1,
      { headWord } = this.side;
    if (isHead) this.next = child;
    child.className = `le-queue-seat le-row${isHead ? " le-queue-is-next" : ""}${taken ? " le-queue-is-taken" : ""}`;
    delete child.dataset.block;
    delete child.dataset.anchor;
    child.sign.replaceChildren(...(broken ? [violated(broken)] : []));
    say(child.tag, isHead ? headWord : rank || "");
    if (block === undefined || !look) {
      child.bead.className = "le-queue-none";
      child.bead.replaceChildren();
      return say(child.why, "");
    }
    child.dataset.anchor = `queue:${block}`;
    child.dataset.block = String(block);
    if (taken) {
      child.bead.className = "le-queue-gone le-fine";
      child.bead.replaceChildren(make("s", "", `#${block}`));
    } else dressBead(child.bead, look);
    delete child.bead.dataset.block;
    say(child.why, why);
    child.ariaLabel =
      `${isHead ? `${headWord}: ` : ""}block ${block}, ${why}` +
      `${!taken && look.block.content >= 0 ? `, content ${contentName(look.block.content)} kept` : ""}`;
  }

  override covered() {
    return this.summary.offsetHeight;
  }

  // The seat of a block, painted or not.
  override rowOf({ block }: About) {
    const at = this.items.findIndex((item) => "block" in item && item.block !== undefined && block.has(item.block));
    return at < 0 ? null : this.list.children[at];
  }

  csv() {
    if (!this.scene) return [];
    return [
      ["place", "block", "why", "content"],
      ...this.scene.queue.first(this.scene.queue.size).map((id, i) => {
        const look = lookOf(this.scene, id);
        return [i + 1, id, this.reason(id, look), look.block.content >= 0 ? contentName(look.block.content) : ""];
      }),
    ];
  }

  override destroy() {
    this.visible.close();
    super.destroy();
  }
}

// A seat that a broken rule is about stays, too.
function isQueued(item: SeatItem) {
  return isFree(item) || Boolean(item.broken);
}

function isFree(item: SeatItem | LeftOut) {
  return !("more" in item) && item.block !== undefined && !item.taken;
}

function isStepEnd(recording: Recording, moment: number) {
  const step = recording.stepAt(moment);
  return step !== null && step.end !== null && moment >= step.end;
}

function isSeen(element: HTMLElement, summary: HTMLElement, seat: HTMLElement) {
  const top = seat.offsetTop - element.scrollTop;
  return top >= summary.offsetHeight && top + seat.offsetHeight <= element.clientHeight;
}

function makeSeat() {
  const parts = {
    tag: make("span", "le-queue-tag"),
    bead: make("span"),
    sign: make("span", "le-queue-sign"),
    why: make("span", "le-queue-why le-fine"),
  };
  return Object.assign(make("li", "le-queue-seat le-row", {}, ...Object.values(parts)), parts);
}
