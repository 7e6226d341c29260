// The words of the moment: the guided sentence, if there is a guide, and below it what happens, in two columns where
// the sides differ.
import { button, element, write } from "../look/element.ts";
import type { PairTrack } from "./pair_track.ts";
import type { PairStage } from "./stage.ts";

export class Story {
  stage: PairStage;
  element = element("section", "le-story");
  guide = element("div", "le-guide");
  sign = element("span", "le-guide-sign");
  words = element("p", "le-guide-words");
  count = element("span", "le-count");
  back = button("‹", "the guided sentence before (b)");
  next = button("Next ›", "play on to the next guided sentence (n)", "le-next-stop");
  told = element("div", "le-told");
  both = element("p", "le-told-both");
  sides: HTMLElement[];

  constructor(stage: PairStage) {
    this.stage = stage;
    this.element.setAttribute("aria-label", "what happens");
    this.sign.title = "the story's sentences are numbered; the numbers stand in the line of time too";
    this.back.addEventListener("click", () => previousStop(stage));
    this.next.addEventListener("click", () => nextStop(stage));
    this.guide.append(this.sign, this.words, this.count, this.back, this.next);
    this.sides = ["left", "right"].map((name) => element("p", `le-told-side le-told-${name}`));
    this.told.append(this.both, ...this.sides);
    this.told.setAttribute("aria-live", "polite");
    this.words.setAttribute("aria-live", "polite");
    this.element.append(this.guide, this.told);
  }

  paint() {
    const { stage } = this,
      { track } = stage,
      told = stage.caption;
    this.paintGuide(track);
    const isSplit = told.left !== null || told.right !== null;
    this.told.classList.toggle("le-is-split", isSplit);
    write(this.both, isSplit ? "" : told.sentence);
    this.sides.forEach((side, i) => {
      const text = isSplit ? ([told.left, told.right][i] ?? "Nothing happens here.") : "";
      write(side, text);
      side.classList.toggle("le-quiet", isSplit && [told.left, told.right][i] === null);
      side.dataset.name = track.names[i];
    });
  }

  paintGuide(track: PairTrack) {
    const { stage } = this,
      { length } = track.guide,
      stop = track.guideAt(stage.position);
    stage.root.classList.toggle("le-is-guided", length > 0);
    if (!length) return;
    write(this.words, stop < 0 ? "" : track.guide[stop]);
    write(this.sign, stop < 0 ? "" : stop + 1);
    this.guide.classList.toggle("le-is-past", !track.isGuided(stage.position)); // the beats have gone on since
    const reached = (track.guided.at(-1)?.[0] ?? -1) + 1,
      hasMore = track.later !== null && stage.isLive;
    write(this.count, `${stop + 1} of ${hasMore ? length : reached}`);
    this.back.disabled = track.previousStop(stage.position) === null;
    const hasNext = stage.position < track.end || canGoOn(stage);
    this.next.disabled = !hasNext;
    this.next.classList.toggle("le-primary", hasNext);
  }
}

// From one guided sentence to another.

// Plays up to the next guided stop; without a guide, to the end of the step.
export function nextStop(stage: PairStage) {
  if (canGoOn(stage)) return stage.command("later");
  const { track, position } = stage,
    to = track.nextStop(position) ?? (track.guide.length ? track.end : track.span(position + 1).end);
  if (stage.isPlaying) return stage.stand(stage.player.target ?? track.end);
  stage.visibility.approach();
  stage.player.play(position, Math.min(to, track.end));
  stage.changed();
}

// What is recorded is told, and the engines can go on with the story.
function canGoOn(stage: PairStage) {
  const { track, position } = stage;
  return stage.isLive && track.later !== null && track.guide.length > 0 && position >= track.end;
}

export function previousStop(stage: PairStage) {
  stage.stand(stage.track.previousStop(stage.position) ?? stage.track.first);
}
