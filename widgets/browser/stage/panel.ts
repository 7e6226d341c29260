// A titled frame around a view, and the drawer: several views, one of them open.

import { element, targetOf } from "../look/element.ts";
import { meaning } from "../model/glossary.ts";
import { VIEWS } from "../views/index.ts";
import type { ViewModule } from "../views/view.ts";
import { exporter } from "./export.ts";
import type { StageHost } from "./host.ts";
import type { Shown } from "./painting.ts";

// A titled frame with its view.
export type Panel = HTMLElement & { shown: Shown };

interface PanelStage extends StageHost {
  show(module: ViewModule, side: number, parent: HTMLElement, isShown?: () => boolean): Shown;
}

// The explanation of a view's subject.
const ABOUT: Record<string, string> = {
  pool: meaning("block pool"),
  tables: meaning("block table"),
  queue: meaning("free queue"),
  map: meaning("prefix map"),
  tier: meaning("external tier"),
  step: meaning("step"),
};

function explained(name: string, heading: HTMLElement) {
  heading.title = ABOUT[name] ?? "";
  return heading;
}

// The view's panel.
export function panel(stage: PanelStage, name: string, side = 0, heading = VIEWS[name].title): Panel {
  const frame = element("section", `le-panel le-${name}-panel`),
    body = element("div", "le-panel-body"),
    bar = element("h3"),
    shown = stage.show(VIEWS[name], side, body);
  bar.append(
    explained(name, element("span", "", heading)),
    exporter(stage, name, () => shown.view),
  );
  frame.append(bar, body);
  frame.setAttribute("aria-label", heading);
  return Object.assign(frame, { shown });
}

const ARROWS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

// Tabs; a view is made when it is opened first, and painted while it is open.
export class Drawer {
  stage: PanelStage;
  side: number;
  open: string | null = null;
  entries = new Map<string, Shown>();
  element = element("section", "le-drawer");
  bar = element("div", "le-tabs");
  body = element("div", "le-drawer-body");
  saving: HTMLElement;
  tabs: Map<string, HTMLElement>;

  constructor(stage: PanelStage, names: string[], side = 0) {
    this.stage = stage;
    this.side = side;
    this.element.setAttribute("aria-label", "more views");
    this.bar.setAttribute("role", "tablist");
    this.saving = exporter(stage, "view", () => this.entries.get(this.open ?? "")?.view);
    this.element.append(this.bar, this.body);
    this.tabs = new Map(names.filter((name) => VIEWS[name]).map((name) => [name, this.tab(name)]));
    this.bar.append(this.saving);
    this.element.hidden = !this.tabs.size;
    this.bar.addEventListener("keydown", (event) => this.onKey(event));
    this.show(null);
  }

  tab(name: string) {
    const made = explained(name, element("button", "le-tab", VIEWS[name].title));
    Object.assign(made, { type: "button", tabIndex: 0 });
    made.setAttribute("role", "tab");
    made.addEventListener("click", () => {
      this.show(this.open === name ? null : name);
      this.reveal();
    });
    this.bar.append(made);
    return made;
  }

  show(name: string | null) {
    this.open = name !== null && this.tabs.has(name) ? name : null;
    for (const [each, tab] of this.tabs) tab.setAttribute("aria-selected", String(each === this.open));
    this.body.hidden = this.saving.hidden = this.open === null;
    this.stage.root.classList.toggle("le-is-drawn", this.open !== null);
    if (this.open && !this.entries.has(this.open)) this.entries.set(this.open, this.make(this.open));
    for (const [each, { view, pending }] of this.entries) {
      view.element.hidden = each !== this.open;
      pending.all = true;
    }
    if (this.stage.isReady) this.stage.changed();
  }

  // Why? of what is chosen, or is chosen next. about: "ref_count" ...
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
    const step = ARROWS[event.key],
      tabs = [...this.tabs.values()],
      at = tabs.indexOf(targetOf(event));
    if (!step || at < 0) return;
    event.preventDefault();
    tabs[(at + step + tabs.length) % tabs.length].focus();
  }
}
