// Painting: once per frame, the changes, in visible views only.

import type { Selection } from "../model/payloads.ts";
import { Changes } from "../model/scene_state.ts";
import { blocksIn } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";
import type { View } from "../views/view.ts";
import { motionOf } from "./motion.ts";
import type { Stage } from "./stage.ts";

// a view that takes less is painted in every frame; lists have yet to be laid out
const CHEAP_MS = { canvas: 8, list: 1, all: 8 };
// of what a view's dearest painting took, from one painting to the next: most of a step's are cheap
const MEMORY = 0.95;
const SLOW_WAIT_MS = 60; // how long a slow view waits for the next news of a running lab, before it is painted without
// while news of a lab come fast, slow views pause so many times as long as the last frame took that painted one of them
const PAUSE_FACTOR = 8;
const MANY = 500; // events at once, too many to point at their blocks
// A part of the layout that is painted with every change.
export interface Part {
  paint(): unknown;
}

// A view on the page. pending: what has changed since it was painted; costs: milliseconds of its dearest paintings.
export interface Shown {
  view: View;
  side: number;
  isShown: () => boolean; // can it be seen at all (an open tab)?
  pending: Changes;
  from: number;
  costs: { some: number; all: number };
  paintedAt: number;
  kind: "some" | "all"; // of the last painting
  took: number;
  before: number; // what the painting before it took, on a canvas
}

export class Painting {
  shows: Shown[] = [];
  parts: Part[] = [];
  request = 0; // of the next frame; 0 without one
  isDirty = false;
  hasNews = false; // a step taken by hand, or a jump
  slowAgainAt = 0; // when a slow view may be painted again while a lab runs
  rendered = new MessageChannel(); // a message from within a frame comes when the frame is laid out and painted
  retryTimer?: number;
  focus = this.stage.sides.map((): number[] => []); // per side: the blocks that the newest events are about
  since: number[] = []; // per side: the moment before the newest events

  constructor(readonly stage: Stage) {
    this.rendered.port1.onmessage = ({ data: begun }) =>
      (this.slowAgainAt = performance.now() + PAUSE_FACTOR * (performance.now() - begun));
  }

  // A view in an element. isShown: can it be seen at all (an open tab)?
  show(view: View, side: number, isShown: () => boolean): Shown {
    const entry: Shown = {
      view,
      side,
      isShown,
      pending: new Changes(true),
      from: 0,
      costs: { some: 0, all: 0 },
      paintedAt: 0,
      kind: "all",
      took: 0,
      before: 0,
    };
    this.shows.push(entry);
    return entry;
  }

  close() {
    cancelAnimationFrame(this.request);
    clearTimeout(this.retryTimer);
    this.rendered.port1.close();
    for (const { view } of this.shows) view.destroy();
  }

  changed() {
    this.isDirty = true;
    if (this.request || !this.stage.visibility?.isVisible) return;
    this.request = requestAnimationFrame(() => this.flush());
  }

  repaint() {
    for (const entry of this.shows) entry.pending.all = true;
    this.changed();
  }

  // Views that have a scene. One that has not been painted yet is asked nothing, and is marked when it is painted
  // first.
  get painted() {
    return this.shows.filter(({ paintedAt }) => paintedAt > 0);
  }

  mark(selection: Selection | null) {
    for (const { view } of this.painted) view.mark(selection);
  }

  resized() {
    for (const { view } of this.shows) view.resize?.();
    this.repaint();
  }

  flush() {
    cancelAnimationFrame(this.request);
    this.request = 0;
    const { stage } = this;
    if (!this.isDirty || !stage.isReady || !stage.root.isConnected || !stage.visibility?.isVisible) return;
    this.isDirty = false;
    const moments = stage.track.moments(stage.position);
    this.focus = this.focused(moments);
    for (const side of stage.sides) {
      const changes = side.move(moments[side.index]);
      this.note(side, changes);
      this.hasNews ||= changes.all; // a jump
    }
    this.paintViews();
    for (const part of this.parts) part.paint();
    stage.emit("painted");
  }

