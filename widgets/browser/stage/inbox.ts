// Messages from Python: a recording, more of it, captions, selections. After a missing stretch the recording is
// asked for again.
import type {
  CaptionsPayload,
  ComparePayload,
  FullPayload,
  Header,
  MorePayload,
  Status,
  WireContent,
  WordsPayload,
} from "../model/payloads.ts";
import type { Recording } from "../model/recording.ts";
import type { Side } from "../model/side.ts";
import type { Heard } from "./host.ts";
import type { Stage } from "./stage.ts";

const SILENCE_MS = 4000;

// The state of the question for the newest steps.
// answered: no answer is due
// asked:    one is due
// outdated: one is due, and may be older than what was missed since: ask again when it comes
// overdue:  as outdated, but the kernel has been silent
export type AskState = "answered" | "asked" | "outdated" | "overdue";
export type AskEvent = "ask" | "askSurely" | "answer" | "silence";

export const ASK_STATES: Record<AskState, Record<AskEvent, AskState>> = {
  answered: { ask: "asked", askSurely: "asked", answer: "answered", silence: "answered" },
  asked: { ask: "asked", askSurely: "outdated", answer: "answered", silence: "answered" },
  outdated: { ask: "outdated", askSurely: "outdated", answer: "asked", silence: "overdue" },
  overdue: { ask: "outdated", askSurely: "asked", answer: "asked", silence: "overdue" },
};

export class Inbox {
  state: AskState = "answered";
  heard: Heard = { num_shows: 0, num_selects: 0 };
  hasOpened = false; // this view's own question was answered once
  patience?: number; // the timer that ends the waiting for an answer
  onCompare: (payload: ComparePayload) => void = () => {}; // the layout of two labs takes their captions

  constructor(readonly stage: Stage) {}

  close() {
    clearTimeout(this.patience);
  }

  receive(content: WireContent, payload: unknown) {
    // The type of a message, which is known when it comes, names its payload.
    MESSAGES[content.type]?.(this, content, payload as never, this.stage.sides[content.side || 0]);
  }

  get isWaiting() {
    return this.state === "asked" || this.state === "outdated";
  }

  // Asks for the newest steps (about 3,000 events), unless an answer is due. isAnew: the kernel that was asked before
  // is gone.
  resync(isAnew = false) {
    if (isAnew) this.state = ASK_STATES[this.state].silence;
    this.ask("ask");
  }

  // As resync; and once more after the answer that is due, which may be older than what was missed.
  resyncSurely() {
    this.ask("askSurely");
  }

  ask(event: AskEvent) {
    const wasWaiting = this.isWaiting;
    this.state = ASK_STATES[this.state][event];
    if (!wasWaiting) this.sendQuestion();
  }

