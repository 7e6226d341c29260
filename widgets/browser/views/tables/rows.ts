// The rows of the block tables: which requests have one, which are unfolded, and the elements of a row.

import { element as make, put } from "../../look/element.ts";
import type { Recording } from "../../model/recording.ts";
import type { RequestRecord } from "../../model/requests.ts";
import type { Scene } from "../../model/scene.ts";
import type { StepFacts } from "../step_facts.ts";
import type { ViewHost } from "../view.ts";
import { makeHead } from "./head.ts";
import { makeSaid } from "./said.ts";

const MAX_OPEN = 64;

const MAX_ENDED = 6;

export type TableRowElement = ReturnType<typeof makeRow>;

export type TableGroupElement = ReturnType<typeof makeGroup>;

// Before this step. One that this side does not have is not in its way.
export function hasEnded({ scene, facts }: { scene: Scene; facts: StepFacts }, id: number) {
  const request = scene.requests.get(id);
  return !request || hasFinished(request, facts);
}

// Finished before this step, and no connector reads or writes its blocks any more.
function hasFinished(request: RequestRecord, facts: StepFacts) {
  return request.status === "finished" && !request.isHolding && !facts.finished.has(request.id);
}

// The oldest waiting or running requests, and the last ones that ended.
export function shownRequests(scene: Scene, facts: StepFacts) {
  const open: number[] = [],
    ended: number[] = []; // requests that ended before this step come last, a line each
  for (const [id, request] of scene.requests) (hasFinished(request, facts) ? ended : open).push(id);
  const byId = (a: number, b: number) => a - b,
    shown = [...open.slice(0, MAX_OPEN).sort(byId), ...ended.slice(-MAX_ENDED).sort(byId)];
  return { shown, numHidden: Math.max(0, open.length - MAX_OPEN) };
}

// The place in the waiting queue of each request that stands in it, from 0 on; null where no priorities are in use.
export function queuePlaces(scene: Scene) {
  const line: RequestRecord[] = [];
  let areInUse = false;
  for (const request of scene.requests.values()) {
    areInUse ||= request.priority !== 0;
    const leader = request.leader === null ? undefined : scene.requests.get(request.leader);
    if (isQueued(request) && (!leader || leader.status === "finished")) line.push(request);
  }
  if (!areInUse) return null;
  line.sort((a, b) => a.priority - b.priority || a.id - b.id);
  return new Map(line.map(({ id }, place) => [id, place]));
}

function isQueued({ status, isLoading }: RequestRecord) {
  return (status === "waiting" && !isLoading) || status === "preempted";
}

export function makeRow(id: number, fold: HTMLButtonElement) {
  const parts = {
    fold,
    head: makeHead(id),
    said: makeSaid(),
    strip: make("div", "le-tables-strip"),
    body: make("div", "le-tables-body"),
    brief: make("div", "le-tables-brief"),
  };
  return Object.assign(make("article", "le-tables-row", { role: "listitem" }, ...Object.values(parts)), parts);
}

export function makeGroup() {
  const parts = { label: make("h4", "le-tables-label"), cells: make("div", "le-tables-cells le-wrap") };
  return Object.assign(make("section", "le-tables-group", {}, ...Object.values(parts)), parts);
}

const choices = new WeakMap<ViewHost, Map<number, boolean>>();

export class Folding {
  byHand = choices.get(this.stage) ?? new Map();

  constructor(readonly stage: ViewHost) {
    choices.set(stage, this.byHand);
  }

  // isOpen: where the reader has not chosen.
  isUnfolded(id: number, isOpen: boolean) {
    return this.byHand.get(id) ?? isOpen;
  }

  // A small button that turns a request's row.
  toggle(id: number) {
    const made = make("button", "le-tables-fold", { type: "button" });
    made.addEventListener("click", () => this.set(id, made.ariaExpanded !== "true"));
    return made;
  }

  set(id: number, isUnfolded: boolean) {
    this.byHand.set(id, isUnfolded);
    this.stage.repaint();
  }

  paint(made: HTMLElement, isUnfolded: boolean) {
    const words = isUnfolded ? "fold to one row of blocks" : "unfold: the slots of every block, and their tokens";
    put(made, "textContent", isUnfolded ? "▾" : "▸");
    put(made, "title", words);
    made.ariaExpanded = String(isUnfolded);
    made.ariaLabel = words;
  }
}

// Is this a story about slots? It says so, or a token's keys and values went to another slot than the tables say.

const known = new WeakSet<Recording>(); // once is enough: slots must not come and go with every moment

export function isAboutSlots({ sides, track }: ViewHost) {
  if (track.isAboutSlots) return true;
  for (const { scene, recording } of sides) if (scene?.strays.size) known.add(recording);
  return sides.some(({ recording }) => recording && known.has(recording));
}
