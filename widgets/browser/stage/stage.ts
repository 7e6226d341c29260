// The stage: recordings, the moment at which they stand, what is chosen, and the views that show it.
import { onThemeChange, readTheme } from "../look/theme.ts";
import { Asking } from "./asking.ts";
import { Hearing } from "./hearing.ts";
import { motionOf } from "./motion.ts";
import { Painting } from "./painting.ts";
import { PairTrack } from "./pair_track.ts";
import { Player } from "./player.ts";
import { Pointing } from "./pointing.ts";
import { Side } from "./side.ts";
import { Sight } from "./sight.ts";
import { runningWords } from "./telling.ts";
import { SoloTrack } from "./track.ts";
import { Wire } from "./wire.ts";

export class Stage {
  constructor(root, source, numSides = 1) {
    Object.assign(this, {
      root,
      numSides,
      selection: null,
      position: 0,
      speed: 1,
      isReady: false,
      isFollowing: true,
      isFollowed: false,
      isResting: false,
      reference: null,
      listeners: new Map(),
      themeRead: null,
    });
    root.stage = this; // for whoever looks at the page with the browser's tools
    this.end = new AbortController();
    this.sides = Array.from({ length: numSides }, (_, index) => new Side(index));
    this.track = numSides > 1 ? new PairTrack(this.sides) : new SoloTrack(this.sides[0]);
    this.painting = new Painting(this);
    this.asking = new Asking(this);
    this.hearing = new Hearing(this);
    this.wire = new Wire(source, (content, payload) => this.receive(content, payload));
    this.player = new Player(
      this,
      () => this.sight.isEnough,
      (position, isAnimated) => this.go(position, isAnimated),
    );
    this.on("status", () => this.changed());
  }

  // When the layout stands: watch who looks, where the mouse is, which theme it is.
  open(landmarks) {
    const { signal } = this.end;
    this.sight = new Sight(this.root, landmarks, () => this.onSight());
    this.pointing = new Pointing(this, signal);
    document.addEventListener("visibilitychange", () => this.onSight(), { signal });
    onThemeChange(() => this.dress(), signal);
    this.sizes = new ResizeObserver(() => this.painting.resized());
    this.sizes.observe(this.root);
    for (const { view } of this.shows) this.sizes.observe(view.element);
    signal.addEventListener("abort", () => [this.sight, this.sizes].forEach((observer) => observer.disconnect()));
  }

  close() {
    this.end.abort();
    this.player.stop();
    for (const part of [this.wire, this.asking, this.hearing, this.painting]) part.close();
    this.root.remove();
  }

  // -- what views and layouts use --------------------------------------------------------------------------------------

  // Puts a view into an element. isShown: can it be seen at all (an open tab)?
  show(module, side, parent, isShown = () => true) {
    const view = module.create(this, this.sides[side]);
    view.element.dataset.side = side;
    parent.append(view.element);
    this.sizes?.observe(view.element);
    return this.painting.show(view, side, isShown);
  }

