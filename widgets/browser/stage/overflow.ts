// The number of items that a scrolling frame hides, written beside its heading so that readers know of them.
import { element, put, write } from "../look/element.ts";
import type { Panel } from "./panel.ts";

const SPACE = 5; // pixels below the drawn part of an item

export class Overflow {
  count = element("span");
  nouns = element("span", "le-beyond-nouns"); // left out where a heading has no room for them
  arrow = element("span");
  element = element("button", "le-beyond", { type: "button", hidden: true }, this.count, this.nouns, this.arrow);
  sizes = new ResizeObserver(() => this.paint());

  // view: what scrolls; itemsIn(view): what is counted of it, by this noun, if there is one; beside(sign) puts the sign
  // where it is read; enough: the pixels of an item that need to be seen, where it is higher.
  constructor(
    readonly view: HTMLElement,
    readonly noun: string,
    readonly itemsIn: (view: HTMLElement) => Element[],
    beside: (sign: HTMLElement) => void,
    readonly enough = Infinity,
  ) {
    this.element.addEventListener("click", () => this.scroll());
    view.addEventListener("scroll", () => this.paint(), { passive: true });
    this.sizes.observe(view); // the views are painted again a frame later, and it would be wrong until then
    beside(this.element);
  }

  // After the views: the layout that it asks for is due anyway.
  paint() {
    const { view, noun } = this,
      frame = view.getBoundingClientRect(),
      boxes = this.itemsIn(view)
        .map((item) => item.getBoundingClientRect())
        .filter(({ height }) => height > 0),
      below = boxes.some(({ bottom }) => bottom > frame.bottom + SPACE), // and not the space after the last one
      right = view.scrollWidth - view.clientWidth - view.scrollLeft > 3,
      before = [view.scrollTop > 3 && "↑", view.scrollLeft > 3 && "←"].filter(Boolean).join(" ");
    put(this.element, "hidden", !below && !right && !before);
    if (this.element.hidden) return;
    const count = boxes.filter(({ top, bottom }) => Math.min(top + this.enough, bottom) > frame.bottom + SPACE).length;
    if (below && noun && count) {
      write(this.count, `+${count} `);
      write(this.nouns, `${noun}${count > 1 ? "s" : ""} `);
      write(this.arrow, right ? "↓ →" : "↓");
    } else {
      write(this.count, "");
      write(this.nouns, "");
      write(
        this.arrow,
        [below && !noun && "more ↓", right && "more →"].filter(Boolean).join("  ") || `more ${below ? "↓" : before}`,
      );
    }
    put(this.element, "title", below || right ? "scroll on" : "scroll back");
  }

  // A frame's height on, or its width; from the end back to the beginning.
  scroll() {
    const { view } = this,
      isBelow = view.scrollHeight - view.clientHeight - view.scrollTop > 3,
      isRight = view.scrollWidth - view.clientWidth - view.scrollLeft > 3;
    if (isBelow) view.scrollTop += Math.max(20, view.clientHeight - 20);
    else if (isRight) view.scrollLeft += Math.max(60, view.clientWidth - 60);
    else view.scrollTop = view.scrollLeft = 0;
  }
}

// Which items of a panel are counted when they do not fit: [noun, selector, enough].
const COUNTED: Record<string, [noun: string, selector: string, enough?: number]> = {
  tables: ["request", ".le-tables-row", 48],
  map: ["chain", ".le-map-row"],
  tier: ["item", ".le-tier-entry, .le-tier-line"],
  queue: ["block", ".le-queue-seat"],
  tree: ["", ".le-tree-rows"],
};

// The sign of a panel, in its heading or where `beside` puts it; null for a panel that leaves nothing out.
export function overflowOf(made: Panel, name: string, beside = inHeading(made), noun = COUNTED[name]?.[0]) {
  if (!COUNTED[name]) return null;
  const [, selector, enough] = COUNTED[name];
  const { view } = made.shown;
  return new Overflow(
    view.frame ?? view.element,
    noun,
    (frame) => [...frame.querySelectorAll(selector)],
    beside,
    enough,
  );
}

function inHeading(made: Panel) {
  return (sign: HTMLElement) => made.querySelector(".le-export")?.before(sign);
}
