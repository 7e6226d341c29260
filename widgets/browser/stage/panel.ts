// A titled frame around a view, and the drawer: several views, one of them open.

import { element, takeKey, targetOf } from "../look/element.ts";
import { meaning } from "../model/glossary.ts";
import { VIEWS } from "../views/index.ts";
import { exporter } from "./export.ts";
import type { Shown } from "./painting.ts";
import type { Stage } from "./stage.ts";

// A titled frame with its view.
export type Panel = HTMLElement & { shown: Shown };

// The explanation of a view's subject.
const ABOUT: Record<string, string> = {
  pool: meaning("block pool"),
  tables: meaning("block table"),
  queue: meaning("free queue"),
  map: meaning("prefix map"),
  tier: meaning("external tier"),
  tree: meaning("prefix tree"),
  step: meaning("step"),
};

// The view's panel.
export function panel(stage: Stage, name: string, side = 0, heading = VIEWS[name].title): Panel {
  const body = element("div", "le-panel-body"),
    shown = stage.show(VIEWS[name], side, body),
    words = element("span", "", { textContent: heading, title: ABOUT[name] ?? "" }),
    bar = element(
      "h3",
      "",
      {},
      words,
      exporter(stage, name, () => shown.view),
    ),
    frame = element("section", `le-panel le-${name}-panel`, { ariaLabel: heading }, bar, body);
  return Object.assign(frame, { shown });
}

// Tabs; a view is made when it is opened first, and painted while it is open.
export class Drawer {
  open: string | null = null;
  entries = new Map<string, Shown>();
  tabs: Map<string, HTMLElement>;
  saving = exporter(this.stage, "view", () => this.entries.get(this.open ?? "")?.view);
  bar = element("div", "le-tabs", { role: "tablist" });
  body = element("div", "le-drawer-body");
  element = element("section", "le-drawer", { ariaLabel: "more views" }, this.bar, this.body);

  constructor(
    readonly stage: Stage,
    names: string[],
    readonly side = 0,
  ) {
    this.tabs = new Map(names.filter((name) => VIEWS[name]).map((name) => [name, this.tab(name)]));
    this.bar.append(...this.tabs.values(), this.saving);
    this.element.hidden = !this.tabs.size;
    this.bar.addEventListener("keydown", (event) => this.onKey(event));
    this.show(null);
  }

  tab(name: string) {
    const words = { textContent: VIEWS[name].title, title: ABOUT[name] ?? "" },
      made = element("button", "le-tab", { type: "button", tabIndex: 0, role: "tab", ...words });
    made.addEventListener("click", () => {
      this.show(this.open === name ? null : name);
      this.reveal();
    });
    return made;
  }

  show(name: string | null) {
    this.open = name !== null && this.tabs.has(name) ? name : null;
    for (const [each, tab] of this.tabs) tab.ariaSelected = String(each === this.open);
    this.body.hidden = this.saving.hidden = this.open === null;
    this.stage.root.classList.toggle("le-is-drawn", this.open !== null);
    if (this.open && !this.entries.has(this.open)) this.entries.set(this.open, this.make(this.open));
    for (const [each, { view, pending }] of this.entries) {
      view.element.hidden = each !== this.open;
      pending.all = true;
    }
    if (this.stage.isReady) this.stage.changed();
  }

  // Asks Why? about the selection, or else about the next one. about: "ref_count" ...
  askWhy(about?: string) {
    this.show("why");
    this.entries.get("why")?.view.prefer?.(about);
    this.reveal();
  }

  // Scrolls to the opened drawer, which may lie below the visible part of the page.
  reveal() {
    if (this.open) requestAnimationFrame(() => this.element.scrollIntoView({ block: "nearest" }));
  }

  make(name: string) {
    return this.stage.show(VIEWS[name], this.side, this.body, () => this.open === name);
  }

  onKey(event: KeyboardEvent) {
    const tabs = [...this.tabs.values()],
      at = tabs.indexOf(targetOf(event)),
      go = (step: number) => tabs[(at + step + tabs.length) % tabs.length].focus();
    if (at >= 0) takeKey(event, { ArrowLeft: () => go(-1), ArrowRight: () => go(1) });
  }
}
