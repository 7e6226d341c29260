// Time: buttons, a slider over all steps, a slider over the moments of one step, the speed, and the moment compared
// with.
import { button, element, put, write } from "../look/element.ts";
import { countUpTo } from "../model/arrays.ts";
import { Gaps } from "./gaps.ts";
import type { Track } from "./host.ts";
import { SPEEDS } from "./player.ts";
import type { Stage } from "./stage.ts";
import type { Span } from "./track.ts";

const BACK = "one moment back (←)",
  STEP_BACK = "the end of the step before (page up)";

function slider(label: string) {
  const made = element("input");
  Object.assign(made, { type: "range", value: 0, title: label });
  made.setAttribute("aria-label", label);
  return made;
}

export class Scrubber {
  stage: Stage;
  element: HTMLElement;
  stepBack = button("«", STEP_BACK);
  back = button("‹", BACK);
  forth = button("›", "one moment on (→)");
  stepForth = button("»", "the end of the next step (page down)");
  replay = button("Replay", "play on from here, or the last step again (r)", "le-replay");
  steps = slider("the steps of the recording");
  stepCount: HTMLElement;
  moments = slider("the moments of this step");
  count: HTMLSpanElement;
  speed: HTMLSelectElement;
  pin = button("Mark", "mark this moment: what changes from it on is outlined (m)", "le-pin");
  since: HTMLElement;
  flags: Flag[];
  gaps: Gaps;
  span!: Span;
  numCaptions?: number;
  positions: number[] = [];
  at!: number;
  total!: number;

