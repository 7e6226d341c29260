// One view of a lab: receives frames, plays them, and paints what is visible.
import { readTheme } from "./palette.js";
import { Player } from "./player.js";
import { Pool } from "./pool.js";
import { Tables, describe, element } from "./tables.js";
import { Slides } from "./slides.js";
import { Controls, Scrubber, keysDialog, onKey } from "./controls.js";
import { Sight } from "./sight.js";

const SILENCE_MS = 4000;
const PHASES = ["schedule", "forward", "sample", "update"];

function panel(title, className, body) {
  const made = element("section", `le-panel ${className}-panel`);
  made.append(element("h3", "", title), body);
  return made;
}

class Dashboard {
  constructor(model, el) {
    this.model = model;
    this.id = Math.random().toString(36).slice(2);
    this.status = { title: "", running: false, phase: null };
    this.changed = null;
    this.player = new Player((changed, frame) => this.onMoved(changed, frame), () => this.sight.isEnough);
    this.player.beforeFrame = (frame) => {
      this.flush();
      this.slides.before(frame);
    };
    this.player.beforeReplay = () => this.sight.approach();
    this.build(el);
    this.listen(el);
    this.start();
  }

  build(el) {
    const root = (this.root = element("div", "labengine-dashboard"));
    root.tabIndex = 0;
    root.dataset.lmSuppressShortcuts = "true";
    root.setAttribute("role", "application");
    root.setAttribute("aria-label", "labengine dashboard. Press question mark for the keys.");
    this.canvas = element("canvas", "le-pool");
    this.canvas.setAttribute("role", "img");
    this.pool = new Pool(this.canvas);
    this.requests = element("div", "le-requests");
    this.requests.setAttribute("role", "list");
    this.map = element("div", "le-map");
    this.queue = element("div", "le-queue");
    this.tier = element("div", "le-tier");
    this.tables = new Tables(this);
    this.controls = new Controls((action, rest) => this.wish(action, rest));
    this.scrubber = new Scrubber(this.player);
    this.keys = keysDialog();
    const main = element("div", "le-main"), side = element("div", "le-side"), lower = element("div", "le-lower");
    lower.append(panel("Hash map", "le-map", this.map), panel("Free queue", "le-queue", this.queue), panel("External tier", "le-tier", this.tier));
    side.append(panel("Block tables", "le-requests", this.requests), lower);
    main.append(panel("Block pool", "le-pool", this.canvas), side);
    const scrub = element("div", "le-scrub");
    scrub.append(...this.scrubber.elements());
    root.append(this.buildHead(), this.buildSentence(), main, scrub, ...this.controls.elements(), this.buildLayer(), this.keys);
    this.slides = new Slides(root, this.layer, this.pool);
    el.append(root);
  }

  buildHead() {
    const head = element("header", "le-head");
    this.title = element("div", "le-title");
    this.used = element("span", "le-used");
    this.facts = element("span", "le-facts");
    this.phases = element("div", "le-phases");
    const help = element("button", "le-button le-help", "?");
    help.type = "button";
    help.title = "keys";
    help.addEventListener("click", () => (this.keys.hidden = !this.keys.hidden));
    const score = element("div", "le-score");
    score.append(this.used, this.facts);
    head.append(this.title, help, score, this.phases);
    return head;
  }

  buildSentence() {
    this.sentence = element("p", "le-sentence");
    this.sentence.setAttribute("aria-live", "polite");
    return this.sentence;
  }

  buildLayer() {
    this.layer = element("div", "le-layer");
    this.layer.setAttribute("aria-hidden", "true");
    this.layer.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.tip = element("div", "le-tip");
    this.tip.hidden = true;
    this.layer.append(this.layer.svg, this.tip);
    return this.layer;
  }

