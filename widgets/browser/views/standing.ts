// An event as a selection: in a view of two labs it is one of a side.
import type { Selection } from "../model/payloads.ts";
import type { Side } from "../stage/side.ts";
import type { Stage } from "../stage/stage.ts";

export function eventOf(stage: Stage, side: Side, id: number): Selection {
  return stage.isPair ? { kind: "event", id, side: side.index } : { kind: "event", id };
}

// To stand at a moment of one side. In a view of two labs a position is no moment: its track knows which one shows it.
export function standAt(stage: Stage, side: Side, moment: number) {
  stage.stand(stage.track.positionAt(side.index, moment));
}
