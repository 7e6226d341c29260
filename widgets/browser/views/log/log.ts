// A line for every event, of any number of them: only the lines in sight exist. Filters, and each line leads to its
// moment.

import { element, takeKey, targetOf } from "../../look/element.ts";
import { countUpTo } from "../../model/arrays.ts";
import { idSuffix, kindName, shortId } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import { phrase } from "../../model/phrases.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import { textOf } from "../../model/sentence.ts";
import type { Side } from "../../model/side.ts";
import { storyOf } from "../../model/story.ts";
import type { Mentions } from "../about.ts";
import { mentions } from "../about.ts";
import type { CsvRow, PaintMoment, ViewHost } from "../view.ts";
import { eventOf, moveToMoment } from "../view.ts";
import { LogFilter } from "./filter.ts";

export const title = "Log";

const LINE = 22,
  SLICE_MS = 8,
  MARGIN = 6;
const SIGNS = ["▏", "●", "■", "∿", "⇅", "▲"];

export function create(stage: ViewHost, side: Side) {
  return new Log(stage, side);
}

// A line on the page, and its place in the list.
interface Line {
  element: HTMLElement;
  place: number;
}

class Log {
  moment = 0;
  selection: Selection | null = null;
  found: number[] | null = null;
  sought: number | null = null;
  looked = 0;
  scanned = 0;
  active: number | null = null;
  lines = new Map<number, Line>();
  sheet = element("div", "le-log-sheet");
  list = element("div", "le-log-list", { tabIndex: 0, role: "listbox", ariaLabel: "Events" }, this.sheet);
  filter = new LogFilter(this.side, {
    onChange: () => this.refilter(),
    leave: () => this.list.focus(),
    words: (event) => this.words(event),
    selection: () => this.selection,
  });
  element = element("div", "le-log", {}, this.filter.element, this.filter.note, this.list);
  judge: ((event: number) => boolean) | null = null;
  pending?: number;
  news?: string;
  start!: number;
  names!: Mentions;
  asked!: number;
  name!: string;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    this.list.addEventListener("scroll", () => this.askFill());
    this.list.addEventListener("click", (event) => this.click(event));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
  }

  // -- the listed events

  get length() {
    return this.found ? this.found.length : this.side.recording.end - this.side.recording.start;
  }

  eventAt(place: number) {
    return this.found ? this.found[place] : this.side.recording.start + place;
  }

  // The line of an event, or where it would stand.
  placeOf(event: number) {
    return this.found ? countUpTo(this.found, event - 1) : event - this.side.recording.start;
  }

  refilter() {
    this.judge = this.filter.judgement();
    this.found = this.judge ? [] : null;
    this.scanned = this.side.recording.start;
    this.list.scrollTop = 0;
    this.scan();
  }

  // In slices, so that a long run keeps the page alive.
  scan() {
    clearTimeout(this.pending);
    const { recording } = this.side,
      until = performance.now() + SLICE_MS;
    if (this.found && this.scanned < recording.start) this.scanned = recording.start;
    while (this.found && this.scanned < recording.end) {
      if (this.judge?.(this.scanned)) this.found.push(this.scanned);
      this.scanned += 1;
      if (this.scanned % 64 === 0 && performance.now() > until) break;
    }
    const isDone = !this.found || this.scanned >= recording.end;
    if (!isDone) this.pending = setTimeout(() => this.scan(), 0);
    this.lay();
    const all = (recording.end - recording.start).toLocaleString();
    this.filter.count.textContent = this.found
      ? `${this.found.length.toLocaleString()} of ${all}${isDone ? "" : " …"}`
      : `${all} events`;
  }

  // The event's sentence, and the engine's own id of its request.
  words(i: number) {
    const { side } = this,
      request = side.recording.field(i, "request_id");
    const id = typeof request === "number" && request >= 0 ? idSuffix(request, shortId(side.engineId(request))) : "";
    return textOf(phrase(side.recording, i, (token) => side.text(token))) + id;
  }

  // -- painting

  paint(_scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const { recording } = this.side,
      news = `${recording.start}:${recording.end}`;
    this.filter.offerKinds();
    if (news !== this.news) {
      if (this.found && recording.start !== this.start) this.refilter();
      else this.scan();
    }
    if (!this.news) {
      this.news = news;
      this.mark(this.selection);
    }
    this.news = news;
    this.start = recording.start;
    if (moment !== this.moment) this.looked = moment - 1;
    if ((moment !== this.moment || changes.all) && !this.list.contains(document.activeElement))
      this.reveal(this.looked);
    this.moment = moment;
    if (changes.all) {
      this.lines.clear();
      this.sheet.replaceChildren();
    }
    this.seek();
    this.fill();
  }

  mark(selection: Selection | null) {
    const isNew = JSON.stringify(selection) !== JSON.stringify(this.selection);
    this.selection = selection;
    if (isNew) this.sought = selection?.kind === "event" ? Number(selection.id) : null;
    if (!this.news) return;
    this.names = mentions(this.side.recording, selection);
    this.filter.only.disabled = !this.names && !this.filter.isOnly;
    if (isNew && this.filter.isOnly) this.refilter();
    this.seek();
    this.fill();
  }

  // Scrolls the selected event into view, as soon as its line can be painted.
  seek() {
    if (this.sought === null || !this.list.clientHeight) return;
    this.reveal((this.looked = this.sought));
    this.sought = null;
  }

  lay() {
    const height = `${this.length * LINE}px`;
    if (this.sheet.style.height !== height) this.sheet.style.height = height;
    this.fill();
  }

  reveal(event: number) {
    const top = this.placeOf(event) * LINE,
      { scrollTop, clientHeight } = this.list;
    if (top < scrollTop) this.list.scrollTop = Math.max(0, top - LINE * 2);
    else if (top + LINE > scrollTop + clientHeight) this.list.scrollTop = top - clientHeight + LINE * 3;
  }

  askFill() {
    this.asked ||= requestAnimationFrame(() => {
      this.asked = 0;
      this.fill();
    });
  }

  // The lines in sight, and a few around them; a line that was there already is kept.
  fill() {
    const { scrollTop, clientHeight } = this.list;
    const first = Math.max(0, Math.floor(scrollTop / LINE) - MARGIN),
      last = Math.min(this.length, Math.ceil((scrollTop + clientHeight) / LINE) + MARGIN);
    const kept = new Map<number, Line>();
    for (let place = first; place < last; place++) {
      const i = this.eventAt(place),
        line = this.lines.get(i) ?? this.makeLine(i);
      kept.set(i, line);
      if (line.place !== place) {
        line.place = place;
        line.element.style.top = `${place * LINE}px`;
      }
      if (!line.element.isConnected) this.sheet.append(line.element);
      this.dress(line, i);
    }
    for (const [i, line] of this.lines) if (kept.get(i) !== line) line.element.remove();
    this.lines = kept;
  }

  makeLine(i: number): Line {
    const { recording } = this.side,
      topic = storyOf(recording).topic(i),
      line = element("div", `le-log-line le-log-topic-${topic}`, { role: "option" });
    line.id = `le-log-${this.side.index}-${(this.name ??= Math.random().toString(36).slice(2))}-${i}`;
    Object.assign(line.dataset, { event: String(i), side: String(this.side.index) });
    const found = recording.stepAt(i + 1),
      step = found && (found.end === null || i < found.end) ? `step ${found.step}` : "";
    line.append(
      element("span", "le-log-number le-fine", i),
      element("span", "le-log-step le-clip le-fine", step),
      element("span", "le-log-sign", SIGNS[topic]),
      element("span", "le-log-words le-clip", this.words(i)),
    );
    line.title = kindName(recording.kind(i));
    return { element: line, place: -1 };
  }

  dress(line: Line, i: number) {
    const { classList } = line.element,
      isSelected = this.selection?.kind === "event" && Number(this.selection.id) === i;
    classList.toggle("le-is-now", i === this.moment - 1);
    classList.toggle("le-is-ahead", i >= this.moment);
    classList.toggle("le-is-related", !isSelected && Boolean(this.names?.(i)));
    classList.toggle("le-is-selected", isSelected);
    classList.toggle("le-is-active", i === this.active);
    line.element.ariaSelected = String(isSelected);
    line.element.ariaCurrent = i === this.moment - 1 ? "true" : null;
  }

  // -- pointer and keyboard

  // The stage selects a clicked event, as in every view; the log also moves to its moment.
  click(event: MouseEvent) {
    const line = targetOf(event).closest<HTMLElement>("[data-event]");
    if (line) this.go(Number(line.dataset.event));
  }

  go(i: number) {
    this.activate(i);
    moveToMoment(this.stage, this.side, i + 1);
  }

  choose(i: number) {
    this.stage.select(eventOf(this.stage, this.side, i));
    this.go(i);
  }

  activate(i: number) {
    this.active = i;
    this.reveal(i);
    this.fill();
    const line = this.lines.get(i);
    if (line) this.list.setAttribute("aria-activedescendant", line.element.id);
  }

  onKey(event: KeyboardEvent) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / LINE) - 1),
      place = this.placeOf(this.active ?? this.moment - 1);
    const places: Record<string, number> = {
      ArrowDown: place + (this.active === null ? 0 : 1),
      ArrowUp: place - 1,
      PageDown: place + page,
      PageUp: place - page,
      Home: 0,
      End: this.length - 1,
    };
    const acts: Record<string, () => void> = { "/": () => this.filter.text.focus() },
      { active } = this;
    for (const [key, to] of Object.entries(this.length ? places : {}))
      acts[key] = () => this.activate(this.eventAt(Math.min(this.length - 1, Math.max(0, to))));
    if (active !== null) acts.Enter = () => this.choose(active);
    takeKey(event, acts);
  }

  resize() {
    if (this.news) this.fill();
  }

  destroy() {
    clearTimeout(this.pending);
    cancelAnimationFrame(this.asked);
    this.element.remove();
  }

  csv() {
    const { recording } = this.side,
      rows: CsvRow[] = [["event", "kind", "words"]];
    for (let place = 0; place < this.length; place++)
      rows.push([this.eventAt(place), recording.kind(this.eventAt(place)), this.words(this.eventAt(place))]);
    return rows;
  }
}
