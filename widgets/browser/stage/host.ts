// Notifications between the parts of the stage, and their data about its moment.

import type { MorePayload, Selection, Status, WireContent } from "../model/payloads.ts";
import type { Side } from "../model/side.ts";
import type { PairTrack } from "./pair_track.ts";
import type { SoloTrack } from "./track.ts";

// Notifications between parts of the stage.
export interface StageEvents {
  status: [status: Status, side: Side];
  began: [side: Side];
  more: [side: Side, payload: MorePayload];
  captions: [];
  quiet: [];
  painted: [];
  select: [selection: Selection | null, isHeard: boolean];
  command: [action: string];
  answer: [content: WireContent];
  position: [content: WireContent];
  varied: [content: WireContent];
  failure: [message: string];
  gone: [];
  silence: [];
  present: [];
}

// The marked moment, with which the one that is shown is compared.
export interface Reference {
  position: number;
  name: string;
  step: number | null;
}

// How often Python has set the shown moment, and the selection, as far as the view has heard. Its reports carry these
// counts: a report with an older count than Python's is outdated.
export interface Heard {
  num_shows: number;
  num_selects: number;
}

export type Track = SoloTrack | PairTrack;
