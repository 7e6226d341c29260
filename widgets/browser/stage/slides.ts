// What moves over the picture: a chip that slides from place to place while an event is played.
import { element } from "../look/element.ts";

const SLIDE_MS = 280;
const MIN_PACE_MS = 120; // what is gone before it has arrived need not set out
const MAX_BLOCKS = 1024; // more of them are dots, too small to see where one goes

export class Slides {
  constructor(stage, layer) {
    Object.assign(this, { stage, layer, starts: new Map() });
  }

  // Finding the places has the page laid out anew: only where the eye can follow.
  canBeSeen(position) {
    const { player, sides } = this.stage;
    return player.pace(position) >= MIN_PACE_MS && sides.every(({ scene }) => scene.numBlocks <= MAX_BLOCKS);
  }

  // A place's middle in the root, or null when it is scrolled out of sight.
  middle(anchor, side) {
    const origin = this.stage.root.getBoundingClientRect();
    for (const { view, side: index, isShown } of this.stage.shows) {
      if (index !== side || !isShown()) continue;
      const point = view.middleOf?.(anchor);
      if (point) return { x: point.x - origin.left, y: point.y - origin.top };
      const found = view.element.querySelector(`[data-anchor="${CSS.escape(anchor)}"]`);
      if (found) return middleIn(found, origin);
    }
    return null;
  }

  // Before the event: where things are now.
  before(motion, side) {
    const moves = this.stage.theme.isStill ? [] : motion.moves;
    this.starts.set(side, new Map(moves.map(([, from]) => [from, this.middle(from, side)])));
  }

  // After it: slide from there to where they are then.
  after(motion, side) {
    for (const [text, from, to] of motion.moves) {
      const start = this.starts.get(side)?.get(from),
        end = start && this.middle(to, side);
      if (start && end) this.slide(text, start, end);
    }
  }

  slide(text, start, end) {
    const chip = element("span", "le-chip le-ghost", text);
    this.layer.append(chip);
    const at = ({ x, y }) => `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    const motion = chip.animate(
      [
        { transform: at(start), opacity: 0.95 },
        { transform: at(end), opacity: 0.85, offset: 0.85 },
        { transform: at(end), opacity: 0 },
      ],
      { duration: SLIDE_MS / this.stage.speed, easing: "ease-in-out" },
    );
    motion.onfinish = motion.oncancel = () => chip.remove();
  }

  clear() {
    for (const chip of this.layer.querySelectorAll(".le-ghost")) chip.remove();
  }
}

function middleIn(shown, origin) {
  const rect = shown.getBoundingClientRect(),
    frame = (shown.closest(".le-panel") || shown).getBoundingClientRect();
  const x = rect.left + rect.width / 2,
    y = rect.top + rect.height / 2;
  if (x < frame.left || x > frame.right || y < frame.top || y > frame.bottom) return null;
  return { x: x - origin.left, y: y - origin.top };
}
