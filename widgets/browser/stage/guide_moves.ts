// From one guided sentence to another.
import type { PairStage } from "./stage.ts";

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
export function canGoOn(stage: PairStage) {
  const { track, position } = stage;
  return stage.isLive && track.later !== null && track.guide.length > 0 && position >= track.end;
}

export function previousStop(stage: PairStage) {
  stage.stand(stage.track.previousStop(stage.position) ?? stage.track.first);
}