  get isHurried() {
    return Boolean(this.stage.isFollowed && this.stage.status.running);
  }

  // The blocks of the newest events, per side; none while a lab is followed.
  focused(moments: number[]): number[][] {
    const { track, position, sides, isPlain, caption } = this.stage;
    this.since = moments;
    if (isPlain) return [blocksIn(caption.sentence)]; // the words say where to look
    if (position <= track.span(position).start || this.isHurried) return sides.map((): number[] => []);
    const before = (this.since = track.moments(track.previous(position)));
    return sides.map(({ recording }, i) =>
      moments[i] - before[i] <= MANY ? motionOf(recording, before[i], moments[i]).focus : [],
    );
  }

  note(side: Side, changes: Changes) {
    for (const { side: index, pending } of this.shows) {
      if (index !== side.index || pending.all) continue;
      pending.all = changes.all;
      pending.queue ||= changes.queue;
      pending.tier ||= changes.tier;
      pending.tree ||= changes.tree;
      for (const id of changes.blocks) pending.blocks.add(id);
      for (const id of changes.requests) pending.requests.add(id);
      for (const key of changes.keys) pending.keys.add(key);
    }
  }

  // While a lab runs by itself slow views take turns, one a frame, so that the others keep their pace and none waits
  // long; without pauses between two steps that are further apart than SLOW_WAIT_MS.
  // After a step taken by hand, or a jump, they come a frame later than the rest, which is seen at once.
  paintViews() {
    const shown = this.shows.filter((entry) => entry.isShown()),
      slow = shown.filter(isSlow);
    const { isHurried, hasNews } = this;
    const late = isHurried ? this.waiting(slow, hasNews) : hasNews ? slow : [];
    this.hasNews = false;
    const due = shown.filter((entry) => !late.includes(entry));
    for (const entry of due) this.paintView(entry);
    for (const entry of due) this.settle(entry);
    clearTimeout(this.retryTimer);
    if (late.length) this.retryTimer = setTimeout(() => this.changed(), isHurried && hasNews ? SLOW_WAIT_MS : 0);
  }

  // All but the one that has waited longest, if it is time for a slow one again.
  waiting(slow: Shown[], hasNews: boolean) {
    const begun = performance.now();
    if (hasNews && begun < this.slowAgainAt) return slow;
    const [next, ...others] = slow.sort((a, b) => a.paintedAt - b.paintedAt);
    if (next) this.rendered.port2.postMessage(begun);
    return others;
  }

  paintView(entry: Shown) {
    const { scene, moment, reference } = this.stage.sides[entry.side],
      changes = entry.pending,
      begun = performance.now();
    entry.pending = new Changes();
    const isFirst = !entry.paintedAt;
    entry.view.paint(scene, changes, {
      moment,
      from: entry.from,
      since: this.since[entry.side],
      isPlaying: this.stage.isPlaying,
      isRunning: this.isHurried,
      reference,
      focus: this.focus[entry.side],
    });
    entry.from = moment;
    entry.paintedAt = begun;
    if (isFirst && this.stage.selection) entry.view.mark(this.stage.selection); // chosen before the view was made
    entry.kind = changes.all ? "all" : "some";
    entry.took = performance.now() - begun;
  }

  // Views measure after all writes; the layout that this forces counts as their cost. A canvas, as the pool, costs the
  // same from one frame to the next: a single dear painting was interrupted, and leaves it in every frame.
  settle(entry: Shown) {
    const { view, kind, took, costs } = entry,
      begun = performance.now();
    view.settle?.();
    const cost = took + performance.now() - begun;
    costs[kind] = Math.max(MEMORY * costs[kind], view.canvas ? Math.min(cost, entry.before) : cost);
    entry.before = cost;
  }
}

function isSlow({ view, pending, costs }: Shown) {
  return pending.all
    ? costs.all > CHEAP_MS.all && !view.canvas
    : costs.some > (view.canvas ? CHEAP_MS.canvas : CHEAP_MS.list);
}
