// A titled frame around a view, and the drawer: several views, one of them open.
import { element } from "../look/element.ts";
import { VIEWS } from "../views/index.ts";
import { exporter } from "./export.ts";

// The view's panel, or null where there is no such view.
export function panel(stage, name, side = 0, heading = VIEWS[name]?.title) {
  if (!VIEWS[name]) return null;
  const made = element("section", `le-panel le-${name}-panel`),
    body = element("div", "le-panel-body"),
    bar = element("h3");
  bar.append(element("span", "", heading));
  made.append(bar, body);
  made.setAttribute("aria-label", heading);
  made.shown = stage.show(VIEWS[name], side, body);
  bar.append(exporter(stage, name, () => made.shown.view));
  return made;
}

// Tabs; a view is made when it is opened first, and painted while it is open.
export class Drawer {
  constructor(stage, names, side = 0) {
    Object.assign(this, { stage, side, open: null, entries: new Map() });
    this.element = element("section", "le-drawer");
    this.element.setAttribute("aria-label", "more views");
    this.bar = element("div", "le-tabs");
    this.bar.setAttribute("role", "tablist");
    this.body = element("div", "le-drawer-body");
    this.saving = exporter(stage, "view", () => this.entries.get(this.open)?.view);
    this.element.append(this.bar, this.body);
    this.tabs = new Map(names.filter((name) => VIEWS[name]).map((name) => [name, this.tab(name)]));
    this.bar.append(this.saving);
    this.element.hidden = !this.tabs.size;
    this.bar.addEventListener("keydown", (event) => this.onKey(event));
    this.show(null);
  }

  tab(name) {
    const made = element("button", "le-tab", VIEWS[name].title);
    Object.assign(made, { type: "button", tabIndex: 0 });
    made.setAttribute("role", "tab");
    made.addEventListener("click", () => {
      this.show(this.open === name ? null : name);
      this.reveal();
    });
    this.bar.append(made);
    return made;
  }

  show(name) {
    this.open = this.tabs.has(name) ? name : null;
    for (const [each, tab] of this.tabs) tab.setAttribute("aria-selected", String(each === this.open));
    this.body.hidden = this.saving.hidden = this.open === null;
    this.stage.root.classList.toggle("le-is-drawn", this.open !== null);
    if (this.open && !this.entries.has(name)) this.entries.set(name, this.make(name));
    for (const [each, { view, pending }] of this.entries) {
      view.element.hidden = each !== this.open;
      pending.all = true;
    }
    if (this.stage.isReady) this.stage.changed();
  }

  // Why? of what is chosen, or is chosen next. about: "ref_count" ...
  wonder(about) {
    this.show("why");
    this.entries.get("why")?.view.prefer(about);
    this.reveal();
  }

  // Below the fold nobody sees that something has opened.
  reveal() {
    if (this.open) requestAnimationFrame(() => this.element.scrollIntoView({ block: "nearest" }));
  }

  make(name) {
    return this.stage.show(VIEWS[name], this.side, this.body, () => this.open === name);
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key],
      tabs = [...this.tabs.values()],
      at = tabs.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    tabs[(at + step + tabs.length) % tabs.length].focus();
  }
}
