// The captions of a recording in plain words. The browser writes them: no kernel is asked, and a saved page has them.

import type { CaptionRow } from "../model/payloads.ts";
import { plainRows } from "../model/plain_words.ts";
import type { Caption, SoloTrack, Span } from "./track.ts";
import { Captions } from "./track.ts";

export class PlainCaptions extends Captions {
  known: { of: object; start: number; end: number; captions: Caption[] } | null = null; // of the span asked for last

  constructor(readonly track: SoloTrack) {
    super();
  }

  override add() {} // those of the kernel are for readers who know the terms

  override covers() {
    return true;
  }

  // What was said last.
  override at(moment: number) {
    const span = this.track.span(moment),
      said = this.of(span).findLast(({ at }) => at <= moment);
    return said ?? (span.index < 0 ? null : (this.of(this.track.spanOf(span.index - 1)).at(-1) ?? null));
  }

  override between(start: number, end: number) {
    return this.of(this.track.span(end)).filter(({ at }) => at > start && at <= end);
  }

  of({ index, start, end }: Span) {
    const { recording } = this.track.side;
    if (this.known?.of !== recording || this.known.start !== start || this.known.end !== end) {
      const stepEnd = index < 0 ? null : recording.steps[index].end;
      this.known = { of: recording, start, end, captions: placed(plainRows(recording, start, end), stepEnd) };
    }
    return this.known.captions;
  }
}

// The last sentence of a step stands at the step's end, so that playback does not stop in between.
function placed(rows: CaptionRow[], stepEnd: number | null): Caption[] {
  const last = stepEnd === null ? -1 : rows.findLastIndex(([at]) => at <= stepEnd);
  return rows.map(([at, sentence, phase], i) => ({ at: i === last ? (stepEnd ?? at) : at, sentence, phase }));
}
