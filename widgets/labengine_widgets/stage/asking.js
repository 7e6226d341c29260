// What is asked of Python, and told to it: older events, missing words, where the reader stands.

const TELL_WHERE_MS = 100;
const ASK_WORDS_MS = 120;

export class Asking {
  constructor(stage) {
    Object.assign(this, { stage, older: null, whereTimer: 0, whereTold: undefined });
  }

  close() {
    clearTimeout(this.whereTimer);
    clearTimeout(this.wordsTimer);
  }

  get recording() {
    return this.stage.sides[0].recording;
  }

  // The events before those that are here; false where there are none, or nobody to ask.
  askOlder() {
    const { stage, recording } = this;
    if (this.older || !stage.wire.canAsk || stage.isPair || recording.start <= recording.header.first) return this.older ?? Promise.resolve(false);
    this.older = stage.ask("older", { before: recording.start }).then((payload) => {
      if (payload && payload.end === recording.start) recording.older(payload);
      return true;
    }, () => false).finally(() => {
      this.older = null;
      stage.changed();
    });
    return this.older;
  }

  // Goes to a step that may not be here yet; the newest wish counts.
  async seekStep(step, isAtEnd = true) {
    const { stage, recording } = this, wish = (this.sought = {});
    while (recording.steps.length && step < recording.steps[0].step && recording.start > recording.header.first) if (!(await this.askOlder())) break;
    if (wish !== this.sought) return;
    let index = recording.steps.length - 1;
    while (index > 0 && recording.steps[index].step > step) index -= 1;
    if (step < (recording.steps[0]?.step ?? 0)) index = -1;
    const span = stage.track.spanOf(index);
    stage.track.index = index;
    stage.stand(isAtEnd ? span.end : span.start);
  }

  // The words of the step where one stands, once one has stood there for a moment.
  askWords() {
    clearTimeout(this.wordsTimer);
    const { stage } = this, { beats } = stage.track;
    if (!stage.wire.canAsk || !beats || stage.hearing.isResyncing) return;
    const { start, end } = stage.track.span(stage.position);
    if (stage.status.running || beats.covers(start, end)) return;
    this.wordsTimer = setTimeout(() => stage.ask("beats", { start, end }).then((payload) => stage.hearing.words(payload), () => {}), ASK_WORDS_MS);
  }

  sayWhere() {
    const { stage } = this;
    if (this.whereTimer || stage.isPair) return;
    this.whereTimer = setTimeout(() => {
      this.whereTimer = 0;
      const moment = stage.position >= stage.track.end ? null : stage.position;
      if (moment !== this.whereTold) stage.wire.send({ type: "at", side: 0, moment });
      this.whereTold = moment;
    }, TELL_WHERE_MS);
  }
}
