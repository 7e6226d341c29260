// The live page: a question at its front; for an address with a session a recorded picture at once, then the same lab
// with Python behind it, and links that lead back to it.
import type { Stage } from "../browser/stage/stage.ts";
import { unpacked } from "../browser/stage/wire.ts";
import type { Arrangement } from "../browser/widget.ts";
import { mount } from "../browser/widget.ts";
import { Bar } from "./bar.ts";
import { Connection } from "./connection.ts";
import { Opening } from "./opening.ts";
import type { Posted } from "./python.ts";
import type { ModelNews } from "./real_model.ts";
import { MODEL, RealModel } from "./real_model.ts";

// opening: a question is asked, and a session is at hand; recorded: a picture is shown while Python loads; loading:
// Python loads; live: the lab can be stepped
type State = "opening" | "recorded" | "loading" | "live" | "failed";

const COMPARE: Arrangement = { kind: "compare", views: [] },
  LINK_MS = 150,
  REAL = { model: MODEL, edition: "labengine", blocks: "24", block_size: "8" }; // its chat template is long

const WORDS: Record<State, string> = {
  opening: "",
  recorded: "Recorded; Python is loading (10 MB the first time) …",
  loading: "Python is loading (10 MB the first time) …",
  live: "Live: it runs in your browser",
  failed: "only the front page's question and the recorded bugs can be played.",
};

// A payload a side and one for both, and the sliders above.
interface Recorded {
  recordings: unknown[];
  varied: Arrangement["varied"];
}

class LivePage {
  opening = new Opening((question, people, isReal) => this.askOwn(question, people, isReal));
  isToStep = false; // the session is one that the reader asked for: its first step is played
  stage: Stage | null = null;
  isRecorded = false; // the stage shows the recording of the session that is being opened
  opensAt = -1; // the position at which the session opened: the address does not name it
  isPythonThere = false;
  whyNoPython = ""; // once it has failed
  linkTimer?: number;
  query = location.search.slice(1); // empty while the page asks its question
  moment = momentOf(this.query); // the one that the address names, until it is shown
  bar = new Bar({
    open: (query) => this.open(query),
    add: (request) => this.stage?.command("add", request),
    restart: () => this.restart(),
  });
  connection = new Connection(new URL("worker.mjs", import.meta.url), (posted) => this.take(posted));
  realModel = new RealModel({
    open: (query) => this.bar.open(query),
    load: (isAsked) => this.connection.post({ type: "load_model", is_asked: isAsked }),
    showFront: () => this.showFront(),
    say: (words) => this.opening.say(words),
  });

  constructor(readonly place: HTMLElement) {
    this.connection.listen((content) => this.notice(content.type, content.status?.running));
  }

  async begin() {
    if (!this.query) return this.ask();
    this.show("loading");
    this.bar.follow(this.query);
    const recorded = await this.recorded().catch(() => null);
    if (!recorded || this.stage) return;
    this.isRecorded = true;
    const stage = (this.stage = await this.mount(
      recorded.recordings.map((one) => JSON.stringify(one)),
      { ...COMPARE, varied: recorded.varied },
    ));
    if (this.place.dataset.state === "loading") this.show("recorded");
    if (this.moment !== null) stage.moveTo(this.moment);
  }

  async ask() {
    this.show("opening");
    await this.opening.show(this.place);
  }

  // The reader's own question: its session is opened as soon as Python is there.
  askOwn(question: string, people: number, isReal: boolean) {
    this.isToStep = true;
    const copies = String(people),
      simulated = { edition: "labengine", prompt: question, copies },
      real = { ...REAL, chat: question, copies, max_tokens: "48" };
    this.query = String(isReal ? new URLSearchParams(real) : new URLSearchParams(simulated));
    if (this.whyNoPython) this.refused(this.whyNoPython);
    else if (this.isPythonThere) this.begun();
    else this.show("loading");
  }

  // The recording of the scenario that the address names; null without one.
  async recorded(): Promise<Recorded | null> {
    const bug = new URLSearchParams(this.query).get("bug");
    if (!bug || !/^[\w.+-]+$/.test(bug)) return null;
    const answer = await fetch(new URL(`recorded/${bug}.bin`, import.meta.url));
    return answer.ok ? ((await unpacked(new Uint8Array(await answer.arrayBuffer()))) as Recorded) : null;
  }

  show(state: State, words = WORDS[state]) {
    this.place.dataset.state = state;
    this.bar.say(words, state === "failed");
    this.opening.say(words);
    this.enable(this.isPythonThere && state !== "failed");
  }

  async mount(recordings: string[], arrangement: Arrangement) {
    const stage = await mount(this.place, recordings, arrangement, this.connection);
    stage.on("present", () => {
      if (this.place.dataset.state !== "live") this.show("live");
    });
    stage.on("painted", () => this.noteMoment());
    stage.on("status", () => this.bar.offer(stage.sides));
    return stage;
  }

