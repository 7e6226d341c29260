// What Python says: a recording, more of it, words, and what was chosen. What does not join on is asked for anew.

const SILENCE_MS = 4000;

export class Hearing {
  constructor(stage) {
    Object.assign(this, { stage, isResyncing: false, hasAnswer: false });
  }

  close() {
    clearTimeout(this.patience);
  }

  receive(content, payload) {
    const act = MESSAGES[content.type];
    if (act) act(this, content, payload, this.stage.sides[content.side || 0]);
    else this.stage.tell(content.type, payload, content);
  }

  resync() {
    if (this.isResyncing) return;
    this.isResyncing = true;
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.silent(), SILENCE_MS);
    for (const { index } of this.stage.sides) if (!this.stage.wire.send({ type: "resync", side: index })) this.gone();
  }

  // As resync; once more afterwards, if an answer is under way: it may be older than what was missed, and nothing else would tell.
  resyncSurely() {
    this.isAskedAgain = this.isResyncing;
    this.resync();
  }

  // The question or its answer may have been lost: whoever hears anything again may ask again.
  silent() {
    this.isResyncing = false;
    this.stage.tell("silence");
  }

  gone() {
    clearTimeout(this.patience);
    this.stage.tell("gone");
  }

  present() {
    this.isResyncing = false;
    clearTimeout(this.patience);
    this.stage.tell("present");
    if (!this.isAskedAgain) return;
    this.isAskedAgain = false;
    this.resync();
  }

  begin(payload, side) {
    const { stage } = this,
      known = side.recording,
      { header } = payload;
    const isSame = known && known.header.lab === header.lab && known.header.generation === header.generation;
    const isNews = !isSame || payload.start + payload.events.length !== known.end;
    const isWorse = isSame && !isNews && known.start <= payload.start;
    if (payload.status) this.status(payload.status, side);
    if (isWorse) return this.learn(known, header);
    const stood = stage.position;
    side.begin(payload, isNews ? undefined : side.moment);
    if (!stage.isPair) this.markAgain(isSame, side);
    if (!isSame && side.index === 0) stage.track.beats?.clear();
    this.addWords(payload, side);
    stage.isReady = stage.sides.every(({ recording }) => recording);
    if (!stage.isReady) return;
    if (side.index === 0) stage.select(payload.selection ?? stage.selection, false);
    stage.tell("began", side);
    if (stage.isPair) return stage.repaint();
    if (isNews) this.standAtNews(payload);
    else stage.position = Math.min(stood, stage.track.end);
    stage.repaint();
  }

  // The marked moment of the same recording stays marked; another one has none.
  markAgain(isSame, { recording }) {
    const { stage } = this,
      { reference } = stage,
      isKnown =
        isSame && reference !== null && reference.position >= recording.start && reference.position <= recording.end;
    stage.compareWith(isKnown ? reference.position : null);
  }

  standAtNews({ stand = null }) {
    const { stage } = this;
    stage.player.stop();
    Object.assign(stage, { isResting: true, isFollowing: stand === null, isFollowed: stand === null });
    stage.position = stage.within(stand ?? stage.track.end);
  }

  // The same events again: what was saved is without the code.
  learn({ header }, { code }) {
    if (!code || Object.keys(header.code || {}).length) return;
    header.code = code;
    this.stage.repaint();
  }

  more(content, payload, side) {
    const { stage } = this,
      { recording } = side;
    if (content.status) this.status(content.status, side);
    const isSame = recording && (content.generation ?? recording.header.generation) === recording.header.generation;
    if (!isSame || payload.start !== recording.end) return this.resync();
    recording.more(payload);
    stage.painting.hasNews = true;
    const isTold = payload.told !== null && payload.told !== undefined;
    if (isTold) this.addWords({ ...payload, told: [[payload.told, recording.end]] }, side);
    stage.tell("more", side, payload);
    if (stage.isPair) return;
    if (isTold && payload.beats?.length) this.playNews(payload.told);
    else this.follow(recording.end);
    stage.changed();
  }

  // Where the lab stands when it is quiet: whoever stands elsewhere has missed something.
  ended({ generation, end }, { recording }) {
    if (!recording || recording.header.generation !== generation || recording.end !== end) this.resync();
    else this.quiet();
  }

  // After a run Python takes everybody to be at the newest moment: who has stayed behind says so.
  quiet() {
    const { stage } = this;
    if (stage.isReady && !stage.isFollowing && !stage.isPlaying && !stage.player.isHeld) stage.asking.sayWhere();
    stage.tell("quiet");
  }

  // A run goes on: who stood at its end goes with it, and who watched a step is taken there. A step that waits to be
  // seen waits until another begins.
  follow(end) {
    const { stage } = this,
      { player, sides } = stage,
      newest = sides[0].recording.steps.at(-1);
    const isOnItsWay = player.isPlaying || (player.isHeld && newest?.start >= player.target);
    if (isOnItsWay) player.stop();
    if (isOnItsWay || stage.isFollowing) stage.go(end, false, true);
  }

  // A new step ends the play of the one before; the rest of the same one is played on.
  playNews(from) {
    const { player, sides } = this.stage,
      { recording } = sides[0];
    if (recording.kind(from) === "StepStarted") player.stop();
    player.play(from, recording.end);
  }

  // The joint words of two labs: what is new is played, or stood at, as after `more` of one.
  pair(payload) {
    const { stage } = this,
      { end } = stage.track,
      isAtEnd = stage.position >= end;
    if (!stage.track.hear(payload)) return this.resync();
    stage.tell("beats");
    if (!stage.isReady) return;
    if (payload.told && stage.track.end > end) stage.player.play(end, stage.track.end);
    else if (isAtEnd && !stage.player.isPlaying) stage.go(stage.track.end, false, true);
    stage.repaint();
  }

  addWords(payload, side) {
    const { track } = this.stage;
    if (side.index !== 0 || !track.beats) return;
    for (const [start, end] of payload.told || [])
      track.beats.add(
        start,
        end,
        (payload.beats || []).filter(([at]) => at > start && at <= end),
      );
    if (payload.rest) track.rest = payload.rest;
  }

  words(payload) {
    const { stage } = this;
    this.addWords({ ...payload, told: [[payload.start, payload.end]] }, stage.sides[0]);
    if (payload.rest && stage.isFollowed) stage.isResting = true;
    stage.tell("beats");
    stage.changed();
  }

  status(status, side) {
    side.status = status;
    this.stage.tell("status", status, side);
  }
}

