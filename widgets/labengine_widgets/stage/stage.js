// The stage: recordings, the moment at which they stand, what is chosen, and the views, painted once a frame with what changed.
import { onThemeChange, readTheme } from "../look/theme.js";
import { Player } from "./player.js";
import { Pointing } from "./pointing.js";
import { Side } from "./side.js";
import { Sight } from "./sight.js";
import { PairTrack } from "./pair_track.js";
import { SoloTrack } from "./track.js";
import { Wire } from "./wire.js";
import { motionOf } from "./motion.js";
import { runningWords } from "./telling.js";

const SILENCE_MS = 4000;
const FRAME_MS = 20; // a frame that comes later than this was kept waiting
const CHEAP_MS = 2; // a view that takes less is never kept waiting
const LONGEST_MS = 2000; // between two paints of a slow view
const SHARE = 6; // slow views may take a seventh of the time
const MANY = 500; // events at once, too many to point at their blocks
const TELL_WHERE_MS = 100;
const ASK_WORDS_MS = 120;
const NO_CHANGES = () => ({ all: false, blocks: new Set(), requests: new Set(), keys: new Set(), queue: false, tier: false });

export class Stage {
  constructor(root, source, numSides = 1) {
    Object.assign(this, { root, numSides, selection: null, position: 0, wanted: 0, speed: 1, isReady: false, shows: [], parts: [], listeners: new Map(), request: 0 });
    this.end = new AbortController();
    this.sides = Array.from({ length: numSides }, (_, index) => new Side(index));
    this.track = numSides > 1 ? new PairTrack(this.sides) : new SoloTrack(this.sides[0]);
    this.isFollowing = true;
    this.focus = this.sides.map(() => []);
    this.themeRead = null;
    this.slowAt = 0;
    this.wire = new Wire(source, (content, payload) => this.receive(content, payload));
    this.player = new Player(this, () => this.sight.isEnough, (position, isAnimated) => this.go(position, isAnimated));
    this.on("status", () => this.changed());
  }

  // When the layout stands: watch who looks, where the mouse is, which theme it is.
  open(landmarks) {
    const { signal } = this.end;
    this.sight = new Sight(this.root, landmarks, () => this.onSight());
    this.pointing = new Pointing(this, signal);
    document.addEventListener("visibilitychange", () => this.onSight(), { signal });
    onThemeChange(() => this.dress(), signal);
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(this.root);
    for (const { view } of this.shows) this.sizes.observe(view.element);
    signal.addEventListener("abort", () => [this.sight, this.sizes].forEach((observer) => observer.disconnect()));
  }

  close() {
    this.end.abort();
    this.player.stop();
    this.wire.close();
    cancelAnimationFrame(this.request);
    for (const timer of [this.patience, this.whereTimer, this.wordsTimer, this.later]) clearTimeout(timer);
    for (const { view } of this.shows) view.destroy();
    this.root.remove();
  }

  // -- what views and layouts use --------------------------------------------------------------------------------------

  // Puts a view into an element. isShown: can it be seen at all (an open tab)?
  show(module, side, parent, isShown = () => true) {
    const view = module.create(this, this.sides[side]);
    view.element.dataset.side = side;
    parent.append(view.element);
    const entry = { view, side, isShown, pending: { ...NO_CHANGES(), all: true }, from: 0, cost: 0, spent: 0, paintedAt: 0 };
    this.shows.push(entry);
    this.sizes?.observe(view.element);
    return entry;
  }

  // A part of the layout that is painted with every change: {paint()}.
  add(part) {
    this.parts.push(part);
    return part;
  }

  on(name, act) {
    const list = this.listeners.get(name) || [];
    this.listeners.set(name, [...list, act]);
    return () => this.listeners.set(name, this.listeners.get(name).filter((one) => one !== act));
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
    return this.wire.canAsk && this.isReady && this.sides[0].recording.header.is_live;
  }

