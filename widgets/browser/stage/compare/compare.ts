// Two recordings side by side: what happened, once where they agree and twice where they differ; one shared line of
// time.
import { targetOf } from "../../look/element.ts";
import type { ComparePayload, OlderPayload } from "../../model/payloads.ts";
import type { Side } from "../../model/side.ts";
import { Keys, onKey } from "../keys.ts";
import { isAlong } from "../mode.ts";
import { overlay } from "../slides.ts";
import type { PairStage, Stage } from "../stage.ts";
import { watchWidth } from "../visibility.ts";
import { Columns } from "./columns.ts";
import { CompareDrawer } from "./drawer.ts";
import { CompareHead } from "./head.ts";
import { Legend } from "./legend.ts";
import { nextStop, previousStop, Story } from "./story.ts";
import { PairTime } from "./time.ts";

const NARROW = 900;

export function layCompare(anyStage: Stage, root: HTMLElement) {
  const stage = anyStage as PairStage, // widget.ts makes a stage of two sides for this layout
    keys = new Keys(stage),
    layer = overlay(stage);
  const head = new CompareHead(stage, keys),
    story = new Story(stage),
    columns = new Columns(stage),
    time = new PairTime(stage),
    drawer = new CompareDrawer(stage);
  root.classList.add("le-compare");
  keys.add("n b", "on to the next guided sentence, back to the one before");
  root.append(
    head.element,
    story.element,
    columns.element,
    new Legend().element,
    time.element,
    drawer.element,
    layer,
    keys.element,
  );
  for (const part of [head, story, columns, time, drawer, new CompareMarks(stage)]) stage.add(part);
  root.addEventListener(
    "keydown",
    (event) => storyKey(event, stage, keys) || onKey(event, { stage, controls: head.controls, scrubber: null, keys }),
  );
  stage.wonder = (about, side) => drawer.wonder(about, side);
  const course = new Course(stage);
  stage.inbox.onCompare = (payload) => course.take(payload);
  stage.on("began", (side) => {
    if (stage.isReady) course.settle();
    void fetchOlder(stage, side);
  });
  stage.on("more", () => course.catchUp());
  stage.on("quiet", () => {
    if (stage.isReady && stage.track.isShort) stage.resync();
  });
  stage.on("position", ({ position }) => course.goTo(position ?? stage.track.end));
  stage.open([
    [story.element, 0.6],
    [columns.element, 0.2],
  ]);
  watchWidth(stage, root, NARROW);
}

// n and b go from one guided stop to the next; in a button or a field they mean what they mean there.
function storyKey(event: KeyboardEvent, stage: PairStage, keys: Keys) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.defaultPrevented ||
    targetOf(event).matches?.("input, textarea, select") ||
    !keys.element.hidden
  )
    return false;
  const acts: Record<string, () => void> = { n: () => nextStop(stage), b: () => previousStop(stage) },
    act = acts[event.key];
  if (!act) return false;
  event.preventDefault();
  event.stopPropagation();
  act();
  return true;
}

// Where the view goes as captions and events of both sides come in.
class Course {
  stage: PairStage;
  // captions whose events are still to come: the view goes there
  ahead: { from: number; isPlayed: boolean } | null = null;
  wanted: number | null = null; // where Python puts the view, as soon as the events up to there have come
  hasSettled = false;

  constructor(stage: PairStage) {
    this.stage = stage;
  }

  // True if the view goes along when the engines go on: it stands at the newest caption, is on its way there, or waits
  // for
  // events. A guided story is told from stop to stop, as the reader wishes: a play in it leads nowhere else.
  get isAlong() {
    const { mode, track, player } = this.stage,
      isOnItsWay = !track.guide.length && player.target !== null;
    return isAlong(mode) || isOnItsWay || this.ahead !== null;
  }

