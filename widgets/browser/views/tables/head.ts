// The first line of a request in the block tables, and its tokens as one bar.

import { element as make, put, write as say } from "../../look/element.ts";
import type { Violation } from "../../model/alarms.ts";
import { violationOf } from "../../model/alarms.ts";
import { beamName, requestName, shortId } from "../../model/names.ts";
import { word } from "../../model/phrases.ts";
import type { RequestRecord } from "../../model/requests.ts";
import type { Scene } from "../../model/scene.ts";
import { badge, violated } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import type { TablesView } from "./places.ts";
import type { BarElement } from "./token_states.ts";
import { fillBar, numWritten, STATES, stateOf } from "./token_states.ts";

const SIGNS: Record<string, string> = { running: "▶", waiting: "…", preempted: "↺", finished: "✓" };

// The sign of a broken rule, and the event that reported it.
type BrokenSign = HTMLElement & { event?: number };
export type HeadElement = ReturnType<typeof makeHead>;

// How many of a request's tokens have keys and values, by where they come from.
interface Progress {
  total: number;
  found: number;
  external: number;
  computed: number;
  isLoading: boolean;
  isFinished: boolean;
}

export function makeHead(id: number) {
  const parts = {
    name: make("span", "le-tables-name le-clip"),
    beam: make("span", "le-tables-beam"),
    status: make("b", "le-tables-status"),
    doing: make("span", "le-tables-doing"),
    facts: make("span", "le-tables-facts le-clip"),
    broken: make("span") as BrokenSign,
  };
  const head = Object.assign(make("header", "le-tables-head le-row", {}, badge(id), ...Object.values(parts)), parts);
  head.dataset.request = String(id);
  return head;
}

// The request's status, its share of this step, and its progress.
export function paintHead(head: HeadElement, view: TablesView, id: number) {
  const { side, scene, facts, violations } = view;
  const engineId = side.engineId(id);
  say(head.name, shortId(engineId));
  put(head.name, "title", engineId);
  paintBroken(head.broken, violationOf(violations, { request: id }));
  const request = scene.request(id),
    { firstBeam } = request,
    now = facts.scheduled.get(id),
    written = numWritten(request, facts, id);
  say(head.beam, firstBeam === null ? "" : `beam ${beamName(id, firstBeam)}`);
  put(head.beam, "title", firstBeam === null ? "" : `beam ${id - firstBeam + 1} of ${requestName(firstBeam)}'s search`);
  const status = facts.preempted.has(id) ? "preempted" : request.status;
  say(head.status, `${SIGNS[status] || ""} ${status}${request.isHolding ? ", holds its blocks" : ""}`);
  head.status.title =
    request.status === "finished" && request.finishReason ? word("finished", request.finishReason) : "";
  const isOver = request.status === "finished" && !request.isHolding,
    doing = now && !isOver ? now : null;
  say(head.doing, doing ? (doing.isPrefill ? `prefill ${doing.num}` : `decode ${doing.num}`) : "");
  head.doing.title = doing?.numDrafts ? `its newest token and ${doing.numDrafts} guessed` : "";
  head.doing.classList.toggle("le-tables-is-doing", Boolean(doing));
  head.parentElement?.classList.toggle("le-is-over", isOver);
  const external = request.external,
    counts = countsOf(request, written, external),
    again = request.numPreempted;
  const judged = request.numJudged ? `${request.numAccepted}/${request.numJudged} accepted` : "";
  const place = view.queuePlaces?.get(id),
    queued = place === undefined ? "" : place ? ` (${ordinal(place + 1)} in the queue)` : " (next in the queue)",
    priority = view.queuePlaces ? `priority ${request.priority}${queued}` : "";
  const line = [priority, progress(counts), judged, again && `↺${again}×`].filter(Boolean);
  say(head.facts, line.join(" · "));
  head.classList.toggle("le-tables-many-facts", line.length > 1 || firstBeam !== null);
  put(
    head.facts,
    "title",
    progressInFull(counts) +
      (priority ? `; priority ${request.priority}: smaller is more urgent` : "") +
      (judged ? `; ${request.numAccepted} of ${request.numJudged} guesses accepted` : "") +
      (again ? `; preempted ${again === 1 ? "once" : `${again} times`}` : ""),
  );
}

// "2nd", "11th".
function ordinal(number: number) {
  const ending = number % 100 > 10 && number % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][number % 10] ?? "th");
  return `${number}${ending}`;
}

// A violation that names the request and no block.
function paintBroken(target: BrokenSign, broken: Violation | null) {
  if (target.event === broken?.event) return;
  target.event = broken?.event;
  target.replaceChildren(...(broken ? [violated(broken)] : []));
}

function countsOf(request: RequestRecord, written: number, external: number): Progress {
  const found = request.hit ?? 0;
  return {
    total: Math.max(request.tokens.length, written), // an accepted guess has KV before it is among the tokens
    found,
    external,
    computed: Math.max(0, written - found - request.external),
    isLoading: request.isLoading,
    isFinished: request.status === "finished",
  };
}

// How many of its tokens have keys and values, and where they come from: short, for these numbers are compared, and
// must not be cut.
function progress({ total, found, external, computed, isLoading, isFinished }: Progress) {
  if (isFinished) return `${total} tokens`;
  const kept = [found && `${found} cached`, external && `${external} ${isLoading ? "loading" : "loaded"}`].filter(
    Boolean,
  );
  if (!kept.length) return `${computed} of ${total} computed`;
  return `${[...kept, ...(computed ? [`${computed} new`] : [])].join(" + ")} of ${total}`;
}

function progressInFull({ total, found, external, computed, isLoading }: Progress) {
  const parts = [
    found && `${found} found in the cache`,
    external && `${external} ${isLoading ? "being loaded" : "loaded"} from the external tier`,
    `${computed} computed`,
  ].filter(Boolean);
  return `of ${total} tokens: ${parts.join(", ")}`;
}

// All of a request's tokens as one bar.
export function paintStrip(strip: BarElement, scene: Scene, facts: StepFacts, id: number) {
  const request = scene.request(id),
    stateAt = stateOf(request, facts, id, 0),
    total = request.tokens.length;
  const marks = new Set([0, request.hit ?? 0, (request.hit ?? 0) + request.external, request.numComputed, total]);
  const now = facts.scheduled.get(id);
  if (now) marks.add(now.start).add(now.start + now.num);
  const edges = [...marks].filter((at) => at >= 0 && at <= total).sort((a, b) => a - b);
  const runs = edges.slice(1).map((end, i): [string, number] => [stateAt(edges[i]), end - edges[i]]);
  fillBar(strip, runs, Math.max(1, total));
  strip.title = runs.map(([state, length]) => `${length} ${STATES.find(([name]) => name === state)?.[1]}`).join(", ");
}
