// Questions and reports to Python: older events, missing captions, the reader's moment.
import type { CaptionsPayload, OlderPayload } from "../model/payloads.ts";
import type { Stage } from "./stage.ts";

const REPORT_MS = 100;
const ASK_WORDS_MS = 120;

export class Questions {
  older: Promise<boolean> | null = null; // the question that is under way
  whereTimer = 0;
  sought?: object; // of the newest call of seekStep
  wordsTimer?: number;

  constructor(readonly stage: Stage) {}

  close() {
    clearTimeout(this.whereTimer);
    clearTimeout(this.wordsTimer);
  }

  get recording() {
    return this.stage.sides[0].recording;
  }

  // Asks for the events before those that are here; false if there are none, or no kernel.
  askOlder() {
    const { stage, recording } = this;
    if (this.older || !stage.wire.canAsk || stage.isPair || recording.start <= recording.first)
      return this.older ?? Promise.resolve(false);
    this.older = stage
      .ask("older", { before: recording.start })
      .then(
        (answer) => {
          const payload = answer as OlderPayload | null;
          if (payload?.end === recording.start) recording.older(payload);
          return true;
        },
        () => false,
      )
      .finally(() => {
        this.older = null;
        stage.changed();
      });
    return this.older;
  }

  // Goes to the end of a step that may not be here yet, of the newest to the newest moment; the newest call counts.
  async seekStep(step: number) {
    const { stage, recording } = this,
      wanted = (this.sought = {});
    while (recording.steps.length && step < recording.steps[0].step && recording.start > recording.first)
      if (!(await this.askOlder())) break;
    if (wanted !== this.sought) return;
    let index = recording.steps.length - 1;
    while (index > 0 && recording.steps[index].step > step) index -= 1;
    if (step < (recording.steps[0]?.step ?? 0)) index = -1;
    stage.moveTo(index + 1 < recording.steps.length ? stage.track.endOf(index) : stage.track.end);
  }

  // Asks for the captions of the shown step and of the next one, once the position has stayed the same for a moment.
  askWords() {
    clearTimeout(this.wordsTimer);
    const { stage } = this,
      { captions } = stage.track;
    if (!stage.wire.canAsk || !captions || stage.inbox.isWaiting) return;
    const { track, position } = stage,
      spans = [track.span(position), track.span(Math.min(position + 1, track.end))];
    const unknown = spans.find(({ start, end }) => !captions.covers(start, end));
    if ((stage.status.running && stage.isFollowing) || !unknown) return;
    const { start, end } = unknown;
    this.wordsTimer = setTimeout(
      () =>
        stage.ask("captions", { start, end }).then(
          (payload) => stage.inbox.words(payload as CaptionsPayload),
          () => {},
        ),
      ASK_WORDS_MS,
    );
  }

  // Every time, the same moment too: Python may have been elsewhere since, or have heard another view.
  reportMoment() {
    const { stage } = this;
    if (this.whereTimer || stage.isPair) return;
    this.whereTimer = setTimeout(() => {
      this.whereTimer = 0;
      const moment = stage.position >= stage.track.end ? null : stage.position;
      stage.wire.send({ type: "at", side: 0, moment, num_shows: stage.inbox.heard.num_shows });
    }, REPORT_MS);
  }
}
