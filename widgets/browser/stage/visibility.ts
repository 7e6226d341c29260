// Visibility: views out of sight are not painted, and a step is played only where it can be watched.
import type { Stage } from "./stage.ts";

// An element, and the share of it that must be seen to follow a play.
export type Landmark = [element: Element, share: number];

const PHONE = 460; // pixels of the root

export class Visibility {
  isOnPage: boolean; // until the observer reports, which it does after the first frame, a measurement
  least: Map<Element, number>;
  shares: Map<Element, number>;
  observers: IntersectionObserver[];
  // landmarks: [[element, the share of it that must be seen to follow a play]]; onChange: more or less can be seen.
  constructor(
    readonly root: HTMLElement,
    landmarks: Landmark[],
    onChange: () => void,
  ) {
    this.isOnPage = isInWindow(root); // until the observer has reported, after the first frame
    this.least = new Map(landmarks);
    this.shares = new Map(landmarks.map(([part]) => [part, 1]));
    const page = new IntersectionObserver((entries) => {
      this.isOnPage = entries[entries.length - 1].isIntersecting;
      onChange();
    });
    const parts = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) this.shares.set(entry.target, entry.intersectionRatio);
        onChange();
      },
      { threshold: [0, ...this.least.values()] },
    );
    page.observe(root);
    for (const part of this.least.keys()) parts.observe(part);
    this.observers = [page, parts];
  }

  get isVisible() {
    return this.isOnPage && !document.hidden;
  }

  get isEnough() {
    return this.isVisible && [...this.least].every(([part, least]) => (this.shares.get(part) ?? 1) >= least);
  }

  approach() {
    if (!this.isEnough) this.root.scrollIntoView({ block: "nearest" });
  }

  disconnect() {
    for (const observer of this.observers) observer.disconnect();
  }
}

// An element that is not on the page yet counts as visible.
function isInWindow(element: HTMLElement) {
  if (!element.isConnected) return true;
  const { top, bottom } = element.getBoundingClientRect();
  return bottom >= 0 && top <= innerHeight;
}

// The arrangement of a layout in a narrow cell: the class le-is-narrow while the root is narrower than the limit
// (pixels), le-is-phone on a phone. arrange: called with each new width.

export function watchWidth(stage: Stage, root: HTMLElement, limit: number, arrange?: (width: number) => void) {
  let width = -1;
  const sizes = new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    stage.isNarrow = width < limit;
    root.classList.toggle("le-is-narrow", stage.isNarrow);
    root.classList.toggle("le-is-phone", width < PHONE);
    arrange?.(width);
    stage.repaint();
  });
  sizes.observe(root);
  stage.end.signal.addEventListener("abort", () => sizes.disconnect());
}
