// One recording on the stage: where it stands, and what has changed since it was painted.
import { Recording } from "../model/recording.ts";

export class Side {
  constructor(index) {
    Object.assign(this, {
      index,
      recording: null,
      scene: null,
      reference: null,
      moment: 0,
      status: { title: "", running: false, phase: null },
      texts: new Map(),
    });
  }

  get title() {
    return this.status.title || this.recording?.header.title || "";
  }

  // A whole new recording, or more of the one that is known.
  begin(payload, moment) {
    this.recording = Recording.full(payload);
    this.texts.clear();
    this.moment = Math.max(this.recording.start, Math.min(moment ?? this.recording.end, this.recording.end));
    this.scene = this.recording.sceneAt(this.moment);
    this.reference = null;
  }

  // Brings the scene to a moment; returns what changed.
  move(moment) {
    this.moment = moment;
    return this.recording.move(this.scene, moment);
  }

  compareWith(moment) {
    this.reference = moment === null ? null : this.recording.sceneAt(moment);
  }

  // A token in one visible line.
  text(tokenId) {
    let known = this.texts.get(tokenId);
    if (known !== undefined) return known;
    const raw = this.recording.texts.get(tokenId);
    known = readable(raw === undefined ? String(tokenId) : raw);
    if (raw !== undefined) this.texts.set(tokenId, known);
    return known;
  }
}

const VISIBLE = { "\n": "⏎", "\r": "⏎", "\t": "⇥" };
const MAX_LENGTH = 24;

// Text of unknown origin: line ends as signs, control and direction marks as dots.
export function readable(text, limit = MAX_LENGTH) {
  const cut = text.length > limit ? text.slice(0, limit - 1) + "…" : text;
  return cut.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => VISIBLE[character] || "·");
}