  constructor(stage: Stage) {
    this.stage = stage;
    this.element = element("div", "le-scrub");
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "time");
    this.stepCount = element("span", "le-count le-step-count");
    this.count = element("span", "le-count le-moment-count");
    this.count.title = "the sentence of this step, and the event that led here: its number in the log and in Why?";
    this.speed = element("select", "le-speed");
    this.speed.title = "how fast a play goes";
    this.speed.setAttribute("aria-label", this.speed.title);
    for (const speed of SPEEDS) this.speed.append(new Option(`${speed}×`, String(speed), speed === 1, speed === 1));
    this.since = element("div", "le-since");
    this.since.setAttribute("role", "status");
    this.flags = [this.steps, this.moments].map((one) => new Flag(one));
    const [steps, moments] = this.flags.map(({ element: made }) => made);
    this.gaps = new Gaps(steps);
    const buttons = element("div", "le-scrub-buttons");
    buttons.append(this.stepBack, this.back, this.replay, this.forth, this.stepForth);
    this.element.append(buttons, steps, this.stepCount, moments, this.count, this.speed, this.pin, this.since);
    this.listen();
  }

  listen() {
    const { stage } = this,
      on = (target: HTMLElement, kind: string, act: () => void) => target.addEventListener(kind, act);
    on(this.stepBack, "click", () => stage.step(-1));
    on(this.stepForth, "click", () => stage.step(1));
    on(this.back, "click", () => stage.back());
    on(this.forth, "click", () => stage.forward());
    on(this.replay, "click", () => (stage.isPlaying ? stage.last() : stage.play()));
    on(this.steps, "input", () => stage.seekStep(this.steps.valueAsNumber));
    on(this.moments, "input", () => stage.moveTo(this.positions[this.moments.valueAsNumber]));
    on(this.speed, "change", () => stage.setSpeed(Number(this.speed.value)));
    on(this.pin, "click", () => this.toggleMark());
  }

  toggleMark() {
    const { stage } = this;
    stage.compareWith(stage.reference === null ? stage.position : null);
  }

  paint() {
    const { stage } = this,
      { track, position } = stage,
      span = track.span(position);
    this.paintSteps(span);
    this.paintMoments(track, span, position);
    this.gaps.paint(stage.sides[0].recording);
    const gap = position <= track.first && this.gaps.before.title;
    put(this.back, "title", gap ? `the recording begins here. ${gap}` : BACK);
    put(this.stepBack, "title", gap ? this.back.title : STEP_BACK);
    this.back.disabled = this.stepBack.disabled = position <= track.first;
    this.forth.disabled = this.stepForth.disabled = position >= track.end;
    this.replay.disabled = track.end === track.first;
    write(this.replay, stage.isPlaying ? "Skip" : stage.player.isHeld || position < track.end ? "Play" : "Replay");
    this.paintMark(span);
  }

  // Where the marked moment lies among the steps, and in this one.
  paintMark(span: Span) {
    const { reference } = this.stage,
      isMarked = reference !== null,
      name = reference ? `marked: ${reference.name}` : "";
    write(this.pin, isMarked ? "Unmark" : "Mark");
    this.pin.classList.toggle("le-is-on", isMarked);
    this.element.classList.toggle("le-is-marked", isMarked);
    const isHere = reference !== null && reference.position >= span.start && reference.position <= span.end;
    this.flags[0].place(reference ? Math.max(Number(this.steps.min), reference.step ?? 0) : null, name);
    this.flags[1].place(isHere && reference ? indexOf(this.positions, reference.position) : null, name);
  }

  // The number of changes since the marked moment.
  showChanges(words: string) {
    write(this.since, words);
    put(this.since, "title", words);
  }

  paintSteps(span: Span) {
    const { recording } = this.stage.sides[0],
      last = recording.steps.at(-1)?.step ?? 0;
    const first = Math.min((recording.header.first_step ?? 1) - 1, last),
      step = span.step ?? first;
    set(this.steps, { min: first, max: last, value: step, disabled: last <= first });
    const isKept = recording.header.is_recorded !== false;
    write(this.stepCount, last ? `step ${step} of ${last}` : isKept ? "no step yet" : "recording is off");
    put(
      this.stepCount,
      "title",
      isKept
        ? ""
        : "this lab keeps no events, and time begins where its first view came: Lab(..., record=True) keeps them all",
    );
  }

  paintMoments(track: Track, span: Span, position: number) {
    if (
      this.span?.start !== span.start ||
      this.span?.end !== span.end ||
      this.numCaptions !== track.captions?.list.length
    ) {
      this.span = span;
      this.numCaptions = track.captions?.list.length;
      this.positions = [span.start, ...track.stops(span)];
    }
    const total = this.positions.length - 1,
      first = Math.min(total, span.index < 0 ? 0 : 1); // before its first event one stands in the step before
    const at = Math.max(first, indexOf(this.positions, position));
    this.at = at;
    this.total = total;
    set(this.moments, { min: first, max: total, value: at, disabled: total === first });
    write(this.count, total ? `${at} of ${total}${at ? ` · event ${position - 1}` : ""}` : "");
  }
}

function set(slider: HTMLInputElement, values: Record<"min" | "max" | "value", number> & { disabled: boolean }) {
  for (const name of ["min", "max", "value"] as const) put(slider, name, String(values[name]));
  put(slider, "disabled", values.disabled);
}

// The number of the last of these positions that is not beyond one.
function indexOf(positions: number[], position: number) {
  return Math.max(0, countUpTo(positions, position) - 1);
}

// A flag over a slider, where the marked moment lies.

const THUMB = 16; // px: a slider's ends are half its thumb away from its edges

export class Flag {
  slider: HTMLInputElement;
  flag = element("i", "le-flag");
  element = element("span", "le-slide");
  left?: string;

  constructor(slider: HTMLInputElement) {
    this.slider = slider;
    this.flag.hidden = true;
    this.element.append(slider, this.flag);
  }

  // At a value of the slider; null: there is nothing to show.
  place(value: number | null, title: string) {
    this.flag.hidden = value === null;
    if (value === null) return;
    const { min, max } = this.slider,
      share = Number(max) > Number(min) ? (value - Number(min)) / (Number(max) - Number(min)) : 0;
    const before = "var(--le-gap-before, 0px)",
      length = `(100% - ${THUMB}px - ${before} - var(--le-gap-after, 0px))`,
      left = `calc(${THUMB / 2}px + ${before} + ${share.toFixed(4)} * ${length})`;
    if (this.left !== left) this.flag.style.left = this.left = left;
    put(this.flag, "title", title);
  }
}