  // Captions of a story that begins are shown from its beginning; later ones are played to a view that goes along.
  take(payload: ComparePayload) {
    const { stage } = this,
      { track } = stage,
      { end, lastCaption } = track,
      isFollowing = this.isAlong;
    if (!track.hear(payload)) return stage.inbox.resyncSurely();
    if (!stage.isReady) return;
    const isAnew = payload.from === payload.first;
    if (isAnew && lastCaption) this.wanted = null; // it was about captions that are gone
    if (isAnew || !lastCaption) return this.settle();
    const isPlayed = !payload.is_running && !isRunsEnd(stage, payload);
    this.ahead = isFollowing ? { from: Math.min(end, payload.from), isPlayed } : null;
    this.catchUp();
  }

  // Where the view stands at first: at the first guided stop, or where the sides first differ, or at the newest
  // caption.
  settle() {
    const { stage } = this,
      { track, sides } = stage;
    for (const side of sides) side.reference = sides[1 - side.index].scene;
    if (!track.lastCaption || stage.isPlaying) return;
    if (!this.hasSettled) this.put(track.guided[0]?.[1] ?? track.parts ?? track.end);
    else if (this.isAlong) {
      stage.player.stop();
      this.put((track.guide.length && track.nextStop(stage.position)) || track.end); // a story is told stop by stop
      if (isAlong(stage.mode) && track.end < track.lastCaption)
        this.ahead = { from: track.end, isPlayed: !stage.status.running };
    }
    this.hasSettled = true;
    stage.position = stage.within(stage.position);
    stage.tell("captions");
    stage.repaint();
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
    if (wanted === null || !stage.isReady || wanted > stage.track.end) return;
    this.wanted = this.ahead = null;
    stage.stand(wanted);
  }

  // Goes on with what has come on both sides.
  catchUp() {
    this.goWhereWanted();
    const { stage, ahead } = this,
      { track } = stage;
    stage.changed();
    if (!ahead || !stage.isReady || track.end < track.lastCaption) return;
    this.ahead = null;
    const from = Math.min(Math.max(track.first, ahead.from), track.end);
    if (ahead.isPlayed) stage.player.play(from, track.nextStop(from) ?? track.end);
    else stage.go(track.end, false, true);
    stage.tell("captions");
  }
}

// The end of a run is not played. What a guided story goes on with is, however both engines came there.
function isRunsEnd({ track }: PairStage, payload: ComparePayload) {
  return Boolean(payload.is_followed) && !track.guide.length;
}

// A long recording comes with its newest steps: the rest is asked for, piece by piece.
async function fetchOlder(stage: PairStage, side: Side) {
  const { index, recording } = side;
  const isWanted = () => stage.wire.canAsk && !stage.end.signal.aborted && side.recording === recording;
  while (isWanted() && recording.start > recording.first) {
    const answer = stage.ask("older", { before: recording.start, side: index }).catch(() => null),
      payload = (await answer) as OlderPayload | null;
    if (payload?.end !== recording.start || !recording.older(payload)) return;
    stage.changed();
  }
}

// What tests and style sheets may read of the moment.
class CompareMarks {
  stage: PairStage;

  constructor(stage: PairStage) {
    this.stage = stage;
  }

  paint() {
    const { stage } = this,
      [left, right] = stage.sides.map(({ scene }) => scene),
      caption = stage.caption;
    const marks = {
      used: `${left.score.used} ${right.score.used}`,
      peak: `${left.score.peak} ${right.score.peak}`,
      lost: `${left.score.lost} ${right.score.lost}`,
      step: `${left.step} ${right.step}`,
      position: stage.position,
      end: stage.track.end,
      stop: stage.track.guideAt(stage.position),
      parts: stage.track.parts ?? "",
      phase: caption.phase || "",
      sentence: caption.sentence,
      left: caption.left ?? "",
      right: caption.right ?? "",
      playing: stage.isPlaying,
    };
    for (const [name, value] of Object.entries(marks))
      if (stage.root.dataset[name] !== String(value)) stage.root.dataset[name] = String(value);
    const digits = String(Math.max(left.numBlocks, right.numBlocks)).length;
    stage.root.style.setProperty("--le-digits", String(digits));
    stage.root.classList.toggle("le-hybrid", left.groups.length > 1 || right.groups.length > 1);
  }
}
