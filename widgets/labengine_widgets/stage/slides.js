// What moves over the picture: a chip that slides from place to place while a frame is played, and the line to a hovered block.
import { element } from "./tables.js";

const SLIDE_MS = 280;

export class Slides {
  constructor(root, layer, pool) {
    Object.assign(this, { root, layer, pool, starts: new Map() });
    this.line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    layer.svg.append(this.line);
    this.hideLine();
  }

  get isStill() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  // A place's middle in the root, or null when it is scrolled out of sight.
  middle(anchor) {
    const [kind, id] = [anchor.slice(0, anchor.indexOf(":")), anchor.slice(anchor.indexOf(":") + 1)];
    const origin = this.root.getBoundingClientRect();
    if (kind === "pool") {
      if (!this.pool.grid) return null;
      const canvas = this.pool.canvas.getBoundingClientRect(), rect = this.pool.rectOf(Number(id));
      return { x: canvas.left - origin.left + rect.x + rect.w / 2, y: canvas.top - origin.top + rect.y + rect.h / 2 };
    }
    const found = [...this.root.querySelectorAll("[data-anchor]")].find((e) => e.dataset.anchor === anchor);
    const shown = found || this.root.querySelector(`.le-${kind === "row" ? "requests" : kind}`);
    return middleIn(shown, origin);
  }

  // Before the frame: where things are now.
  before(frame) {
    const moves = this.isStill ? [] : frame.moves || [];
    this.starts = new Map(moves.map(([, from]) => [from, this.middle(from)]));
  }

  // After it: slide from there to where they are then.
  after(frame) {
    if (!frame) return;
    for (const [text, from, to] of frame.moves || []) {
      const start = this.starts.get(from), end = this.middle(to);
      if (start && end) this.slide(text, start, end);
    }
  }

  slide(text, start, end) {
    const chip = element("span", "le-chip le-ghost", text);
    this.layer.append(chip);
    const at = ({ x, y }) => `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const motion = chip.animate([{ transform: at(start), opacity: 0.95 }, { transform: at(end), opacity: 0.85, offset: 0.85 }, { transform: at(end), opacity: 0 }], { duration: SLIDE_MS, easing: "ease-in-out" });
    motion.onfinish = motion.oncancel = () => chip.remove();
  }

  clear() {
    for (const chip of this.layer.querySelectorAll(".le-ghost")) chip.remove();
  }

  showLine(fromElement, blockId) {
    const origin = this.root.getBoundingClientRect(), rect = fromElement.getBoundingClientRect(), end = this.middle(`pool:${blockId}`);
    if (!end) return this.hideLine();
    const start = { x: rect.left - origin.left, y: rect.top - origin.top + rect.height / 2 };
    for (const [name, value] of [["x1", start.x], ["y1", start.y], ["x2", end.x], ["y2", end.y]]) this.line.setAttribute(name, value);
    this.line.style.display = "";
  }

  hideLine() {
    this.line.style.display = "none";
  }
}

function middleIn(shown, origin) {
  if (!shown) return null;
  const rect = shown.getBoundingClientRect(), frame = (shown.closest(".le-panel") || shown).getBoundingClientRect();
  const x = rect.left + rect.width / 2, y = rect.top + rect.height / 2;
  if (x < frame.left || x > frame.right || y < frame.top || y > frame.bottom) return null;
  return { x: x - origin.left, y: y - origin.top };
}
