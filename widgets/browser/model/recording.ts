// The browser's copy of a recording: its events, and the state at any moment among them. Works in a page and in a
// worker.
//
// A moment is a number of events: event number i leads from moment i to moment i + 1. The newest state is folded as
// events come; any other one is folded from the keyframe before it.

import { lastBefore } from "./arrays.ts";
import type { WireKeyframe } from "./event_rows.ts";
import type { AnyRow, FieldValue } from "./events.ts";
import { entryFor, Kinds } from "./events.ts";
import type { Handler } from "./fold.ts";
import { apply, HANDLERS } from "./fold.ts";
import { forgetEnded, forgetOld } from "./forgetting.ts";
import { TierLog } from "./key_maps.ts";
import type { Keyframe } from "./keyframe.ts";
import { packed, restore, takeUp } from "./keyframe.ts";
import type { Correction, FullPayload, Header, MorePayload, OlderPayload } from "./payloads.ts";
import { Scene } from "./scene.ts";
import type { Sentence } from "./sentence.ts";
import { isContent } from "./sentence.ts";
import { Shared } from "./shared.ts";
import type { Rollback } from "./steps.ts";
import { StepLog } from "./steps.ts";

const MAX_EVENTS = 100000; // of a live recording; the oldest go
const MAX_ENDED = 1000; // requests that had ended before the oldest event here, and are still known
const KEYFRAME_EVERY = 4096; // events, and more in a large pool: the larger it is, the more a copy costs
const SHORT = 512; // events: so far back, what changed is found out

// How much is kept; tests set less.
interface Limits {
  maxEvents?: number;
  keyframeEvery?: number;
  maxEnded?: number;
}

export class Recording {
  maxEvents: number;
  keyframeEvery: number;
  header: Header;
  earlier: [event: number, row: AnyRow][]; // violations and failures before the oldest event here
  kinds: Kinds;
  handlers: (Handler | null)[];
  texts: Map<number, string>;
  names: Map<number, string>; // the engine's own ids of requests
  seconds: Map<number, number>; // step -> seconds it took
  shared: Shared;
  maxEnded: number;
  shadow?: Scene; // goes the same way forth, to find out what a way back changes
  near!: Keyframe | null; // one more keyframe, where a reader goes back
  reader?: Scene; // for the contents of sentences
  start!: number;
  corrections: Map<number, WireKeyframe>;
  rows!: AnyRow[]; // from event number `start` on
  log!: StepLog;
  head!: Scene; // the newest state
  keyframes!: Keyframe[];
  // What the message `full` carries: {header, start, keyframe, events, texts, tier, seconds ...}.
  static full(payload: FullPayload, limits?: Limits) {
    return new Recording(payload, limits);
  }

  constructor(
    {
      header,
      start = 0,
      keyframe = null,
      events = [],
      texts = [],
      names = [],
      tier = [],
      seconds = [],
      earlier = [],
      corrections = [],
    }: FullPayload,
    limits: Limits = {},
  ) {
    this.maxEvents = limits.maxEvents ?? MAX_EVENTS;
    this.keyframeEvery = limits.keyframeEvery ?? KEYFRAME_EVERY;
    this.header = header;
    this.earlier = [...earlier];
    this.kinds = new Kinds(header.kinds);
    this.handlers = this.kinds.names.map((name) => entryFor(HANDLERS, name) ?? null);
    this.texts = new Map(texts);
    this.names = new Map(names);
    this.seconds = new Map(seconds);
    this.shared = new Shared(start);
    this.maxEnded = limits.maxEnded ?? MAX_ENDED;
    this.corrections = new Map(corrections);
    this.begin(start, keyframe, tier);
    this.append(events);
  }

  // The oldest moment that the kernel can still tell of, the oldest one here, and the newest.
  get first() {
    return Math.min(this.header.first ?? this.start, this.start);
  }

  get end() {
    return this.start + this.rows.length;
  }

  // Event number i as it came: [kind, ...fields].
  row(i: number) {
    return this.rows[i - this.start];
  }

  kind(i: number) {
    return this.kinds.names[this.row(i)[0]];
  }

  // The override that takes blocks from the free queue, not always from its head; null without one. The prefix tree's
  // pool evicts before it takes, from the head like any other.
  get takenBy() {
    const seam = this.header.code?.BlockAllocated,
      methods = seam ? [seam, ...(seam.methods ?? [])] : [],
      found = methods.find(
        ({ base, is_custom, seam, module }) =>
          seam.endsWith(".take") && (base || is_custom) && module !== "labengine.core.radix.block_pool",
      );
    return found ? `${found.class}.take` : null;
  }

  field<Name extends string>(i: number, name: Name) {
    const row = this.row(i),
      place = this.kinds.fields[row[0]].get(name);
    return (place === undefined ? undefined : row[place]) as FieldValue<Name> | undefined;
  }