  text(side, tokenId) {
    return (typeof side === "number" ? this.sides[side] : side).text(tokenId);
  }

  // Stand somewhere, as the reader wishes: a play ends, and Python hears of it.
  stand(position) {
    this.player.stop();
    this.go(Math.max(this.track.first, Math.min(position, this.track.end)), false);
    this.sayWhere();
  }

  back() {
    this.stand(this.track.previous(this.position));
  }

  forward() {
    this.stand(this.track.next(this.position));
  }

  // Before the step; before the one before it, if one stands there already.
  first() {
    const { start } = this.track.span(this.position);
    if (this.position > start || start <= this.track.first) return this.stand(start);
    this.step(-1);
  }

  // The newest moment.
  last() {
    this.stand(this.track.end);
  }

  // To the beginning of the step before, or the end of the next one.
  step(direction) {
    const { index } = this.track.span(this.position), next = index + direction;
    if (next < -1) return this.askOlder();
    if (next >= this.track.numSpans) return this.last();
    const span = this.track.spanOf(next);
    this.track.index = next;
    this.stand(direction < 0 ? span.start : span.end);
  }

  // From here on to the end; the last step again, if one stands there.
  play() {
    this.sight.approach();
    const from = this.position >= this.track.end ? this.track.span(this.position).start : this.position;
    this.player.play(from, this.track.end);
    this.changed();
  }

  pause() {
    this.player.stop();
    this.sayWhere();
    this.changed();
  }

  setSpeed(speed) {
    this.speed = this.player.speed = speed;
    this.changed();
  }

  select(selection, isHeard = true) {
    this.selection = selection && selection.kind ? selection : null;
    this.pointing?.mark();
    for (const { view } of this.shows) view.mark(this.selection);
    this.tell("select", this.selection);
    if (isHeard) this.wire.send({ type: "select", side: 0, selection: this.selection });
  }

  // What changed since a moment of this side is marked; null: nothing is.
  compareWith(position) {
    const moments = position === null ? null : this.track.moments(position);
    this.reference = position;
    this.sides.forEach((side, i) => side.compareWith(moments && moments[i]));
    this.repaint();
  }

  ask(type, fields = {}) {
    return this.wire.ask(type, { side: 0, ...fields });
  }

  wish(action, args = {}) {
    this.tell("wish", action);
    if (action === "step" || action === "phase") {
      this.player.stop();
      this.go(this.track.end, false);
      this.sight.approach();
    }
    const side = this.isPair ? {} : { side: 0 };
    if (!this.wire.send({ type: "wish", ...side, action, ...args })) this.tell("gone");
  }

  // -- messages --------------------------------------------------------------------------------------------------------

  receive(content, payload) {
    const act = MESSAGES[content.type];
    if (act) act.call(this, content, payload, this.sides[content.side || 0]);
    else this.tell(content.type, payload, content);
  }

