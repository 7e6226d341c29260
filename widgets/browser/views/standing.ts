// An event as a selection: in a view of two labs it is one of a side.
export function eventOf(stage, side, id) {
  return stage.sides.length > 1 ? { kind: "event", id, side: side.index } : { kind: "event", id };
}

// To stand at a moment of one side. In a view of two labs a position is no moment: its track knows which one shows it.
export function standAt(stage, side, moment) {
  stage.stand(stage.sides.length > 1 ? stage.track.positionAt(side.index, moment) : moment);
}
