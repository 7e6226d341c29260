// The live page: a recorded picture at once, then the same lab with Python behind it, and links that lead back to it.
import type { Stage } from "../browser/stage/stage.ts";
import { unpacked } from "../browser/stage/wire.ts";
import type { Arrangement } from "../browser/widget.ts";
import { mount } from "../browser/widget.ts";
import { Bar } from "./bar.ts";
import type { Posted } from "./connection.ts";
import { Connection } from "./connection.ts";
import type { ModelNews } from "./real_model.ts";
import { RealModel } from "./real_model.ts";

// recorded: a picture is shown, and Python is coming; loading: Python is coming; live: the lab can be stepped
type State = "recorded" | "loading" | "live" | "failed";

interface Recorded {
  opens_at: number;
  plays_to: number; // the caption after which what the page opens with is over
  recordings: unknown[];
}

const COMPARE: Arrangement = { kind: "compare", views: [] },
  LEAD = 2, // captions before the one that the page opens with
  NARROW_MS = 100, // until the layout knows how wide it is
  LOOK_MS = 1500, // to see what is there before it moves
  LINK_MS = 150;

const WORDS: Record<State, string> = {
  recorded: "A recording, while Python is coming (10 MB the first time) …",
  loading: "Python is coming (10 MB the first time) …",
  live: "Live: this engine runs in your browser.",
  failed: "Python did not start here. What is shown is a recording.",
};

class LivePage {
  place: HTMLElement;
  bar: Bar;
  front: string; // the session of an address without one
  query: string;
  stage: Stage | null = null;
  isRecorded = false; // the stage shows the recording of the session that is being opened
  moment: number | null; // the one that the address names, until it is shown
  opening = -1; // the position at which the session opened: the address does not name it
  connection: Connection;
  realModel: RealModel;
  linkTimer?: number;

  constructor(place: HTMLElement) {
    this.place = place;
    this.front = place.dataset.front ?? "";
    this.query = location.search.slice(1) || this.front;
    this.moment = momentOf(this.query);
    this.bar = new Bar({
      open: (query) => this.open(query),
      add: (request) => this.stage?.command("add", request),
      restart: () => this.restart(),
    });
    this.connection = new Connection(new URL("worker.mjs", import.meta.url), (posted) => this.take(posted));
    this.realModel = new RealModel({
      open: (query) => this.bar.open(query),
      load: (isAsked) => this.connection.post({ type: "load_model", is_asked: isAsked }),
    });
    this.connection.listen((content) => this.notice(content.type, content.status?.running));
  }

  async begin() {
    this.show("loading");
    this.bar.follow(this.query);
    const recorded = await this.recorded().catch(() => null);
    if (!recorded || this.stage) return;
    this.isRecorded = true;
    const stage = (this.stage = await this.mount(
      recorded.recordings.map((one) => JSON.stringify(one)),
      COMPARE,
    ));
    if (this.place.dataset.state === "loading") this.show("recorded");
    setTimeout(() => this.showSecondSide(), NARROW_MS);
    if (stage.theme.isStill || this.moment !== null) stage.moveTo(this.moment ?? recorded.plays_to);
    else this.playOpening(stage, recorded);
  }

  // Where one side has room, it is the one that merges.
  showSecondSide() {
    this.place.querySelectorAll<HTMLElement>(".le-is-narrow .le-column-head")[1]?.click();
  }

  // Plays the moment that the scenario is about, unless the reader was quicker; then the page is the reader's.
  playOpening(stage: Stage, { opens_at, plays_to }: Recorded) {
    this.opening = plays_to;
    stage.moveTo(opens_at - LEAD);
    const { position } = stage;
    setTimeout(() => {
      if (this.stage === stage && stage.position === position && !stage.isPlaying)
        stage.player.play(position, plays_to);
    }, LOOK_MS);
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
    this.bar.enable(state === "live");
    this.realModel.enable(state === "live");
  }

  async mount(recordings: string[], arrangement: Arrangement) {
    const stage = await mount(this.place, recordings, arrangement, this.connection);
    stage.on("present", () => {
      if (this.place.dataset.state !== "live") this.show("live");
    });
    stage.on("painted", () => this.noteMoment());
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
    if (this.realModel.isNeededBy(this.query)) this.realModel.openWhenLoaded(this.query, this.front);
    else this.open(this.query);
  }

  // A new Python, which does again what the address names.
  restart() {
    this.query = location.search.slice(1) || this.front;
    this.show("loading", "Python starts anew, and takes the same steps …");
    this.realModel.forget();
    this.connection.restart();
  }

  fail(message: string) {
    const words = this.connection.isOpen
      ? "Python has stopped: Restart Python takes the same steps again."
      : WORDS.failed;
    this.show("failed", `${words} (${message.trim().split("\n").at(-1)})`);
  }

  // The recording of the same session becomes live as it is; any other picture makes room.
  async opened(arrangement: Arrangement, query: string) {
    this.connection.open();
    if (!this.isRecorded) {
      this.opening = -1;
      this.stage?.close();
      this.stage = await this.mount([], arrangement);
    }
    this.isRecorded = false;
    this.stage?.resync(true);
    this.showMoment();
    this.bar.showForm(arrangement.kind === "compare");
    this.link(query);
  }

  // What was open stays; a page that has nothing yet shows its front.
  refused(message: string) {
    if (!this.connection.isOpen && this.query !== this.front) this.open(this.front);
    this.bar.refuse(message);
  }

  // Shows the moment that the address names, when the recording has come that far.
  showMoment() {
    const { stage, moment } = this;
    if (moment === null || !stage?.isReady || stage.track.end < moment) return;
    this.moment = null;
    this.opening = Number.POSITIVE_INFINITY; // the address goes on naming it
    stage.moveTo(moment);
  }

  // The address names the moment that the reader looks at, unless it is the newest.
  noteMoment() {
    this.showMoment();
    if (this.opening < 0 && this.stage?.isReady) this.opening = this.stage.position;
    if (this.place.dataset.state === "live" && this.moment === null) this.write();
  }

  write() {
    const { stage } = this,
      isResting = stage?.isReady && stage.player.state === "idle",
      isOlder = isResting && stage.position < stage.track.end && stage.position !== this.opening,
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

function momentOf(query: string) {
  const moment = new URLSearchParams(query).get("moment");
  return moment !== null && /^\d{1,9}$/.test(moment) ? Number(moment) : null;
}

void new LivePage(document.getElementById("lab") as HTMLElement).begin();
