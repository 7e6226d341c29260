// Time: buttons, a slider over all steps, a slider over the moments of one step, the speed, and the moment compared with.
import { button, element, put, write } from "../look/element.ts";
import { Flag } from "./flag.ts";
import { SPEEDS } from "./player.ts";

function slider(label) {
  const made = element("input");
  Object.assign(made, { type: "range", value: 0, title: label });
  made.setAttribute("aria-label", label);
  return made;
}

export class Scrubber {
  constructor(stage) {
    this.stage = stage;
    this.element = element("div", "le-scrub");
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", "time");
    this.back = button("‹", "one moment back (←)");
    this.forth = button("›", "one moment on (→)");
    this.replay = button("Replay", "play on from here, or the last step again (r)", "le-replay");
    this.steps = slider("the steps of the recording");
    this.stepCount = element("span", "le-count le-step-count");
    this.moments = slider("the moments of this step");
    this.count = element("span", "le-count le-moment-count");
    this.speed = element("select", "le-speed");
    this.speed.title = "how fast a play goes";
    this.speed.setAttribute("aria-label", this.speed.title);
    for (const speed of SPEEDS) this.speed.append(new Option(`${speed}×`, speed, speed === 1, speed === 1));
    this.pin = button("Mark", "mark this moment: what changes from it on is outlined (m)", "le-pin");
    this.since = element("div", "le-since");
    this.since.setAttribute("role", "status");
    this.flags = [this.steps, this.moments].map((one) => new Flag(one));
    const [steps, moments] = this.flags.map(({ element: made }) => made);
    this.element.append(
      this.back,
      this.replay,
      this.forth,
      steps,
      this.stepCount,
      moments,
      this.count,
      this.speed,
      this.pin,
      this.since,
    );
    this.listen();
  }

  listen() {
    const { stage } = this,
      on = (target, kind, act) => target.addEventListener(kind, act);
    on(this.back, "click", () => stage.back());
    on(this.forth, "click", () => stage.forward());
    on(this.replay, "click", () => (stage.isPlaying ? stage.last() : stage.play()));
    on(this.steps, "input", () => stage.seekStep(this.steps.valueAsNumber));
    on(this.moments, "input", () => stage.stand(this.positions[this.moments.valueAsNumber]));
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
    this.paintSteps(track, span);
    this.paintMoments(track, span, position);
    this.back.disabled = position <= track.first;
    this.forth.disabled = position >= track.end;
    this.replay.disabled = track.end === track.first;
    write(this.replay, stage.isPlaying ? "Skip" : stage.player.isHeld || position < track.end ? "Play" : "Replay");
    this.paintMark(span);
  }

  // Where the marked moment lies among the steps, and in this one.
  paintMark(span) {
    const { reference } = this.stage,
      isMarked = reference !== null,
      name = isMarked ? `marked: ${reference.name}` : "";
    write(this.pin, isMarked ? "Unmark" : "Mark");
    this.pin.classList.toggle("le-is-on", isMarked);
    this.element.classList.toggle("le-is-marked", isMarked);
    const isHere = isMarked && reference.position >= span.start && reference.position <= span.end;
    this.flags[0].stand(isMarked ? Math.max(this.steps.min, reference.step ?? 0) : null, name);
    this.flags[1].stand(isHere ? indexOf(this.positions, reference.position) : null, name);
  }

  // What is not as it was at the marked moment, counted.
  tell(words) {
    write(this.since, words);
    put(this.since, "title", words);
  }

  paintSteps(track, span) {
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

  paintMoments(track, span, position) {
    if (this.span?.start !== span.start || this.span?.end !== span.end || this.beats !== track.beats?.list.length) {
      this.span = span;
      this.beats = track.beats?.list.length;
      this.positions = [span.start, ...track.stops(span)];
    }
    const total = this.positions.length - 1,
      first = Math.min(total, span.index < 0 ? 0 : 1); // before its first event one stands in the step before
    const at = Math.max(first, indexOf(this.positions, position));
    this.at = at;
    this.total = total;
    set(this.moments, { min: first, max: total, value: at, disabled: total === first });
    write(this.count, total ? `moment ${at} of ${total}` : "");
  }
}

function set(target, values) {
  for (const [name, value] of Object.entries(values)) if (String(target[name]) !== String(value)) target[name] = value;
}

// The number of the last of these positions that is not beyond one.
function indexOf(positions, position) {
  let low = 0,
    high = positions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (positions[middle] <= position) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}
