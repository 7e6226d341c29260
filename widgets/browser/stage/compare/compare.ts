// The layout of two recordings side by side: one caption where they agree and two where they differ; one shared time
// line.
import { element, takeKey, targetOf } from "../../look/element.ts";
import { meaning } from "../../model/glossary.ts";
import type { OlderPayload } from "../../model/payloads.ts";
import { textOf } from "../../model/sentence.ts";
import type { Side } from "../../model/side.ts";
import { cutLink } from "../../views/pieces.ts";
import { Keys, onKey } from "../keyboard.ts";
import { Presentation } from "../presentation.ts";
import { overlay } from "../slides.ts";
import type { PairStage, Stage } from "../stage.ts";
import { Told } from "../told.ts";
import { watchWidth } from "../visibility.ts";
import { CaptionPanel, nextStop, previousStop } from "./caption_panel.ts";
import { Columns } from "./columns.ts";
import { Course } from "./course.ts";
import { CompareDrawer } from "./drawer.ts";
import { CompareHead } from "./head.ts";
import { PairTime } from "./time.ts";

const NARROW = 900;

export function layCompare(anyStage: Stage, root: HTMLElement) {
  const stage = anyStage as PairStage, // widget.ts makes a stage of two sides for this layout
    keys = new Keys(stage),
    layer = overlay(stage);
  const head = new CompareHead(stage, keys),
    story = new CaptionPanel(stage),
    columns = new Columns(stage),
    time = new PairTime(stage),
    drawer = new CompareDrawer(stage),
    presentation = new Presentation(stage, head.controls.step, keys);
  root.classList.add("le-compare");
  keys.add("n b", "to the next guided sentence, to the previous one");
  root.append(
    head.element,
    story.element,
    columns.element,
    legend(),
    time.element,
    drawer.element,
    layer,
    keys.element,
  );
  for (const part of [head, story, columns, time, drawer, new CompareMomentData(stage), new Told(stage)])
    stage.add(part);
  const targets = { stage, controls: head.controls, scrubber: null, keys, presentation };
  root.addEventListener("keydown", (event) => storyKey(event, stage, keys) || onKey(event, targets));
  stage.askWhy = (about, side) => drawer.askWhy(about, side);
  const course = new Course(stage);
  stage.inbox.onCompare = (payload) => course.take(payload);
  stage.on("began", (side) => {
    if (stage.isReady) course.settle();
    void fetchOlder(stage, side);
  });
  stage.on("more", () => course.catchUp());
  stage.on("quiet", () => {
    if (stage.isReady && (stage.track.isShort || !stage.track.isCurrent)) stage.inbox.resync();
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
  const isTyping = targetOf(event).matches?.("input, textarea, select");
  if (event.defaultPrevented || isTyping || !keys.element.hidden) return false;
  return takeKey(event, { n: () => nextStop(stage), b: () => previousStop(stage) });
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

// Attributes of the moment for tests and style sheets.
class CompareMomentData {
  constructor(readonly stage: PairStage) {}

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
      differsAt: stage.track.differsAt ?? "",
      phase: caption.phase || "",
      sentence: textOf(caption.sentence),
      left: textOf(caption.left ?? []),
      right: textOf(caption.right ?? []),
      playing: stage.isPlaying,
    };
    for (const [name, value] of Object.entries(marks))
      if (stage.root.dataset[name] !== String(value)) stage.root.dataset[name] = String(value);
    const digits = String(Math.max(left.numBlocks, right.numBlocks)).length;
    stage.root.style.setProperty("--le-digits", String(digits));
    stage.root.classList.toggle("le-hybrid", left.groups.length > 1 || right.groups.length > 1);
  }
}

// The key to the marks, in one line below the columns.
const MARKS: [name: string, text: string | null, words: string, title: string][] = [
  [
    "alike",
    "p",
    "same letter: same content",
    "the content of a full block: its tokens and all earlier ones. Outlined with dots until its hash is in " +
      "the map; bars or dots on the block distinguish contents that share a colour",
  ],
  ["count", "••", "ref count", meaning("ref count")],
  ["part", "", "not full yet", "the grey part has been written"],
  ["kept", "", "free, content kept", `no request holds the block. ${meaning("cached block")}`],
  ["lost", null, "lost: no hash leads to it", meaning("lost block")],
  ["now", "", "computed in this step", "a token whose keys and values are computed in this step"],
  ["hit", "", "from the cache", "a token whose keys and values were found in the cache"],
  [
    "unlike",
    "≠",
    "differs from the other side",
    "marked on both sides, in tables, pool, map and numbers, and next to the free queue. In tables and map, an " +
      "equal block with a different id does not count: it does not matter which free block was allocated",
  ],
  [
    "misnamed",
    "p",
    "KV of different content",
    "the block's hash stands for the crossed-out letter; the letter next to it is the content that the " +
      "checks found in its keys and values, or ? if unknown",
  ],
  ["current", "", "current event", "the blocks that the current sentence is about"],
  [
    "tier",
    "○ ⇣ ↓ ↑",
    "external tier",
    "○ only in the tier, ● also in the pool; ⇣ being loaded, ↓ loaded and ↑ saved in this step; pin: protected " +
      "from eviction by a transfer",
  ],
];

function legend() {
  const entries = MARKS.map(([name, text, words, title]) =>
    element("span", "le-pair-key", { title }, text === null ? cutLink() : element("i", `le-key-${name}`, text), words),
  );
  return element(
    "div",
    "le-pair-legend le-wrap le-fine",
    { role: "note", ariaLabel: "what the marks mean" },
    ...entries,
  );
}
