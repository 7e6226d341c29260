// One recording on the stage: its shown moment, and the changes since the last paint.

import { readable } from "./names.ts";
import type { FullPayload, Status } from "./payloads.ts";
import { Recording } from "./recording.ts";
import type { Scene } from "./scene.ts";

export class Side {
  judged = { said: new Set<number>(), truth: new Set<number>() }; // blocks of a judged prediction
  recording = Recording.full({ header: { kinds: [] } }); // empty until `begin`
  scene: Scene = this.recording.head;
  hasRecording = false;
  reference: Scene | null = null;
  moment = 0;
  status: Status = { title: "", running: false, phase: null };
  texts = new Map<number, string>();

  constructor(readonly index: number) {}

  get title() {
    return this.status.title || this.recording.header.title || "";
  }

  // True while the free queue's head would give away the answer to the open question.
  get isNextHidden() {
    const { asked } = this.status;
    return asked?.is_open === true && (asked.kind === "block" || asked.kind === "hash");
  }

  // The block at the free queue's head; undefined if there is none, or if it is hidden.
  get headBlock(): number | undefined {
    return this.isNextHidden ? undefined : this.scene.queue.first(1)[0];
  }

  // What the head is: the next block that is taken, unless a user's method takes blocks.
  get headWord() {
    return this.recording.takenBy === null ? "next" : "head";
  }

  // A whole new recording, or more of the one that is known.
  begin(payload: FullPayload, moment: number | undefined) {
    this.recording = Recording.full(payload);
    this.hasRecording = true;
    this.texts.clear();
    this.moment = Math.max(this.recording.start, Math.min(moment ?? this.recording.end, this.recording.end));
    this.scene = this.recording.sceneAt(this.moment);
    this.reference = null;
  }

  // Brings the scene to a moment; returns what changed.
  move(moment: number) {
    this.moment = moment;
    return this.recording.move(this.scene, moment);
  }

  compareWith(moment: number | null) {
    this.reference = moment === null ? null : this.recording.sceneAt(moment);
  }

  // The engine's own id of a request, in one visible line; empty where requests have only letters.
  engineId(request: number, limit = MAX_ID) {
    return readable(this.recording.names.get(request) ?? "", limit);
  }

  // A token in one visible line.
  text(tokenId: number) {
    let known = this.texts.get(tokenId);
    if (known !== undefined) return known;
    const raw = this.recording.texts.get(tokenId);
    known = readable(raw ?? ` ${tokenId}`, MAX_LENGTH); // a number is a separate word
    if (raw !== undefined) this.texts.set(tokenId, known);
    return known;
  }
}

const MAX_LENGTH = 24,
  MAX_ID = 160;