  resync() {
    if (this.isResyncing) return;
    this.isResyncing = true;
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.tell("silence"), SILENCE_MS);
    for (const { index } of this.sides) if (!this.wire.send({ type: "resync", side: index })) this.gone();
  }

  gone() {
    clearTimeout(this.patience);
    this.tell("gone");
  }

  present() {
    this.isResyncing = false;
    clearTimeout(this.patience);
    this.tell("present");
  }

  begin(payload, side) {
    const known = side.recording, { header } = payload;
    const isSame = known && known.header.lab === header.lab && known.header.generation === header.generation;
    const isNews = !isSame || payload.start + payload.events.length !== known.end;
    const isWorse = isSame && !isNews && known.start <= payload.start;
    if (payload.status) this.hearStatus(payload.status, side);
    if (isWorse) return this.learn(known, header);
    const stood = this.position;
    side.begin(payload, isNews ? undefined : side.moment);
    if (!isSame && side.index === 0) this.track.beats?.clear();
    this.addWords(payload, side);
    this.isReady = this.sides.every(({ recording }) => recording);
    if (!this.isReady) return;
    if (side.index === 0) this.select(payload.selection ?? this.selection, false);
    this.tell("began", side);
    if (this.isPair) return this.repaint();
    if (isNews) {
      this.player.stop();
      this.isResting = true;
      const moment = payload.stand ?? this.track.end;
      this.isFollowing = payload.stand === null || payload.stand === undefined;
      this.track.index = -2;
      this.position = this.wanted = Math.max(this.track.first, Math.min(moment, this.track.end));
    } else this.position = this.wanted = Math.min(stood, this.track.end);
    this.repaint();
  }

  // The same events again: what was saved is without the code.
  learn({ header }, { code }) {
    if (!code || Object.keys(header.code || {}).length) return;
    header.code = code;
    this.repaint();
  }

  more(content, payload, side) {
    const { recording } = side;
    if (content.status) this.hearStatus(content.status, side);
    if (!recording || (content.generation ?? recording.header.generation) !== recording.header.generation || payload.start !== recording.end) return this.resync();
    recording.more(payload);
    this.hasNews = true;
    if (payload.told !== null && payload.told !== undefined) this.addWords({ ...payload, told: [[payload.told, recording.end]] }, side);
    this.tell("more", side, payload);
    if (this.isPair) return;
    if (payload.beats && payload.beats.length && payload.told !== null) this.playNews(payload.told);
    else if (this.isFollowing && !this.player.isPlaying) this.go(recording.end, false, true);
    else if (this.player.isPlaying) {
      this.player.stop();
      this.go(recording.end, false, true);
    }
    this.changed();
  }

  // A new step ends the play of the one before; the rest of the same one is played on.
  playNews(from) {
    const { recording } = this.sides[0];
    if (recording.kind(from) === "StepStarted") this.player.stop();
    this.player.play(from, recording.end);
  }

  // The joint words of two labs: what is new is played, or stood at, as after `more` of one.
  hearPair(payload) {
    const { end } = this.track, isAtEnd = this.position >= end;
    if (!this.track.hear(payload)) return this.resync();
    this.tell("beats");
    if (!this.isReady) return;
    if (payload.told && this.track.end > end) this.player.play(end, this.track.end);
    else if (isAtEnd && !this.player.isPlaying) this.go(this.track.end, false, true);
    this.repaint();
  }

  addWords(payload, side) {
    if (side.index !== 0 || !this.track.beats) return;
    for (const [start, end] of payload.told || []) this.track.beats.add(start, end, (payload.beats || []).filter(([at]) => at > start && at <= end));
    if (payload.rest) this.track.rest = payload.rest;
  }

  hearStatus(status, side) {
    side.status = status;
    this.tell("status", status, side);
  }

  // -- older events and missing words ------------------------------------------------------------------------------------

  askOlder() {
    const { recording } = this.sides[0];
    if (this.asksOlder || !this.wire.canAsk || this.isPair || recording.start <= recording.header.first) return Promise.resolve(false);
    this.asksOlder = this.ask("older", { before: recording.start }).then((payload) => {
      if (payload && payload.end === recording.start) recording.older(payload);
      return true;
    }, () => false).finally(() => {
      this.asksOlder = null;
      this.changed();
    });
    return this.asksOlder;
  }

  // Goes to a step that may not be here yet.
  async seekStep(step, isAtEnd = true) {
    const { recording } = this.sides[0];
    while (recording.steps.length && step < recording.steps[0].step && recording.start > recording.header.first) if (!(await this.askOlder())) break;
    let index = recording.steps.length - 1;
    while (index > 0 && recording.steps[index].step > step) index -= 1;
    if (step < (recording.steps[0]?.step ?? 0)) index = -1;
    const span = this.track.spanOf(index);
    this.track.index = index;
    this.stand(isAtEnd ? span.end : span.start);
  }

  askWords() {
    clearTimeout(this.wordsTimer);
    if (!this.wire.canAsk || !this.track.beats || this.isResyncing) return;
    const { start, end } = this.track.span(this.position);
    if (this.status.running || this.track.beats.covers(start, end)) return;
    this.wordsTimer = setTimeout(() => this.ask("beats", { start, end }).then((payload) => this.hearWords(payload), () => {}), ASK_WORDS_MS);
  }

  hearWords(payload) {
    this.addWords({ ...payload, told: [[payload.start, payload.end]] }, this.sides[0]);
    if (payload.rest && this.isFollowed) this.isResting = true;
    this.tell("beats");
    this.changed();
  }

  sayWhere() {
    if (this.whereTimer || this.isPair) return;
    this.whereTimer = setTimeout(() => {
      this.whereTimer = 0;
      const moment = this.position >= this.track.end ? null : this.position;
      if (moment !== this.whereTold) this.wire.send({ type: "at", side: 0, moment });
      this.whereTold = moment;
    }, TELL_WHERE_MS);
  }

  // -- painting ----------------------------------------------------------------------------------------------------------

  // isFollowed: not the reader went there, the lab did.
  go(position, isAnimated, isFollowed = false) {
    if (!this.isReady) return;
    this.isFollowing = isFollowed || position >= this.track.end;
    this.isFollowed = isFollowed;
    this.isResting = false;
    const isSlid = isAnimated && this.sight.isEnough && this.slides, from = this.track.moments(this.position), to = this.track.moments(position);
    const motions = isSlid && !this.theme.isStill ? this.sides.map(({ recording }, side) => motionOf(recording, from[side], to[side])) : [];
    const slides = motions.some(({ moves }) => moves.length);
    if (slides) this.flush(), motions.forEach((motion, side) => this.slides.before(motion, side));
    this.position = position;
    this.changed();
    if (slides) this.flush(), motions.forEach((motion, side) => this.slides.after(motion, side));
  }

  changed() {
    this.isDirty = true;
    if (this.request || !this.sight?.isVisible) return;
    this.request = requestAnimationFrame(() => this.flush());
  }

  repaint() {
    for (const entry of this.shows) entry.pending.all = true;
    this.changed();
  }

  resized() {
    for (const { view } of this.shows) view.resize?.();
    this.repaint();
  }

  // Read once per theme, when the root stands in the page and the style sheet has its say.
  get theme() {
    return (this.themeRead ??= readTheme(this.root));
  }

  dress() {
    this.themeRead = null;
    this.repaint();
  }

  flush() {
    cancelAnimationFrame(this.request);
    this.request = 0;
    if (!this.isDirty || !this.isReady || !this.root.isConnected || !this.sight.isVisible) return;
    this.isDirty = false;
    const moments = this.track.moments(this.position);
    this.focus = this.focused(moments);
    for (const side of this.sides) this.note(side, side.move(moments[side.index]));
    this.paintViews();
    for (const part of this.parts) part.paint();
    if (this.selection || this.pointing.subject) this.pointing.mark();
    this.pointing.refresh();
    this.askWords();
    this.tell("painted");
  }

  // The blocks that the events told last are about, per side; none while a lab is followed.
  focused(moments) {
    const { start } = this.track.span(this.position);
    if (this.position <= start || (this.isFollowed && this.status.running)) return this.sides.map(() => []);
    const before = this.track.moments(this.track.previous(this.position));
    return this.sides.map(({ recording }, i) => (moments[i] - before[i] <= MANY ? motionOf(recording, before[i], moments[i]).focus : []));
  }

  note(side, changes) {
    for (const { side: index, pending } of this.shows) {
      if (index !== side.index || pending.all) continue;
      pending.all = changes.all;
      pending.queue ||= changes.queue;
      pending.tier ||= changes.tier;
      for (const name of ["blocks", "requests", "keys"]) for (const id of changes[name]) pending[name].add(id);
    }
  }

  // A slow view waits: for the next frame where news have just come, so that they are seen at once; and while a lab runs by
  // itself for its turn, so that all slow ones together leave the others their pace.
  paintViews() {
    const begun = performance.now(), isHurried = this.isFollowed && this.status.running, painted = [];
    const shown = this.shows.filter((entry) => entry.isShown()), slow = shown.filter(({ cost }) => cost > CHEAP_MS);
    for (const entry of shown) if (!slow.includes(entry)) painted.push(entry);
    const wait = isHurried ? this.slowAt - begun : this.hasNews ? 1 : 0;
    this.hasNews = false;
    if (wait <= 0) painted.push(...(isHurried ? slow.sort((a, b) => a.paintedAt - b.paintedAt).slice(0, 1) : slow));
    for (const entry of painted) this.paintView(entry);
    clearTimeout(this.later);
    if (slow.length && (wait > 0 || isHurried)) this.later = setTimeout(() => this.changed(), Math.max(0, wait));
    const charged = painted.filter(({ wasAll }) => !wasAll); // to draw all of it once says little about the changes to come
    this.charge(charged.filter(({ spent, cost }) => spent > CHEAP_MS || cost > CHEAP_MS), charged);
  }

  // What a paint costs: the time it takes, and the browser's work after it, which the slow ones bear.
  charge(slow, painted) {
    const ended = performance.now(), total = slow.reduce((sum, { spent }) => sum + spent, 0);
    for (const entry of painted) if (!slow.includes(entry)) entry.cost = entry.spent;
    if (!slow.length) return;
    requestAnimationFrame(() => {
      const late = Math.max(0, performance.now() - ended - FRAME_MS);
      for (const entry of slow) entry.cost = entry.cost / 2 + (entry.spent + (late * entry.spent) / total) / 2;
      this.slowAt = performance.now() + Math.min(LONGEST_MS, SHARE * (total + late));
    });
  }

  paintView(entry) {
    entry.paintedAt = performance.now();
    entry.wasAll = entry.pending.all;
    const { scene, moment, reference } = this.sides[entry.side], changes = entry.pending;
    entry.pending = NO_CHANGES();
    entry.view.paint(scene, changes, { moment, from: entry.from, isPlaying: this.isPlaying, isRunning: this.isFollowed && Boolean(this.status.running), reference, focus: this.focus[entry.side] });
    entry.from = moment;
    entry.spent = performance.now() - entry.paintedAt;
  }

  onSight() {
    if (!this.sight.isVisible) return;
    if (this.isDirty) this.changed();
    this.player.resume();
  }

  // What is said of the moment.
  get told() {
    const told = this.track.told(this.position), { rest } = this.track;
    if (this.isResting && rest && rest[0] === this.position) return { ...told, sentence: rest[1] };
    return this.isFollowed && this.status.running ? { ...told, sentence: runningWords(this.sides[0].scene) } : told;
  }
}

const MESSAGES = {
  full(content, payload, side) {
    if (content.view) this.present();
    this.begin(payload, side);
  },
  more(content, payload, side) {
    this.more(content, payload, side);
  },
  older() {},
  beats(content, payload) {
    if (payload && content.id === undefined) this.hearWords(payload);
  },
  why() {},
  compare(content, payload) {
    this.hearPair(payload);
  },
  status(content, payload, side) {
    this.hearStatus(content.status, side);
  },
  answer(content) {
    if (content.view === this.wire.id) this.tell("answer", content);
  },
  select(content) {
    if (content.from !== this.wire.id) this.select(content.selection, false);
  },
  stand(content) {
    if (!this.isReady || this.isPair) return;
    this.player.stop();
    this.track.index = -2;
    this.go(Math.max(this.track.first, Math.min(content.moment ?? this.track.end, this.track.end)), false);
  },
  failure(content) {
    this.tell("failure", content.message);
  },
};