  // A tier is there once something was put into it, or loaded: from then on at every moment, so that nothing jumps.
  get hasTier() {
    return this.shared.tierLog.entries.length > 0;
  }

  // A tree is there once it has had a node, or where the part that would have one is known.
  get hasTree() {
    const seam = this.header.code?.NodeInserted,
      methods = seam ? [seam, ...(seam.methods ?? [])] : [];
    return this.head.tree.numTouches > 0 || methods.some((one) => one.seam.startsWith("PrefixTree."));
  }

  get steps() {
    return this.log.steps;
  }

  stepAt(moment: number) {
    return this.log.at(moment);
  }

  phaseAt(moment: number) {
    return this.log.phaseAt(moment);
  }

  // -- what the kernel sends

  // False if it does not follow what is here: messages were lost, and the whole recording is needed again.
  more({ start, events, texts = [], names = [], seconds = [], corrections = [], first }: MorePayload) {
    if (start !== this.end) return false;
    if (first !== undefined) this.header.first = first;
    this.learn(texts, names, seconds, corrections);
    if (this.correct(this.head, start)) this.keep();
    this.append(events);
    if (this.header.is_live && this.rows.length > this.maxEvents) this.dropOldest();
    return true;
  }

  // The recording before the oldest event here. Contents keep their numbers; new ones get the next.
  older({ start, keyframe, events, texts = [], names = [], tier = [], seconds = [], corrections = [] }: OlderPayload) {
    if (start + events.length !== this.start) return false;
    this.learn(texts, names, seconds, corrections);
    const rows = this.rows,
      [epoch] = this.shared.epochs,
      { contents } = epoch;
    this.shared.numberedTo = this.start;
    epoch.from = start;
    contents.settled = contents.size;
    this.begin(start, keyframe, tier);
    this.append(events);
    contents.settled = Infinity;
    this.begin(start, keyframe, tier);
    this.append(events);
    this.append(rows);
    this.maxEvents = Math.max(this.maxEvents, Math.min(3 * MAX_EVENTS, 1.1 * this.rows.length)); // it was asked for
    return true;
  }

  // -- standing at a moment

  // A separate scene to keep and to move.
  sceneAt(moment: number = this.end) {
    const scene = new Scene(this.shared);
    this.seek(scene, this.clamped(moment));
    return scene;
  }

  // Brings a scene to another moment, in place. Returns what changed; `all` after a long way.
  move(scene: Scene, moment: number) {
    const to = this.clamped(moment),
      from = scene.moment,
      tierLength = scene.tier.length;
    const isNear = from >= this.start && from <= this.end;
    if (isNear && to >= from && to - from <= this.spacing) this.forward(scene, to);
    else if (!isNear || to > from || from - to > SHORT) this.seek(scene, to);
    const changes = isNear && to < from && from - to <= SHORT ? this.back(scene, to) : scene.takeChanges();
    changes.tier ||= scene.tier.length !== tierLength;
    return changes;
  }

  // A short way back: what changes is what changes on the same way forth. The next one back will be shorter still.
  back(scene: Scene, to: number) {
    const from = scene.moment,
      shadow = (this.shadow ??= new Scene(this.shared));
    if (to - this.nearest(to).moment > 2 * SHORT) {
      this.seek(shadow, to - SHORT);
      this.near = packed(shadow);
    }
    this.seek(scene, to);
    this.seek(shadow, to);
    scene.takeChanges();
    shadow.takeChanges();
    this.forward(shadow, from);
    return shadow.takeChanges();
  }

  seek(scene: Scene, moment: number) {
    restore(scene, this.nearest(moment));
    this.forward(scene, moment);
  }

  nearest(moment: number) {
    const kept = this.keyframes[lastBefore(this.keyframes, moment + 1, momentOf)];
    return this.near && this.near.moment <= moment && this.near.moment > kept.moment ? this.near : kept;
  }

  // Rolled-back steps are passed over, unless the way ends in them.
  forward(scene: Scene, moment: number) {
    let rollback = this.log.rollbackAfter(scene.moment);
    if (rollback && rollback.start < scene.moment && rollback.end <= moment) this.seek(scene, rollback.start);
    while (rollback && rollback.end <= moment) {
      this.run(scene, rollback.start);
      scene.moment = rollback.end;
      rollback = this.log.rollbackAfter(rollback.end);
    }
    this.run(scene, moment);
    this.settle(scene);
    if (scene.version !== this.shared.version) forgetEnded(scene, this.head, this.start);
  }

  run(scene: Scene, moment: number) {
    const { start, kinds, handlers } = this;
    for (let i = scene.moment; i < moment; i++) {
      const row = kinds.ordered(this.rows[i - start]);
      apply(scene, handlers[row[0]], row);
      this.correct(scene, i + 1);
    }
  }