  listen(el) {
    const end = (this.end = new AbortController()), on = (target, kind, act) => target.addEventListener(kind, act, { signal: end.signal });
    on(this.root, "keydown", (event) => onKey(event, this));
    on(this.root, "mousemove", (event) => this.hover(event));
    on(this.root, "mouseleave", () => this.point(null));
    on(document, "visibilitychange", () => this.onSight());
    const themes = new MutationObserver(() => [0, 200, 800].forEach((ms) => setTimeout(() => this.invalidate(null), ms)));
    themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
    const sizes = new ResizeObserver(() => this.invalidate(null));
    sizes.observe(this.canvas);
    this.sight = new Sight(this.root, { sentence: this.sentence, pool: this.canvas }, () => this.onSight());
    end.signal.addEventListener("abort", () => [themes, sizes, this.sight].forEach((observer) => observer.disconnect()));
  }

  // The saved state first, so that a notebook without a kernel shows it; then the lab's own, if it answers.
  start() {
    this.onMessage = (message) => this.receive(message);
    this.model.on("msg:custom", this.onMessage);
    this.onConnection = () => this.resync();
    this.model.on("comm_live_update", this.onConnection);
    const saved = this.model.get("snapshot");
    if (saved) this.receive(JSON.parse(saved));
    this.resync();
  }

  stop() {
    this.end.abort();
    this.player.stop();
    this.isStopped = true;
    clearTimeout(this.patience);
    this.model.off("msg:custom", this.onMessage);
    this.model.off("comm_live_update", this.onConnection);
    this.root.remove();
  }

