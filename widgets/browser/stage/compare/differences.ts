// Marks the differences between the two sides in both columns: table entries, map entries, numbers. (The pools mark
// differences from their reference, the other side's scene.) Equal blocks under other ids do not differ, because any
// free block will do for a request; in the queue they do.

import type { Scene } from "../../model/scene.ts";
import type { Side } from "../../model/side.ts";

// A side's column, as far as differences are marked in it.
interface MarkedColumn {
  element: HTMLElement;
  head: HTMLElement;
  queue: HTMLElement;
}

const MAX_ANCHORS = 400;
const MAX_QUEUED = 64;

export function markDifferences({ sides }: { sides: Side[] }, columns: MarkedColumn[]) {
  const scenes = sides.map(({ scene }) => scene);
  for (const { element } of columns) markPlaces(element, scenes);
  markNumbers(columns);
  markQueues(columns, scenes);
}

// By what the scenes hold, for in a narrow cell one side is not painted.
function markPlaces(column: HTMLElement, scenes: Scene[]) {
  const anchors = column.querySelectorAll<HTMLElement>('[data-anchor^="row:"], [data-anchor^="map:"]'),
    isTooMuch = anchors.length > MAX_ANCHORS;
  for (const shown of anchors) {
    const [one, other] = isTooMuch ? ["", ""] : scenes.map((scene) => lookOf(scene, shown.dataset.anchor ?? ""));
    shown.classList.toggle("le-differs", one !== other);
  }
}

// row:REQUEST:GROUP:INDEX or map:GROUP:HEX.
function lookOf(scene: Scene, anchor: string) {
  const [kind, first, second, third] = anchor.split(":");
  const ids =
    kind === "map"
      ? scene.map.get(`${first}:${second}`)
      : [scene.requests.get(Number(first))?.tables[Number(second)]?.[Number(third)]];
  return (ids || []).map((id) => stateOf(scene, id)).join();
}

function stateOf(scene: Scene, id: number | undefined) {
  if (id === undefined || id < 0) return String(id);
  const { refCount, content, isLost, isMapped, groups } = scene.block(id);
  return [refCount, content, isLost, isMapped, groups.length > 1].join(":");
}

function markNumbers(columns: MarkedColumn[]) {
  const [left, right] = columns.map(({ head }) => [...head.querySelectorAll("b")]);
  left.forEach((number, i) => {
    const isOther = right[i] && number.textContent !== right[i].textContent;
    for (const one of [number, right[i]]) one?.classList.toggle("le-differs", Boolean(isOther));
  });
}

// Other blocks, or the same ones in another order.
function markQueues(columns: MarkedColumn[], scenes: Scene[]) {
  const [one, other] = scenes.map(({ queue }) => `${queue.size}: ${queue.first(MAX_QUEUED)}`);
  for (const { queue } of columns) queue.classList.toggle("le-differs", one !== other);
}
