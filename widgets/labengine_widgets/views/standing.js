// To stand at a moment of one side. In a view of two labs a position is no moment: its track knows which one shows it.
export function standAt(stage, side, moment) {
  stage.stand(stage.sides.length > 1 ? stage.track.positionAt(side.index, moment) : moment);
}