  resync() {
    this.isResyncing = true;
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.controls.showSilence(), SILENCE_MS);
    this.send({ type: "resync", view: this.id });
  }

  // After a restart there is nobody to send to.
  send(message) {
    try {
      this.model.send(message);
    } catch {
      clearTimeout(this.patience);
      this.controls.showGone();
    }
  }

  wish(action, rest = {}) {
    this.player.skip();
    if (action === "step" || action === "phase") this.sight.approach();
    this.send({ type: "wish", action, view: this.id, ...rest });
  }

  receive(message) {
    if (message.type === "answer") return message.view === this.id ? this.controls.showAnswer(message) : undefined;
    if (message.status) this.showStatus(message.status);
    if (message.type === "full") return this.receiveFull(message);
    if (message.type !== "play" && message.type !== "diff") return;
    if (message.seq !== this.seq + 1) return this.isResyncing ? undefined : this.resync();
    this.seq = message.seq;
    if (message.type === "play") this.player.add(message.frames, message.is_new);
    else this.player.follow(message.frame);
  }

  // A full state is for one view or for all (view null); one that brings nothing new does not interrupt a play.
  receiveFull(message) {
    if (message.view !== null && message.view !== this.id) return;
    if (message.view !== null) this.endResync();
    if (message.seq === this.seq && this.hasAll) return;
    this.seq = message.seq;
    this.hasAll = message.replay !== undefined; // a saved state that was too long to save has none
    this.player.reset(message.frame, message.replay);
  }

  endResync() {
    this.isResyncing = false;
    clearTimeout(this.patience);
    this.controls.showPresence();
  }

  showStatus(status) {
    this.status = status;
    this.controls.showStatus(status);
    this.root.dataset.running = String(status.running);
    this.invalidate(new Set());
  }

  // -- painting ------------------------------------------------------------------------------------------------------

  onMoved(changed, frame) {
    if (frame) this.slides.after(this.paintNow(changed) && frame);
    else this.invalidate(changed);
  }

  invalidate(changed) {
    this.changed = changed === null || this.changed === null ? null : new Set([...(this.changed || []), ...changed]);
    this.isDirty = true;
    if (this.request || !this.sight.isVisible) return;
    this.request = requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this.request);
    this.request = 0;
    if (this.isDirty) this.paintNow(new Set());
  }

  paintNow(changed) {
    if (this.isStopped || !this.root.isConnected) return false;
    const all = this.isDirty && this.changed === null;
    const ids = all ? null : new Set([...(this.changed || []), ...(changed || [])]);
    this.isDirty = false;
    this.changed = new Set();
    this.paint(changed === null ? null : ids);
    return true;
  }

  paint(ids) {
    const { state } = this.player;
    this.paintHead(state);
    this.tables.draw(state, ids);
    this.scrubber.draw();
    this.controls.showHint(this.player.isHeld ? "The step waits until you can see it: scroll up, or press Play." : "");
    this.pool.draw(state, ids, readTheme(this.root));
    const [used, , , lost] = state.score;
    this.canvas.setAttribute("aria-label", `Block pool: ${used} of ${state.numBlocks} blocks used, ${lost} lost. ${state.sentence}`);
    if (this.hovered !== undefined && this.hovered !== null) this.mark(this.hovered);
  }

  paintHead(state) {
    const [used, peak, findable, lost] = state.score;
    this.title.textContent = this.status.title + (state.omitted ? ` · ${state.omitted} blocks were not saved` : "");
    this.root.classList.toggle("le-hybrid", state.groups.length > 1);
    this.root.style.setProperty("--le-digits", String(state.numBlocks).length);
    this.used.replaceChildren(element("b", "", used), ` used of ${state.numBlocks - (state.nullBlock < 0 ? 0 : 1)}`);
    this.facts.replaceChildren(fact("peak of the step", "the most blocks used within this step", peak), fact("findable", "full blocks that a look-up can be served with", findable), fact("lost", "alive and full, but not in the map: nobody can find them", lost, lost ? "le-is-lost" : ""));
    this.sentence.textContent = state.sentence;
    this.sentence.title = state.sentence;
    this.paintPhases(state);
    const { position, frames } = this.player;
    Object.assign(this.root.dataset, { used, peak, findable, lost, frame: position, numFrames: frames.length, sentence: state.sentence, step: state.step, phase: this.phase(state) || "", seq: this.seq ?? "", playing: this.player.isPlaying });
  }

  // While a step is open, the phase done last; while one is played, the phase of the moment shown.
  phase(state) {
    return this.player.position < this.player.frames.length ? state.phase : this.status.phase || state.phase;
  }

  paintPhases(state) {
    const current = this.phase(state);
    const parts = [element("span", "le-quiet", state.step ? `step ${state.step}` : "no step yet")];
    PHASES.forEach((phase, i) => {
      parts.push(element("span", "le-quiet", i ? "›" : ""), element(phase === current ? "b" : "span", "le-phase", phase));
    });
    if (this.status.running) parts.push(element("span", "le-running", "running"));
    this.phases.replaceChildren(...parts);
  }

  onSight() {
    if (!this.sight.isVisible) return;
    if (this.isDirty) this.invalidate(null);
    this.player.resume();
  }

  // -- pointing ------------------------------------------------------------------------------------------------------

  hover(event) {
    const target = event.target.closest?.("[data-block]");
    if (target) return this.point(Number(target.dataset.block), target, event);
    if (event.target !== this.canvas) return this.point(null);
    this.point(this.pool.blockAt(event.offsetX, event.offsetY), null, event);
  }

  point(id, from, event) {
    this.tip.hidden = id === null;
    from && from.closest(".le-requests") ? this.slides.showLine(from, id) : this.slides.hideLine();
    if (id !== null) this.showTip(id, event);
    if (id === this.hovered) return;
    const changed = new Set([id, this.hovered].filter((i) => i !== null && i !== undefined));
    this.hovered = this.pool.hovered = id;
    this.mark(id);
    this.invalidate(changed);
  }

  mark(id) {
    for (const marked of this.root.querySelectorAll(".le-pointed")) marked.classList.remove("le-pointed");
    if (id !== null) for (const same of this.root.querySelectorAll(`[data-block="${Number(id)}"]`)) same.classList.add("le-pointed");
  }

  showTip(id, event) {
    const { state } = this.player, origin = this.root.getBoundingClientRect();
    this.tip.textContent = describe(id, state);
    const x = event.clientX - origin.left, y = event.clientY - origin.top;
    this.tip.style.left = `${Math.min(x + 14, origin.width - this.tip.offsetWidth - 8)}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > origin.height ? y - this.tip.offsetHeight - 8 : y + 18}px`;
  }
}

function fact(name, title, value, className = "") {
  const made = element("span", `le-fact ${className}`);
  made.title = title;
  made.append(element("b", "", value), ` ${name}`);
  return made;
}

function render({ model, el }) {
  const dashboard = new Dashboard(model, el);
  return () => dashboard.stop();
}

export default { render };