  // A part of the layout that is painted with every change: {paint()}.
  add(part) {
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

  on(name, act) {
    const list = this.listeners.get(name) || [];
    this.listeners.set(name, [...list, act]);
    return () =>
      this.listeners.set(
        name,
        this.listeners.get(name).filter((one) => one !== act),
      );
  }

  tell(name, ...details) {
    for (const act of this.listeners.get(name) || []) act(...details);
  }

  get isPair() {
    return this.sides.length > 1;
  }

  get status() {
    return this.sides[0].status;
  }

  get beats() {
    return this.track.beats;
  }

  get isPlaying() {
    return this.player.isPlaying;
  }

  get isLive() {
    return this.wire.canAsk && this.isReady && (this.status.is_live ?? this.sides[0].recording.header.is_live);
  }

  text(side, tokenId) {
    return (typeof side === "number" ? this.sides[side] : side).text(tokenId);
  }

  // Stand somewhere, as the reader wishes: a play ends, and Python hears of it.
  stand(position) {
    this.player.stop();
    this.go(this.within(position), false);
    this.asking.sayWhere();
  }

  within(position) {
    return Math.max(this.track.first, Math.min(position, this.track.end));
  }

  back() {
    this.stand(this.track.previous(this.position));
  }

  forward() {
    this.stand(this.track.next(this.position));
  }

  // Before the step; where one stands there, that is the end of the step before, and this goes before that one.
  first() {
    if (this.position <= this.track.first) return this.askOlder();
    this.stand(this.track.span(this.position).start);
  }

  // The newest moment.
  last() {
    this.stand(this.track.end);
  }

  // To the end of the step before, or of the next one; within a step to its own end, which is the next.
  step(direction) {
    const { track, position } = this,
      { index } = track.span(position),
      isInside = direction > 0 && index >= 0 && position < track.endOf(index);
    const next = isInside ? index : index + direction;
    if (next < -1) return this.askOlder();
    if (next >= track.numSpans) return this.last();
    this.stand(track.endOf(next));
  }

  // From here on to the end; the last step again, if one stands there.
  play() {
    this.sight.approach();
    const from = this.position >= this.track.end ? this.track.span(this.position).start : this.position;
    this.player.play(from, this.track.end, () => this.asking.sayWhere());
    this.changed();
  }

  pause() {
    this.player.stop();
    this.asking.sayWhere();
    this.changed();
  }

  setSpeed(speed) {
    this.speed = this.player.speed = speed;
    this.changed();
  }

  select(selection, isHeard = true) {
    this.selection = selection && selection.kind ? selection : null;
    this.pointing?.mark();
    this.painting.mark(this.selection);
    this.tell("select", this.selection);
    if (isHeard) this.wire.send({ type: "select", side: 0, selection: this.selection });
  }

  // What changed since this moment is marked; null: nothing is.
  compareWith(position) {
    const moments = position === null ? null : this.track.moments(position);
    this.reference =
      position === null ? null : { position, name: this.track.nameOf(position), step: this.track.span(position).step };
    this.sides.forEach((side, i) => side.compareWith(moments && moments[i]));
    this.repaint();
  }

  ask(type, fields = {}) {
    return this.wire.ask(type, { side: 0, ...fields });
  }

  wish(action, args = {}) {
    this.tell("wish", action);
    if (["step", "phase", "start"].includes(action)) {
      this.player.stop();
      this.go(this.track.end, false);
      this.sight.approach();
    } else if (action === "pause" && this.isPlaying) {
      this.player.stop();
      this.go(this.track.end, false, true);
    }
    const side = this.isPair ? {} : { side: 0 };
    if (!this.wire.send({ type: "wish", ...side, action, ...args })) this.tell("gone");
  }

  askOlder() {
    return this.asking.askOlder();
  }

  seekStep(step) {
    return this.asking.seekStep(step);
  }

  // -- what Python says --------------------------------------------------------------------------------------------------

  receive(content, payload) {
    this.hearing.receive(content, payload);
  }

  begin(payload, side) {
    this.hearing.begin(payload, side);
  }

  hearPair(payload) {
    this.hearing.pair(payload);
  }

  // isAnew: whoever was asked before is there no longer.
  resync(isAnew = false) {
    if (isAnew) this.hearing.isResyncing = false;
    this.hearing.resync();
  }

  // -- the moment --------------------------------------------------------------------------------------------------------

  // isFollowed: not the reader went there, the lab did.
  go(position, isAnimated, isFollowed = false) {
    if (!this.isReady) return;
    this.isFollowing = isFollowed || position >= this.track.end;
    this.isFollowed = isFollowed;
    this.isResting = false;
    const isSlid = isAnimated && this.sight.isEnough && this.slides?.canBeSeen(position),
      from = this.track.moments(this.position),
      to = this.track.moments(position);
    const motions =
      isSlid && !this.theme.isStill
        ? this.sides.map(({ recording }, side) => motionOf(recording, from[side], to[side]))
        : [];
    const slides = motions.some(({ moves }) => moves.length);
    if (slides) this.painting.flush(), motions.forEach((motion, side) => this.slides.before(motion, side));
    this.position = position;
    this.changed();
    if (slides) this.painting.flush(), motions.forEach((motion, side) => this.slides.after(motion, side));
  }

  // Read once per theme, when the root stands in the page and the style sheet has its say.
  get theme() {
    return (this.themeRead ??= readTheme(this.root));
  }

  dress() {
    this.themeRead = null;
    this.repaint();
  }

  onSight() {
    if (!this.sight.isVisible) return;
    if (this.painting.isDirty) this.changed();
    this.player.resume();
  }

  // What is said of the moment.
  get told() {
    const told = this.track.told(this.position),
      { rest } = this.track;
    if (this.isResting && rest && rest[0] === this.position) return { ...told, sentence: rest[1] };
    return this.isFollowed && this.status.running ? { ...told, sentence: runningWords(this.sides[0].scene) } : told;
  }
}
