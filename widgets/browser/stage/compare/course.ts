// The position of a comparison's view as captions and events of both sides arrive.

import type { ComparePayload } from "../../model/payloads.ts";
import { isAlong } from "../mode.ts";
import type { PairStage } from "../stage.ts";

export class Course {
  // captions whose events are still to come: the view goes there
  ahead: { from: number; isPlayed: boolean } | null = null;
  wanted: number | null = null; // where Python puts the view, as soon as the events up to there have come
  hasSettled = false;

  constructor(readonly stage: PairStage) {}

  // True if the view follows the engines: it shows the newest caption, plays towards it, or waits for events. In a
  // guided story the reader moves from stop to stop, so a play there does not count.
  get isAlong() {
    const { mode, track, player } = this.stage,
      isOnItsWay = !track.guide.length && player.target !== null;
    return isAlong(mode) || isOnItsWay || this.ahead !== null;
  }

  // Captions of a story that begins are shown from its beginning; later ones are played to a view that goes along.
  take(payload: ComparePayload) {
    const { stage } = this,
      { track } = stage,
      { end, lastCaption, generations } = track,
      isFollowing = this.isAlong;
    if (!track.hear(payload)) return stage.inbox.resyncSurely();
    if (!stage.isReady) return;
    const isAnew = payload.from === payload.first,
      isOfOthers = payload.generations.some((generation, i) => generation !== generations[i]);
    if (isOfOthers && lastCaption) this.wanted = track.lastCaption; // the engines have gone back
    if (isAnew || !lastCaption) return this.settle();
    const isPlayed = !payload.is_running && !isRunsEnd(stage, payload);
    this.ahead = isFollowing ? { from: Math.min(end, payload.from), isPlayed } : null;
    this.catchUp();
  }

  // Sets the first position: the first guided stop, the first broken rule, the first difference, or the opening. Events
  // of new recordings wait for the captions about them, and these for the events.
  settle() {
    const { stage } = this,
      { track, sides } = stage;
    for (const side of sides) side.reference = sides[1 - side.index].scene;
    if (!track.isCurrent) return;
    if (this.hasSettled) this.goWhereWanted();
    if (!track.lastCaption || stage.isPlaying) return;
    if (!this.hasSettled) this.put(track.guided[0]?.[1] ?? track.violatedAt ?? track.differsAt ?? this.opening);
    else if (this.isAlong && this.wanted === null) {
      stage.player.stop();
      this.put((track.guide.length && track.nextStop(stage.position)) || track.end); // a story goes stop by stop
      if (isAlong(stage.mode) && track.end < track.lastCaption)
        this.ahead = { from: track.end, isPlayed: !stage.status.running };
    }
    this.hasSettled = true;
    stage.position = stage.within(stage.position);
    stage.emit("captions");
    stage.repaint();
  }

  // A page is read from the beginning; engines that go on are shown as they are.
  get opening() {
    const { track, wire } = this.stage;
    return wire.canAsk ? track.end : track.spanOf(track.numSpans ? 0 : -1).start;
  }

  put(position: number) {
    this.stage.position = position;
    this.stage.happened(position >= this.stage.track.end ? "wentToEnd" : "wentBack");
  }

  goTo(position: number) {
    this.wanted = position;
    this.goWhereWanted();
  }

  goWhereWanted() {
    const { stage, wanted } = this;
    if (wanted === null || !stage.isReady || !stage.track.isCurrent || wanted > stage.track.end) return;
    this.wanted = this.ahead = null;
    stage.moveTo(wanted);
  }

  // Goes on with what has come on both sides.
  catchUp() {
    this.goWhereWanted();
    const { stage, ahead } = this,
      { track } = stage;
    stage.changed();
    if (!ahead || !stage.isReady || !track.isCurrent || track.end < track.lastCaption) return;
    this.ahead = null;
    const from = Math.min(Math.max(track.first, ahead.from), track.end);
    if (ahead.isPlayed) stage.player.play(from, track.nextStop(from) ?? track.end);
    else {
      stage.player.stop(); // its end lies behind
      stage.go(track.end, false, true);
    }
    stage.emit("captions");
  }
}

// True for captions of a run's end, which are not played. A guided story's captions are always played.
function isRunsEnd({ track }: PairStage, payload: ComparePayload) {
  return Boolean(payload.is_followed) && !track.guide.length;
}