  // Goes on from a state that the events do not lead to, if there is one at this moment.
  correct(scene: Scene, moment: number) {
    const told = this.corrections.get(moment);
    if (!told) return false;
    takeUp(scene, told);
    scene.changes.all = true;
    return true;
  }

  // The state that follows from the moment alone.
  settle(scene: Scene) {
    scene.phase = this.log.phaseAt(scene.moment);
    scene.tier.length = this.shared.tierLog.countAt(scene.moment);
  }

  clamped(moment: number | undefined) {
    return Math.max(this.start, Math.min(this.end, moment ?? this.end));
  }

  // A sentence with the contents of this recording, which counts them from its oldest event on.
  numbered(sentence: Sentence, moment: number): Sentence {
    if (!sentence.some(isContent)) return sentence;
    const reader = (this.reader ??= this.sceneAt(moment));
    this.move(reader, moment);
    return sentence.map((part) => (isContent(part) ? ["content", part[1], reader.contentOfBlock[part[1]]] : part));
  }

  // -- the newest state

  begin(start: number, keyframe: WireKeyframe | null, tier: [group: number, hash: string][]) {
    this.start = start;
    this.rows = [];
    this.log = new StepLog();
    this.shared.tierLog = new TierLog(this.shared.keys);
    this.head = new Scene(this.shared, this.shared.epochs[0].contents);
    this.head.isHead = true;
    if (keyframe) takeUp(this.head, keyframe);
    for (const [group, hex] of tier) this.shared.tierLog.note(this.shared.keys.of(group, hex), true, start);
    this.head.moment = start;
    this.settle(this.head);
    this.near = null;
    this.keyframes = [packed(this.head)];
  }

  append(events: AnyRow[]) {
    const { head, kinds, handlers } = this;
    for (const event of events) {
      const i = this.rows.push(event) - 1 + this.start,
        row = kinds.ordered(event);
      apply(head, handlers[row[0]], row);
      this.shared.tierLog.doneTo = i + 1;
      const rollback = this.log.note(i, kinds.names[event[0]], row);
      if (rollback) this.rollBack(rollback);
      else if (this.correct(head, i + 1)) this.keep();
      else if (i + 1 - this.keyframes[this.keyframes.length - 1].moment >= this.spacing) this.keep();
    }
    this.settle(head);
    head.takeChanges();
  }

  // Events between keyframes.
  get spacing() {
    return this.keyframeEvery + (this.head.numBlocks >> 3);
  }

  keep() {
    this.settle(this.head);
    this.head.takeChanges();
    this.keyframes.push(packed(this.head));
  }

  // Restore the state before a rolled-back step. No keyframe lies inside the step.
  rollBack({ start, end }: Rollback) {
    this.near = null;
    while (this.keyframes[this.keyframes.length - 1].moment > start) this.keyframes.pop();
    restore(this.head, this.keyframes[this.keyframes.length - 1]);
    this.forward(this.head, start);
    this.head.moment = end;
  }

  learn(texts: [number, string][], names: [number, string][], seconds: [number, number][], corrections: Correction[]) {
    for (const [id, text] of texts) this.texts.set(id, text);
    for (const [id, name] of names) this.names.set(id, name);
    for (const [step, time] of seconds) this.seconds.set(step, time);
    for (const [moment, keyframe] of corrections) this.corrections.set(moment, keyframe);
  }

  // Nine tenths stay, from the start of a step on: a step must stay whole.
  dropOldest() {
    const step = this.log.steps.find(({ start }) => start >= this.end - 0.9 * this.maxEvents);
    if (!step || step.start === this.start) return;
    const base = this.sceneAt(step.start),
      nearest = this.keyframes[lastBefore(this.keyframes, base.moment + 1, momentOf)];
    const dropped = this.rows.splice(0, base.moment - this.start);
    for (const [i, row] of dropped.entries()) this.keepAlarm(this.start + i, row);
    this.start = base.moment;
    this.log.drop(this.start);
    this.keyframes = [
      { ...packed(base), numContents: nearest.numContents },
      ...this.keyframes.filter(({ moment }) => moment > this.start),
    ];
    this.shared.dropEpochs(this.start);
    this.shared.version++;
    this.near = null;
    forgetOld(this);
  }

  // Rows that were dropped, fetched and are dropped again are here already.
  keepAlarm(event: number, row: AnyRow) {
    const newest = this.earlier.at(-1)?.[0] ?? -1;
    if (event > newest && ALARM_KINDS.has(this.kinds.names[row[0]])) this.earlier.push([event, row]);
  }
}

// Kinds of events that alarms are made of.
const ALARM_KINDS = new Set(["EngineStarted", "ViolationFound", "StepFailed", "StepRolledBack"]);

const momentOf = ({ moment }: { moment: number }) => moment;
