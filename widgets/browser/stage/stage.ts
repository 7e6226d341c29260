// The stage: recordings, the shown moment, the selection, and the views.

import type { Theme } from "../look/theme.ts";
import { onThemeChange, readTheme } from "../look/theme.ts";
import type { Selection } from "../model/payloads.ts";
import { runningWords } from "../model/phrases.ts";
import { Side } from "../model/side.ts";
import type { ViewModule } from "../views/view.ts";
import type { Reference, StageEvents, Track } from "./host.ts";
import { Inbox } from "./inbox.ts";
import type { Links } from "./links.ts";
import type { Mode, ModeEvent } from "./mode.ts";
import { isAlong, isBroughtByLab, modeAfter } from "./mode.ts";
import { motionOf } from "./motion.ts";
import type { Part } from "./painting.ts";
import { Painting } from "./painting.ts";
import type { PairCaption } from "./pair_track.ts";
import { PairTrack } from "./pair_track.ts";
import { Player } from "./player.ts";
import { Pointing } from "./pointing.ts";
import { Questions } from "./questions.ts";
import type { Slides } from "./slides.ts";
import { SoloTrack } from "./track.ts";
import type { Landmark } from "./visibility.ts";
import { Visibility } from "./visibility.ts";
import type { Source } from "./wire.ts";
import { Wire } from "./wire.ts";

export type PairStage = Omit<Stage, "track"> & { track: PairTrack };

export class Stage {
  selection: Selection | null = null;
  position = 0; // the shown one, on the track
  speed = 1;
  mode: Mode = "loading";
  reference: Reference | null = null; // the marked moment
  listeners: { [Name in keyof StageEvents]?: ((...details: StageEvents[Name]) => void)[] } = {};
  themeRead: Theme | null = null; // null until it is read again
  isPlain = false;
  isNarrow = false; // narrower than its layout wants
  tip!: HTMLElement; // the overlay makes these three
  slides!: Slides;
  links!: Links;
  drawer?: { tabs: Map<string, HTMLElement> }; // for tests and the console
  askWhy?: (about?: string, side?: number) => void; // of layouts with a place for answers
  end = new AbortController(); // of everything that listens to the page
  sides = Array.from({ length: this.numSides }, (_, index) => new Side(index));
  track: Track = this.numSides > 1 ? new PairTrack(this.sides) : new SoloTrack(this.sides[0]);
  painting = new Painting(this);
  questions = new Questions(this);
  inbox = new Inbox(this);
  player = new Player(this);
  wire = new Wire(this.source, (content, payload) => this.inbox.receive(content, payload));
  visibility!: Visibility;
  pointing?: Pointing;
  sizes?: ResizeObserver;

  constructor(
    readonly root: HTMLElement,
    readonly source: Source | null,
    readonly numSides = 1,
  ) {
    Object.assign(root, { stage: this }); // for the browser's console
    this.on("status", () => this.changed());
    this.on("painted", () => this.onPainted());
  }

  // Once the layout stands: watch visibility, mouse and theme.
  open(landmarks: Landmark[]) {
    const { signal } = this.end;
    this.visibility = new Visibility(this.root, landmarks, () => this.onVisibility());
    this.pointing = new Pointing(this, signal);
    document.addEventListener("visibilitychange", () => this.onVisibility(), { signal });
    onThemeChange(() => this.dress(), signal);
    this.sizes = new ResizeObserver(() => {
      this.pointing?.hideTip();
      this.painting.resized();
    });
    this.sizes.observe(this.root);
    for (const { view } of this.shows) this.sizes.observe(view.element);
    signal.addEventListener("abort", () => [this.visibility, this.sizes].forEach((observer) => observer?.disconnect()));
  }

  close() {
    this.end.abort();
    this.player.stop();
    for (const part of [this.wire, this.questions, this.inbox, this.painting]) part.close();
    this.root.remove();
  }

  // -- the interface for views and layouts

  // Puts a view into an element. isShown: can it be seen at all (an open tab)?
  show(module: ViewModule, side: number, parent: HTMLElement, isShown: () => boolean = () => true) {
    const view = module.create(this, this.sides[side]);
    view.element.dataset.side = String(side);
    parent.append(view.element);
    this.sizes?.observe(view.element);
    return this.painting.show(view, side, isShown);
  }

  // A part of the layout that is painted with every change: {paint()}.
  add<T extends Part>(part: T): T {
    this.painting.parts.push(part);
    return part;
  }

  get shows() {
    return this.painting.shows;
  }

  get parts() {
    return this.painting.parts;
  }

  changed() {
    this.painting.changed();
  }

  repaint() {
    this.painting.repaint();
  }

  // Calls `act` at each notification of this kind.
  on<Name extends keyof StageEvents>(name: Name, act: (...details: StageEvents[Name]) => void) {
    const acts: ((...details: StageEvents[Name]) => void)[] = (this.listeners[name] ??= []);
    acts.push(act);
  }

  emit<Name extends keyof StageEvents>(name: Name, ...details: StageEvents[Name]) {
    for (const act of this.listeners[name] ?? []) act(...details);
  }

  get isPair() {
    return this.sides.length > 1;
  }

  get status() {
    return this.sides[0].status;
  }

  get isReady() {
    return this.mode !== "loading";
  }

  // True if the view follows when the lab goes on.
  get isFollowing() {
    return isAlong(this.mode);
  }

  // True if the lab, and not the reader, brought the view to its moment.
  get isFollowed() {
    return isBroughtByLab(this.mode);
  }

  happened(event: ModeEvent) {
    this.mode = modeAfter(this.mode, event);
  }