  sendQuestion() {
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.silent(), SILENCE_MS);
    for (const { index } of this.stage.sides) if (!this.stage.wire.send({ type: "resync", side: index })) this.gone();
  }

  // The question or its answer may have been lost: it may be asked again.
  silent() {
    this.state = ASK_STATES[this.state].silence;
    this.stage.emit("silence");
  }

  gone() {
    clearTimeout(this.patience);
    this.stage.emit("gone");
  }

  present() {
    this.state = ASK_STATES[this.state].answer;
    clearTimeout(this.patience);
    this.stage.emit("present");
    if (this.state === "asked") this.sendQuestion();
  }

  begin(payload: FullPayload, side: Side) {
    const { stage } = this,
      { header, start = 0, events = [] } = payload,
      known = side.hasRecording ? side.recording : null;
    const isSame = known !== null && known.header.lab === header.lab && known.header.generation === header.generation;
    const isNews = !isSame || start + events.length !== known.end;
    if (payload.status) this.status(payload.status, side);
    if (isSame && !isNews && known.start <= start) return this.learn(known, header);
    const stood = stage.position;
    side.begin(payload, isNews ? undefined : side.moment);
    if (!stage.isPair) this.markAgain(isSame, side);
    if (!isSame && side.index === 0) stage.track.captions?.clear();
    this.addWords(payload, side);
    if (stage.sides.every((one) => one.hasRecording)) stage.happened("ready");
    if (!stage.isReady) return;
    this.hear(payload, side);
    if (side.index === 0) stage.select(payload.selection ?? stage.selection, false);
    stage.emit("began", side);
    if (stage.isPair) return stage.repaint();
    if (isNews) this.open(payload);
    else stage.position = Math.min(stood, stage.track.end);
    stage.repaint();
  }

  // The view reports on its first side only.
  hear({ num_shows = this.heard.num_shows, num_selects = this.heard.num_selects }: Partial<Heard>, side: Side) {
    if (side.index === 0) this.heard = { num_shows, num_selects };
  }

  // The marked moment of the same recording stays marked; another one has none.
  markAgain(isSame: boolean, { recording }: Side) {
    const { reference } = this.stage;
    const isKnown =
      isSame && reference !== null && reference.position >= recording.start && reference.position <= recording.end;
    this.stage.compareWith(isKnown ? reference.position : null);
  }

  open({ shown = null }: FullPayload) {
    const { stage } = this;
    stage.player.stop();
    stage.happened(shown === null ? "openedAtEnd" : "openedAtMoment");
    stage.position = stage.within(shown ?? stage.track.end);
  }

  // The same events again: what was saved is without the code.
  learn({ header }: Recording, { code }: Header) {
    if (!code || Object.keys(header.code || {}).length) return;
    header.code = code;
    this.stage.repaint();
  }

  more(content: WireContent, payload: MorePayload, side: Side) {
    const { stage } = this,
      recording = side.hasRecording ? side.recording : null;
    if (content.status) this.status(content.status, side);
    const isSame = (content.generation ?? recording?.header.generation) === recording?.header.generation;
    if (!recording || !isSame || payload.start !== recording.end) return this.resync();
    recording.more(payload);
    stage.painting.hasNews = true;
    const from = payload.captioned ?? null;
    if (from !== null) this.addWords({ ...payload, captioned: [[from, recording.end]] }, side);
    stage.emit("more", side, payload);
    if (stage.isPair) return;
    if (from !== null && payload.captions?.length) this.playNews(from);
    else this.follow(recording.end);
    stage.changed();
  }

  // The newest moment of a quiet lab: a view with another one has missed a message.
  ended({ generation, end }: WireContent, side: Side) {
    const isMissing = !side.hasRecording || side.recording.header.generation !== generation;
    if (isMissing || side.recording.end !== end) this.resync();
    else this.quiet();
  }

  // After a run Python takes every view to be at the newest moment: one that has stayed behind says so.
  quiet() {
    const { stage } = this;
    if (stage.isReady && !stage.isFollowing && stage.player.state === "idle") stage.questions.reportMoment();
    stage.emit("quiet");
  }

  // A run goes on: a view that stood at its end goes with it, and so does one that plays a step. A step that waits to
  // be seen waits until another one begins.
  follow(end: number) {
    const { player, sides, isFollowing } = this.stage,
      newest = sides[0].recording.steps.at(-1);
    const isOutrun = player.isHeld && newest !== undefined && player.target !== null && newest.start >= player.target;
    if (player.isPlaying || isOutrun) player.stop();
    else if (!isFollowing) return;
    this.stage.go(end, false, true);
  }

  // A new step ends the play of the one before; the rest of the same one is played on.
  playNews(from: number) {
    const { player, sides } = this.stage,
      { recording } = sides[0];
    if (recording.kind(from) === "StepStarted") player.stop();
    player.play(from, recording.end);
  }

  addWords(payload: WordsPayload, side: Side) {
    const { track } = this.stage;
    if (side.index !== 0 || !track.captions || this.stage.isPlain) return;
    const rows = payload.captions ?? [];
    for (const [start, end] of payload.captioned ?? [])
      track.captions.add(
        start,
        end,
        rows.filter(([at]) => at > start && at <= end),
      );
    if (payload.opening) track.opening = payload.opening;
  }

  words(payload: CaptionsPayload) {
    const { stage } = this;
    this.addWords({ ...payload, captioned: [[payload.start, payload.end]] }, stage.sides[0]);
    if (payload.opening) stage.happened("labRested");
    stage.emit("captions");
    stage.changed();
  }

  status(status: Status, side: Side) {
    side.status = status;
    this.stage.emit("status", status, side);
  }

  // Python has the view show a moment, until the lab goes on.
  show(moment: number | null) {
    const { stage } = this;
    if (!stage.isReady || stage.isPair) return;
    stage.player.stop();
    stage.go(stage.within(moment ?? stage.track.end), false);
    stage.happened("placed");
  }
}

type Act<Payload> = (inbox: Inbox, content: WireContent, payload: Payload, side: Side) => void;

// The handler of each type of message. `older` and `why` answer questions, which the wire settles.
const MESSAGES: Record<string, Act<never>> = {
  full(inbox, content, payload: FullPayload, side) {
    const isFirstAnswer = Boolean(content.view) && !inbox.hasOpened;
    if (content.view) inbox.present();
    inbox.begin(payload, side);
    if (!isFirstAnswer) return;
    inbox.hasOpened = true;
    inbox.hear(payload, side);
    if ((payload.shown ?? null) !== null) inbox.show(payload.shown ?? null); // said before there was a view to hear it
  },
  more: (inbox, content, payload: MorePayload, side) => inbox.more(content, payload, side),
  end: (inbox, content, _payload, side) => inbox.ended(content, side),
  captions(inbox, content, payload: CaptionsPayload | null) {
    if (payload && content.id === undefined) inbox.words(payload);
  },
  compare: (inbox, _content, payload: ComparePayload) => inbox.onCompare(payload),
  status: (inbox, { status }, _payload, side) => status && inbox.status(status, side),
  answer: ({ stage }, content) => {
    if (content.view === stage.wire.id) stage.emit("answer", content);
  },
  select(inbox, content, _payload, side) {
    const { stage } = inbox;
    inbox.hear(content, side);
    if (content.from !== stage.wire.id) stage.select(content.selection ?? null, false);
  },
  show(inbox, content, _payload, side) {
    inbox.hear(content, side);
    inbox.show(content.moment ?? null);
  },
  position: ({ stage }, content) => stage.emit("position", content),
  varied: ({ stage }, content) => stage.emit("varied", content),
  failure: ({ stage }, { message = "" }) => stage.emit("failure", message),
};