  open(query: string) {
    this.query = query;
    this.moment = momentOf(query);
    this.connection.post({ type: "open", query });
  }

  take({ kind, content }: Posted) {
    if (kind === "ready") this.begun();
    else if (kind === "model") this.realModel.hear(content as unknown as ModelNews);
    else if (kind === "failed") this.fail(String(content.message));
    else if (kind === "opened") void this.opened(content.arrangement as Arrangement, String(content.query));
    else if (kind === "refused") this.refused(String(content.message));
    else this.link(String(content.query));
  }

  // Python is there.
  begun() {
    if (!this.isPythonThere) keepForOffline();
    this.isPythonThere = true;
    if (this.realModel.isNeededBy(this.query)) this.realModel.openWhenLoaded(this.query, this.isToStep);
    else if (this.query) this.open(this.query);
    this.enable(true);
  }

  enable(isEnabled: boolean) {
    this.bar.enable(isEnabled);
    this.realModel.enable(isEnabled);
  }

  // A new Python, which does again what the address names.
  restart() {
    this.isPythonThere = false;
    this.whyNoPython = "";
    this.query = location.search.slice(1);
    this.show("loading", "Python is restarting and repeating the steps …");
    this.realModel.forget();
    this.connection.restart();
  }

  fail(message: string) {
    const why = "WebAssembly" in globalThis ? message.trim().split("\n").at(-1) : "this browser has no WebAssembly";
    if (!this.connection.isOpen) this.whyNoPython = `Python cannot run here (${why}): ${WORDS.failed}`;
    this.show(
      "failed",
      this.whyNoPython || `Python has stopped: press Restart Python to take the same steps again. (${why})`,
    );
  }

  // The recording of the same session becomes live as it is; any other picture makes room.
  async opened(arrangement: Arrangement, query: string) {
    this.connection.open();
    if (!this.isRecorded) {
      this.opensAt = -1;
      this.opening.close();
      this.stage?.close();
      this.stage = await this.mount([], arrangement);
    } else this.stage?.emit("varied", { type: "varied", varied: arrangement.varied }); // of the steps in the link, too
    this.isRecorded = false;
    this.stage?.inbox.resync(true);
    this.showMoment();
    this.bar.showForm(arrangement.kind === "compare");
    this.link(query);
  }

  // What was open stays; a page that has nothing yet asks its question.
  refused(message: string) {
    this.bar.refuse(message);
    this.opening.say(message);
    this.isToStep = false;
    if (this.opening.isShown) this.query = ""; // the question stands as before
    this.showFront();
  }

  showFront() {
    if (this.connection.isOpen || this.opening.isShown) return;
    this.query = "";
    void this.ask();
  }

  // Shows the moment that the address names, when the recording has come that far.
  showMoment() {
    const { stage, moment } = this;
    if (moment === null || !stage?.isReady || stage.track.end < moment) return;
    this.moment = null;
    this.opensAt = Number.POSITIVE_INFINITY; // the address goes on naming it
    stage.moveTo(moment);
  }

  // Of a question that the reader has asked at the front: its session has just come.
  takeFirstStep() {
    if (!this.isToStep || this.place.dataset.state !== "live" || !this.stage?.isReady) return;
    this.isToStep = false;
    this.stage.command("step");
  }

  // The address names the moment that the reader looks at, unless it is the newest.
  noteMoment() {
    this.showMoment();
    this.takeFirstStep();
    if (this.opensAt < 0 && this.stage?.isReady) this.opensAt = this.stage.position;
    if (this.place.dataset.state === "live" && this.moment === null) this.write();
  }

  write() {
    const { stage } = this,
      isResting = stage?.isReady && stage.player.state === "idle",
      isOlder = isResting && stage.position < stage.track.end && stage.position !== this.opensAt,
      address = isOlder ? `?${this.query}&moment=${stage.position}` : `?${this.query}`;
    if (location.search !== address) history.replaceState(null, "", address);
  }

  // After what may have changed the session, its link is asked for.
  notice(type: string, isRunning?: boolean) {
    if (type !== "answer" && (type !== "status" || isRunning)) return;
    clearTimeout(this.linkTimer);
    this.linkTimer = setTimeout(() => this.connection.post({ type: "permalink" }), LINK_MS);
  }

  link(query: string) {
    this.query = query;
    this.bar.follow(query);
    this.realModel.follow(query);
    if (this.moment === null) this.write();
  }
}

// The next visit needs no network.
function keepForOffline() {
  navigator.serviceWorker?.register(new URL("offline.js", import.meta.url)).catch(() => {}); // a page without it works
}

function momentOf(query: string) {
  const moment = new URLSearchParams(query).get("moment");
  return moment !== null && /^\d{1,9}$/.test(moment) ? Number(moment) : null;
}

void new LivePage(document.getElementById("lab") as HTMLElement).begin();
