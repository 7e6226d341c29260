// Where one can stand on the recording of one lab: a position is a moment; the stops of a step are its beats, or its events.
import { Beats } from "./beats.js";
import { plainly } from "../views/plain.js";
import { restingWords } from "./telling.js";

export class SoloTrack {
  constructor(side) {
    Object.assign(this, { side, beats: new Beats(), rest: null, index: -1 });
  }

  get first() {
    return this.side.recording.start;
  }

  get end() {
    return this.side.recording.end;
  }

  moments(position) {
    return [position];
  }

  // The step around a position with what follows it up to the next one; on a border the one where the reader came from.
  span(position) {
    if (this.index >= -1 && this.contains(this.index, position)) return this.spanOf(this.index);
    this.index = this.find(position);
    return this.spanOf(this.index);
  }

  // Makes the step that begins at a position the one in which it lies.
  enter(position) {
    this.index = this.find(position);
  }

  find(position) {
    const { steps } = this.side.recording;
    let low = 0, high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].start <= position) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  contains(index, position) {
    if (index >= this.side.recording.steps.length) return false;
    const { start, end } = this.spanOf(index);
    return start <= position && position <= end;
  }

  spanOf(index) {
    const { steps, start, end } = this.side.recording;
    return { index, step: index < 0 ? null : steps[index].step, start: index < 0 ? start : steps[index].start, end: index + 1 < steps.length ? steps[index + 1].start : end };
  }

  get numSpans() {
    return this.side.recording.steps.length;
  }

  // The positions at which a play or an arrow key stops within a span, its start left out.
  stops({ start, end }) {
    if (this.beats.covers(start, end)) return this.beats.between(start, end).map(({ at }) => at);
    return Array.from({ length: end - start }, (_, i) => start + i + 1);
  }

  next(position) {
    if (position >= this.end) return this.end;
    let span = this.span(position);
    if (position >= span.end) span = this.spanOf((this.index = this.find(position)));
    return this.stops(span).find((stop) => stop > position) ?? span.end;
  }

  previous(position) {
    if (position <= this.first) return this.first;
    let span = this.span(position);
    if (position <= span.start) span = this.spanOf((this.index = this.find(position - 1)));
    const before = this.stops(span).filter((stop) => stop < position);
    return before.length ? before.at(-1) : span.start;
  }

  // Python's words name contents by signs: the letters are those of this recording.
  lettered(beat) {
    if (!beat.isLettered) Object.assign(beat, { sentence: this.side.recording.lettered(beat.sentence, beat.at), isLettered: true });
    return beat;
  }

  told(position) {
    const beat = this.beats.at(position);
    if (beat) return this.lettered(beat);
    const { scene, recording } = this.side;
    const sentence = position > recording.start ? plainly(recording, position - 1, (id) => this.side.text(id)) : restingWords(scene);
    return { at: position, sentence, phase: scene.phase };
  }
}
