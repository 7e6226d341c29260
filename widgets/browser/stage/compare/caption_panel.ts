// The text of the moment: the guided sentence, if there is a guide; below it the caption, in two
// columns where the sides differ.
import { button, element, write } from "../../look/element.ts";
import type { PairTrack } from "../pair_track.ts";
import { writeSentence } from "../sentence_element.ts";
import type { PairStage } from "../stage.ts";

export class CaptionPanel {
  sign = element("span", "le-guide-sign", {
    title: "the story's sentences are numbered; the timeline shows the same numbers",
  });
  words = element("p", "le-guide-words", { ariaLive: "polite" });
  count = element("span", "le-count");
  back = button("‹", "the previous guided sentence (b)", () => previousStop(this.stage));
  next = button("Next ›", "play to the next guided sentence (n)", () => nextStop(this.stage), "le-next-stop");
  guide = element("div", "le-guide", {}, this.sign, this.words, this.count, this.back, this.next);
  both = element("p", "le-caption-both");
  sides = ["left", "right"].map((name) => element("p", `le-caption-side le-caption-${name}`));
  caption = element("div", "le-captions", { ariaLive: "polite", ariaAtomic: "true" }, this.both, ...this.sides);
  element = element("section", "le-story", { ariaLabel: "what happens" }, this.guide, this.caption);

  constructor(readonly stage: PairStage) {
    this.sides.forEach((side, i) => {
      side.dataset.side = String(i);
    });
  }

  paint() {
    const { stage } = this,
      { track } = stage,
      caption = stage.caption;
    this.paintGuide(track);
    const isSplit = caption.left !== null || caption.right !== null;
    this.caption.classList.toggle("le-is-split", isSplit);
    writeSentence(this.both, isSplit ? [] : caption.sentence);
    this.sides.forEach((side, i) => {
      writeSentence(side, isSplit ? ([caption.left, caption.right][i] ?? ["Nothing happens here."]) : []);
      side.classList.toggle("le-quiet", isSplit && [caption.left, caption.right][i] === null);
      side.dataset.name = track.names[i];
    });
  }

  paintGuide(track: PairTrack) {
    const { stage } = this,
      { length } = track.guide,
      stop = track.guideAt(stage.position);
    stage.root.classList.toggle("le-is-guided", length > 0);
    if (!length) return;
    writeSentence(this.words, stop < 0 ? [] : [track.guide[stop]]);
    write(this.sign, stop < 0 ? "" : stop + 1);
    this.guide.classList.toggle("le-is-past", !track.isGuided(stage.position)); // captions have followed since
    const reached = (track.guided.at(-1)?.[0] ?? -1) + 1,
      hasMore = track.followUp !== null && stage.isLive;
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
  if (canGoOn(stage)) return stage.command("follow_up");
  const { track, position } = stage,
    to = track.nextStop(position) ?? (track.guide.length ? track.end : track.span(position + 1).end);
  if (stage.isPlaying) return stage.moveTo(stage.player.target ?? track.end);
  stage.visibility.approach();
  stage.player.play(position, Math.min(to, track.end));
  stage.changed();
}

// True if the end of the recording is shown and the engines can run the follow-up.
function canGoOn(stage: PairStage) {
  const { track, position } = stage;
  return stage.isLive && track.followUp !== null && track.guide.length > 0 && position >= track.end;
}

export function previousStop(stage: PairStage) {
  stage.moveTo(stage.track.previousStop(stage.position) ?? stage.track.first);
}
