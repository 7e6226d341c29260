// Two recordings beside one another: what happened, told once where they agree and twice where they differ; one shared line of time.
import { element } from "../look/element.ts";
import { Columns } from "./compare_columns.ts";
import { CompareHead } from "./compare_head.ts";
import { CompareDrawer } from "./compare_drawer.ts";
import { Legend } from "./compare_legend.ts";
import { Story } from "./compare_story.ts";
import { nextStop, previousStop } from "./guide_moves.ts";
import { Keys, onKey } from "./keys.ts";
import { watchWidth } from "./narrow.ts";
import { overlay } from "./overlay.ts";
import { PairTime } from "./pair_time.ts";

const NARROW = 900;

export function lay(stage, root) {
  const { track } = stage,
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
  stage.hearPair = (payload) => hear(stage, payload);
  stage.on("began", (side) => {
    if (stage.isReady) settle(stage);
    fetchOlder(stage, side);
  });
  stage.on("more", () => catchUp(stage));
  stage.on("quiet", () => stage.isReady && track.isShort && stage.resync());
  stage.on("position", (_, { position }) => {
    track.wanted = position ?? track.end;
    goWhereWanted(stage);
  });
  stage.open([
    [story.element, 0.6],
    [columns.element, 0.2],
  ]);
  watchWidth(stage, root, NARROW);
  Object.assign(track, { followed: null, wanted: null });
}

// n and b go from one guided stop to the next; in a button or a field they mean what they mean there.
function storyKey(event, stage, keys) {
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.defaultPrevented ||
    event.target.matches?.("input, textarea, select") ||
    !keys.element.hidden
  )
    return false;
  const act = { n: () => nextStop(stage), b: () => previousStop(stage) }[event.key];
  if (!act) return false;
  event.preventDefault();
  event.stopPropagation();
  act();
  return true;
}

// Beats have come: those of the first time are where the story begins, later ones are played to who stood at the end.
function hear(stage, payload) {
  const { track } = stage,
    end = track.end,
    follows = stage.position >= end || isOnItsWay(stage),
    isFirst = track.lastBeat === 0;
  if (!track.hear(payload)) return stage.hearing.resyncSurely();
  if (!stage.isReady) return;
  if (payload.from === payload.first && !isFirst) track.wanted = null; // it was about what is no more
  if (isFirst || payload.from === payload.first) return settle(stage);
  track.followed =
    follows || track.followed !== null
      ? { from: Math.min(end, payload.from), isPlayed: !payload.is_running && !isRunsEnd(stage, payload) }
      : null;
  catchUp(stage);
}

// The end of a run is not played. What a guided story goes on with is, however both engines came there.
function isRunsEnd({ track }, payload) {
  return Boolean(payload.is_followed) && !track.guide.length;
}

// A play towards the newest moment, be it held until somebody looks. A guided story is told from stop to stop, as the reader wishes.
function isOnItsWay({ track, player }) {
  return !track.guide.length && player.target !== null;
}

// Where one stands on coming: at the first guided stop, or where the two part, or at the newest moment.
function settle(stage) {
  const { track, sides } = stage;
  sides.forEach((side, i) => (side.reference = sides[1 - i].scene));
  if (!track.lastBeat || stage.isPlaying) return;
  const isNew = !stage.hasSettled;
  stage.hasSettled = true;
  if (isNew) {
    stage.position = track.guided[0]?.[1] ?? track.parts ?? track.end;
    stage.isFollowing = stage.position >= track.end;
  } else if (stage.isFollowing || isOnItsWay(stage)) {
    stage.player.stop();
    const position = (track.guide.length && track.nextStop(stage.position)) || track.end; // a story is not told at one blow
    Object.assign(stage, { position, isFollowing: position >= track.end });
    if (stage.isFollowing && track.end < track.lastBeat)
      track.followed = { from: track.end, isPlayed: !stage.status.running }; // events are still to come
  }
  stage.position = Math.max(track.first, Math.min(stage.position, track.end));
  stage.tell("beats");
  stage.repaint();
}

// Where Python puts the view, as soon as the events up to there have come on both sides.
function goWhereWanted(stage) {
  const { track } = stage,
    { wanted } = track;
  if (wanted === null || !stage.isReady || wanted > track.end) return;
  Object.assign(track, { wanted: null, followed: null });
  stage.stand(wanted);
}

// Goes on with what has come on both sides, if the reader stood at the end.
function catchUp(stage) {
  goWhereWanted(stage);
  const { track } = stage,
    { followed } = track;
  stage.changed();
  if (!followed || !stage.isReady || track.end < track.lastBeat) return;
  track.followed = null;
  const from = Math.min(Math.max(track.first, followed.from), track.end),
    to = track.nextStop(from) ?? track.end;
  if (followed.isPlayed) stage.player.play(from, to);
  else stage.go(track.end, false, true);
  stage.tell("beats");
}

// A long recording comes with its newest steps: the rest is asked for, piece by piece.
async function fetchOlder(stage, { index, recording }) {
  while (
    stage.wire.canAsk &&
    !stage.end.signal.aborted &&
    recording.start > recording.header.first &&
    stage.sides[index].recording === recording
  ) {
    const payload = await stage.ask("older", { before: recording.start, side: index }).catch(() => null);
    if (!payload || payload.end !== recording.start || recording.older(payload) === false) return;
    stage.changed();
  }
}

// What tests and style sheets may read of the moment.
class CompareMarks {
  constructor(stage) {
    this.stage = stage;
  }

  paint() {
    const { stage } = this,
      [left, right] = stage.sides.map(({ scene }) => scene),
      told = stage.told;
    const marks = {
      used: `${left.score.used} ${right.score.used}`,
      peak: `${left.score.peak} ${right.score.peak}`,
      lost: `${left.score.lost} ${right.score.lost}`,
      step: `${left.step} ${right.step}`,
      position: stage.position,
      end: stage.track.end,
      stop: stage.track.guideAt(stage.position),
      parts: stage.track.parts ?? "",
      phase: told.phase || "",
      sentence: told.sentence,
      left: told.left ?? "",
      right: told.right ?? "",
      playing: stage.isPlaying,
    };
    for (const [name, value] of Object.entries(marks))
      if (stage.root.dataset[name] !== String(value)) stage.root.dataset[name] = value;
    const digits = String(Math.max(left.numBlocks, right.numBlocks)).length;
    stage.root.style.setProperty("--le-digits", digits);
    stage.root.classList.toggle("le-hybrid", left.groups.length > 1 || right.groups.length > 1);
  }
}
