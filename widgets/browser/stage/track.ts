// Where one can stand on the recording of one lab: a position is a moment; the stops of a step are its beats, or its events.
import { lastBefore } from "../model/steps.ts";
import { Beats } from "./beats.ts";
import { plainly } from "../views/plain.ts";
import { restingWords } from "./telling.ts";

export class SoloTrack {
  constructor(side) {
    Object.assign(this, { side, beats: new Beats(), rest: null });
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

  // The step of a position with what follows it up to the next one: where a step ends, and another begins, is the end of the first.
  span(position) {
    return this.spanOf(this.find(position));
  }

  find(position) {
    return lastBefore(this.side.recording.steps, position, ({ start }) => start);
  }

  spanOf(index) {
    const { steps, start, end } = this.side.recording;
    return {
      index,
      step: index < 0 ? null : steps[index].step,
      start: index < 0 ? start : steps[index].start,
      end: index + 1 < steps.length ? steps[index + 1].start : end,
    };
  }

  // Where a step is over, before anything that follows it; of a step that goes on, the newest moment.
  endOf(index) {
    return (index < 0 ? null : this.side.recording.steps[index].end) ?? this.spanOf(index).end;
  }

  // A moment in words, by the event that led to it.
  nameOf(position) {
    const { index, step } = this.span(position);
    if (index < 0)
      return position >= this.endOf(index) && this.numSpans
        ? `before step ${this.side.recording.steps[0].step}`
        : `event ${position - 1}`;
    return position === this.endOf(index) && this.side.recording.steps[index].end !== null
      ? `the end of step ${step}`
      : `step ${step}, event ${position - 1}`;
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
    const span = this.span(position + 1);
    return this.stops(span).find((stop) => stop > position) ?? span.end;
  }

  previous(position) {
    if (position <= this.first) return this.first;
    const span = this.span(position),
      before = this.stops(span).filter((stop) => stop < position);
    return before.length ? before.at(-1) : span.start;
  }

  // Python's words name contents by signs: the letters are those of this recording.
  lettered(beat) {
    if (!beat.isLettered)
      Object.assign(beat, { sentence: this.side.recording.lettered(beat.sentence, beat.at), isLettered: true });
    return beat;
  }

  told(position) {
    const beat = this.beats.at(position);
    if (beat) return this.lettered(beat);
    const { scene, recording } = this.side;
    const sentence =
      position > recording.start ? plainly(recording, position - 1, (id) => this.side.text(id)) : restingWords(scene);
    return { at: position, sentence, phase: scene.phase };
  }
}
