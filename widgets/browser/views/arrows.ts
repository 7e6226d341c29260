// The keyboard inside a view: one Tab stop, arrows move between elements, Enter or Space selects.

import { takeKey, targetOf } from "../look/element.ts";
import type { Selection } from "../model/payloads.ts";
import type { ViewHost } from "./view.ts";

export const THINGS = "[data-block], [data-request], [data-hash], [data-event]";
const ASIDE = 2000;
const WAYS: Record<string, [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

export function arrows(element: HTMLElement, stage: ViewHost) {
  element.tabIndex = 0;
  let current: HTMLElement | null = null;
  const isHere = (thing: HTMLElement | null): thing is HTMLElement => thing !== null && element.contains(thing);
  const go = (thing: HTMLElement | null) => {
    if (isHere(current)) current.classList.remove("le-at");
    current = thing;
    if (!thing) return;
    thing.classList.add("le-at");
    thing.scrollIntoView({ block: "nearest", inline: "nearest" });
    element.setAttribute("aria-activedescendant", (thing.id ||= `le-at-${Math.random().toString(36).slice(2)}`));
  };
  element.addEventListener("keydown", (event) => {
    const here = isHere(current) ? current : null,
      first = () => element.querySelector<HTMLElement>(THINGS),
      acts: Record<string, () => void> = {};
    for (const [key, way] of Object.entries(WAYS))
      acts[key] = () => go(here ? neighbour(element, here, way) || here : first());
    if (here) acts.Escape = () => go(null);
    if (here && targetOf(event) === element) acts.Enter = acts[" "] = () => stage.select(subjectOf(here));
    takeKey(event, acts);
  });
  element.addEventListener("blur", () => isHere(current) && current.classList.remove("le-at"));
  element.addEventListener("focus", () => isHere(current) && current.classList.add("le-at"));
}

// The innermost subject of an element.
function subjectOf(thing: HTMLElement): Selection {
  const { dataset } = thing;
  if (dataset.block !== undefined) return { kind: "block", id: Number(dataset.block) };
  if (dataset.hash !== undefined) return { kind: "hash", id: dataset.hash };
  if (dataset.event !== undefined) return { kind: "event", id: Number(dataset.event) };
  return { kind: "request", id: Number(dataset.request) };
}

// The nearest thing in a direction: rather one that lies straight ahead; among equals, one that begins where it begins.
function neighbour(element: HTMLElement, from: HTMLElement, [x, y]: [number, number]) {
  const at = from.getBoundingClientRect();
  let nearest: HTMLElement | null = null,
    least = Infinity;
  for (const thing of element.querySelectorAll<HTMLElement>(THINGS)) {
    if (thing === from || isRepeated(thing) || !thing.getClientRects().length) continue;
    const to = thing.getBoundingClientRect(),
      along = x ? (middle(to, "x") - middle(at, "x")) * x : (middle(to, "y") - middle(at, "y")) * y;
    if (along < 4) continue;
    const aside = x ? gap(at.top, at.bottom, to.top, to.bottom) : gap(at.left, at.right, to.left, to.right);
    const cost = along + 3 * aside + (aside > 0 ? ASIDE : 0) + 0.01 * Math.abs(x ? to.top - at.top : to.left - at.left);
    if (cost < least) [nearest, least] = [thing, cost];
  }
  return nearest;
}

// A badge in a heading that stands for the same request.
function isRepeated({ dataset, parentElement }: HTMLElement) {
  return (
    dataset.request !== undefined &&
    parentElement?.closest<HTMLElement>("[data-request]")?.dataset.request === dataset.request
  );
}

function middle(rect: DOMRect, axis: "x" | "y") {
  return axis === "x" ? rect.left + rect.width / 2 : rect.top + rect.height / 2;
}

function gap(start: number, end: number, otherStart: number, otherEnd: number) {
  return Math.max(0, otherStart - end, start - otherEnd);
}