  get isPlaying() {
    return this.player.isPlaying;
  }

  get isLive() {
    return this.wire.canAsk && this.isReady && (this.status.is_live ?? this.sides[0].recording.header.is_live ?? false);
  }

  // False for a recording, and for an engine that steps elsewhere: the note says which.
  get hasControls() {
    return this.isLive && !this.status.note;
  }

  // Shows a position that the reader chose: a play ends, and Python is notified.
  moveTo(position: number) {
    this.player.stop();
    this.go(this.within(position), false);
    this.questions.reportMoment();
  }

  within(position: number) {
    return Math.max(this.track.first, Math.min(position, this.track.end));
  }

  back() {
    this.moveTo(this.track.previous(this.position));
  }

  forward() {
    this.moveTo(this.track.next(this.position));
  }

  // Before the step; where one stands there, that is the end of the step before, and this goes before that one.
  first() {
    if (this.position <= this.track.first) void this.askOlder();
    else this.moveTo(this.track.span(this.position).start);
  }

  // The newest moment.
  last() {
    this.moveTo(this.track.end);
  }

  // Ends a play: at its guided sentence, else at the newest moment.
  skipPlay() {
    const { target } = this.player;
    if (target !== null && this.track.guide.length) this.moveTo(target);
    else this.last();
  }

  // To the end of the step before, or of the next one; within a step to its own end, which is the next.
  step(direction: number) {
    const { track, position } = this,
      { index } = track.span(position),
      isInside = direction > 0 && index >= 0 && position < track.endOf(index);
    const next = isInside ? index : index + direction;
    if (next < -1) void this.askOlder();
    else if (next >= track.numSpans) this.last();
    else this.moveTo(track.endOf(next));
  }

  // From here on to the end; the last step again, if one stands there.
  play() {
    this.visibility.approach();
    const from = this.position >= this.track.end ? this.track.span(this.position).start : this.position;
    this.player.play(from, this.track.end, () => this.questions.reportMoment());
    this.changed();
  }

  pause() {
    this.player.stop();
    this.questions.reportMoment();
    this.changed();
  }

  setSpeed(speed: number) {
    this.speed = this.player.speed = speed;
    this.changed();
  }

  select(selection: Selection | null, isHeard = true) {
    this.selection = selection?.kind ? selection : null;
    this.pointing?.mark();
    this.painting.mark(this.selection);
    this.emit("select", this.selection, isHeard);
    const { num_selects } = this.inbox.heard;
    if (isHeard) this.wire.send({ type: "select", side: 0, selection: this.selection, num_selects });
  }

  // Marks the changes since this moment; null marks nothing.
  compareWith(position: number | null) {
    const moments = position === null ? null : this.track.moments(position);
    this.reference =
      position === null ? null : { position, name: this.track.nameOf(position), step: this.track.span(position).step };
    this.sides.forEach((side, i) => side.compareWith(moments?.[i] ?? null));
    this.repaint();
  }

  ask(type: string, fields: Record<string, unknown> = {}) {
    return this.wire.ask(type, { side: 0, ...fields });
  }

  // Sends a command to the lab.
  command(action: string, args: Record<string, unknown> = {}) {
    this.emit("command", action);
    if (["step", "phase", "start"].includes(action)) {
      this.player.stop();
      this.go(this.track.end, false);
      this.visibility.approach();
    } else if (action === "pause" && this.isPlaying) {
      this.player.stop();
      this.go(this.track.end, false, true);
    }
    const side = this.isPair ? {} : { side: 0 };
    if (!this.wire.send({ type: "command", ...side, action, ...args })) this.emit("gone");
  }

  askOlder() {
    return this.questions.askOlder();
  }

  seekStep(step: number) {
    return this.questions.seekStep(step);
  }

  // -- the moment

  // Shows a position. isLabs: the lab went there, not the reader.
  go(position: number, isAnimated: boolean, isLabs = false) {
    if (!this.isReady) return;
    this.happened(isLabs ? "labMoved" : position >= this.track.end ? "wentToEnd" : "wentBack");
    const isSlid = isAnimated && this.visibility.isEnough && this.slides.canBeSeen(position),
      from = this.track.moments(this.position),
      to = this.track.moments(position);
    const motions =
      isSlid && !this.theme.isStill
        ? this.sides.map(({ recording }, side) => motionOf(recording, from[side], to[side]))
        : [];
    const slides = motions.some(({ moves }) => moves.length);
    if (slides) {
      this.painting.flush();
      motions.forEach((motion, side) => this.slides.before(motion, side));
    }
    this.position = position;
    this.changed();
    if (slides) {
      this.painting.flush();
      motions.forEach((motion, side) => this.slides.after(motion, side));
    }
  }

  // Read once per theme, when the root stands in the page and the style sheet has its say.
  get theme() {
    return (this.themeRead ??= readTheme(this.root));
  }

  dress() {
    this.themeRead = null;
    this.repaint();
  }

  onVisibility() {
    if (!this.visibility.isVisible) return;
    if (this.painting.isDirty) this.changed();
    this.player.resume();
  }

  onPainted() {
    this.pointing?.repainted();
    this.questions.askWords();
  }

  // The caption of the moment that is shown.
  get caption(): PairCaption {
    const caption = this.track.caption(this.position),
      { opening } = this.track,
      isResting = this.mode === "resting" || this.mode === "opened";
    if (isResting && opening && opening[0] === this.position) return { ...caption, sentence: opening[1] };
    const isRunning = this.isFollowed && this.status.running;
    return isRunning ? { ...caption, sentence: runningWords(this.sides[0].scene) } : caption;
  }
}
