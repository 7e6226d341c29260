// The overlay for animated chips: a block's chip slides from its old to its new place while an event is played.
import { element } from "../look/element.ts";
import type { Point } from "../views/view.ts";
import { Links } from "./links.ts";
import type { Motion } from "./motion.ts";
import type { Stage } from "./stage.ts";

const SLIDE_MS = 500;
const MIN_PACE_MS = 120; // a chip that would be gone before it arrives need not set out
const MAX_BLOCKS = 1024; // more of them are dots, too small to see where one goes
const CHIPS = ".le-bead, .le-queue-gone"; // of a place with words beside its chip

export class Slides {
  starts = new Map<number, Map<string, Point | null>>();

  constructor(
    readonly stage: Stage,
    readonly layer: HTMLElement,
  ) {}

  // Finding the places forces a layout, so this is done only where the eye can follow.
  canBeSeen(position: number) {
    const { player, sides } = this.stage;
    return player.pace(position) >= MIN_PACE_MS && sides.every(({ scene }) => scene.numBlocks <= MAX_BLOCKS);
  }

  // A place's middle in the root, or null when it is scrolled out of sight.
  middle(anchor: string, side: number): Point | null {
    const origin = this.stage.root.getBoundingClientRect();
    for (const { view, side: index, isShown } of this.stage.shows) {
      if (index !== side || !isShown()) continue;
      const point = view.middleOf?.(anchor);
      if (point) return { x: point.x - origin.left, y: point.y - origin.top };
      const found = view.element.querySelector<HTMLElement>(`[data-anchor="${CSS.escape(anchor)}"]`);
      if (found) return middleIn(found.querySelector<HTMLElement>(CHIPS) ?? found, origin);
    }
    return null;
  }

  // Before the event: where things are now.
  before(motion: Motion, side: number) {
    const moves = this.stage.theme.isStill ? [] : motion.moves;
    this.starts.set(side, new Map(moves.map(([, from]) => [from, this.middle(from, side)])));
  }

  // After it: slide from there to where they are then.
  after(motion: Motion, side: number) {
    for (const [text, from, to] of motion.moves) {
      const start = this.starts.get(side)?.get(from),
        end = start && this.middle(to, side);
      if (start && end) this.slide(text, start, end);
    }
  }

  // The chip is opaque: words that shine through it cannot be read, and neither can it.
  slide(text: string, start: Point, end: Point) {
    const chip = element("span", "le-chip le-ghost", text);
    this.layer.append(chip);
    const at = ({ x, y }: { x: number; y: number }) => `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const motion = chip.animate(
      [{ transform: at(start) }, { transform: at(end), offset: 0.85 }, { transform: at(end) }],
      { duration: SLIDE_MS / this.stage.speed, easing: "ease-in-out" },
    );
    motion.onfinish = motion.oncancel = () => chip.remove();
  }
}

function middleIn(shown: HTMLElement, origin: DOMRect): Point | null {
  const rect = shown.getBoundingClientRect(),
    frame = (shown.closest(".le-panel") || shown).getBoundingClientRect();
  const x = rect.left + rect.width / 2,
    y = rect.top + rect.height / 2;
  if (x < frame.left || x > frame.right || y < frame.top || y > frame.bottom) return null;
  return { x: x - origin.left, y: y - origin.top };
}

// Over the picture: sliding chips, the lines between a block and its holders, the tooltip.

export function overlay(stage: Stage) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  stage.tip = element("div", "le-tip", { hidden: true });
  const layer = element("div", "le-layer", { ariaHidden: "true" }, svg, stage.tip);
  stage.slides = new Slides(stage, layer);
  stage.links = new Links(stage, svg);
  return layer;
}