const MESSAGES = {
  full(hearing, content, payload, side) {
    const isFirstAnswer = Boolean(content.view) && !hearing.hasAnswer;
    if (content.view) hearing.present();
    hearing.stage.begin(payload, side);
    if (!isFirstAnswer) return;
    hearing.hasAnswer = true;
    if ((payload.stand ?? null) !== null) MESSAGES.stand(hearing, { moment: payload.stand }); // said before there was a view to hear it
  },
  more: (hearing, content, payload, side) => hearing.more(content, payload, side),
  end: (hearing, content, payload, side) => hearing.ended(content, side),
  older() {},
  beats(hearing, content, payload) {
    if (payload && content.id === undefined) hearing.words(payload);
  },
  why() {},
  compare: (hearing, content, payload) => hearing.stage.hearPair(payload),
  status: (hearing, content, payload, side) => hearing.status(content.status, side),
  answer({ stage }, content) {
    if (content.view === stage.wire.id) stage.tell("answer", content);
  },
  select({ stage }, content) {
    if (content.from !== stage.wire.id) stage.select(content.selection, false);
  },
  stand({ stage }, content) {
    if (!stage.isReady || stage.isPair) return;
    stage.player.stop();
    stage.go(stage.within(content.moment ?? stage.track.end), false);
    stage.isFollowing = true; // where Python puts the views they stand until the lab goes on
  },
  failure: ({ stage }, content) => stage.tell("failure", content.message),
};
