// Time: buttons, a slider over all steps, a slider over the moments of one step, the speed, and the moment compared
// with.
import { button, element, put, write } from "../look/element.ts";
import { countUpTo } from "../model/arrays.ts";
import type { Recording } from "../model/recording.ts";
import type { Track } from "./host.ts";
import { SPEEDS } from "./player.ts";
import type { Stage } from "./stage.ts";
import type { Span } from "./track.ts";

const GAP_WIDTH = "24px"; // not to scale: a gap may be longer than what is known
const NOT_KEPT =
  "this lab keeps no events, so time begins with its first view; use Lab(..., record=True) to keep them all";
const BACK = "one moment back (←)",
  STEP_BACK = "the end of the previous step (page up)";

function slider(title: string, act: (value: number) => void) {
  const made = element("input", "", { type: "range", value: "0", title, ariaLabel: title });
  made.addEventListener("input", () => act(made.valueAsNumber));
  return made;
}

export function speedChoice(stage: Pick<Stage, "setSpeed">) {
  const title = "playback speed",
    options = SPEEDS.map((speed) => new Option(`${speed}×`, String(speed), speed === 1, speed === 1)),
    made = element("select", "le-input le-speed", { title, ariaLabel: title }, ...options);
  made.addEventListener("change", () => stage.setSpeed(Number(made.value)));
  return made;
}

export class Scrubber {
  stepBack = button("«", STEP_BACK, () => this.stage.step(-1));
  back = button("‹", BACK, () => this.stage.back());
  replay = button(
    "Replay",
    "play from here, or replay the last step (r)",
    () => (this.stage.isPlaying ? this.stage.last() : this.stage.play()),
    "le-replay",
  );
  forth = button("›", "one moment forward (→)", () => this.stage.forward());
  stepForth = button("»", "the end of the next step (page down)", () => this.stage.step(1));
  steps = slider("the steps of the recording", (step) => this.stage.seekStep(step));
  stepCount = element("span", "le-count le-step-count");
  moments = slider("the moments of this step", (at) => this.stage.moveTo(this.positions[at]));
  count = element("span", "le-count le-moment-count", {
    title: "this step's sentence, and the number of the event that led here, as in the log and in Why?",
  });
  speed = speedChoice(this.stage);
  pin = button("Mark", "mark this moment: later changes are outlined (m)", () => this.toggleMark(), "le-pin");
  since = element("div", "le-since", { role: "status" });
  flags = [this.steps, this.moments].map((one) => new Flag(one));
  gaps = new Gaps(this.flags[0].element);
  element = element("div", "le-scrub", { role: "group", ariaLabel: "time" });
  span!: Span;
  numCaptions?: number;
  positions: number[] = [];
  at!: number;
  total!: number;

  constructor(readonly stage: Stage) {
    const buttons = element("div", "le-scrub-buttons"),
      [steps, moments] = this.flags.map((flag) => flag.element);
    buttons.append(this.stepBack, this.back, this.replay, this.forth, this.stepForth);
    this.element.append(buttons, steps, this.stepCount, moments, this.count, this.speed, this.pin, this.since);
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
    put(this.stepCount, "title", isKept ? "" : NOT_KEPT);
  }

  paintMoments(track: Track, span: Span, position: number) {
    const numCaptions = track.captions?.list.length,
      { start, end } = this.span ?? {};
    if (start !== span.start || end !== span.end || this.numCaptions !== numCaptions) {
      Object.assign(this, { span, numCaptions });
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

class Flag {
  flag = element("i", "le-flag", { hidden: true });
  element = element("span", "le-slide", {}, this.slider, this.flag);
  left?: string;

  constructor(readonly slider: HTMLInputElement) {}

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

function piece(side: "before" | "after") {
  return element("span", `le-gap le-gap-${side}`, { role: "img", hidden: true });
}

// Hatched pieces at the ends of the slider over all steps: there the stream has lost events.
class Gaps {
  before = piece("before");
  after = piece("after");

  constructor(readonly slide: HTMLElement) {
    slide.append(this.before, this.after);
  }

  // Old steps that were dropped lie between the gap and what is here: then there is none to draw.
  paint({ header }: Recording) {
    this.show(this.before, "--le-gap-before", header.first ? null : header.gap_before);
    this.show(this.after, "--le-gap-after", header.gap_after);
  }

  show(piece: HTMLElement, name: string, words?: string | null) {
    if (piece.title === (words ?? "")) return;
    put(piece, "title", words ?? "");
    piece.ariaLabel = words ?? "";
    piece.hidden = !words;
    this.slide.style.setProperty(name, words ? GAP_WIDTH : "0px");
  }
}
