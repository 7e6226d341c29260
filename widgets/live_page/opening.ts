// The front of the page: one engine, one question about it, and the step that answers it, told slowly. A recording: it
// waits for nothing. Then the reader's own question.
import type { CaptionRow } from "../browser/model/payloads.ts";
import type { Stage } from "../browser/stage/stage.ts";
import type { SoloTrack } from "../browser/stage/track.ts";
import { Captions } from "../browser/stage/track.ts";
import { unpacked } from "../browser/stage/wire.ts";
import type { Arrangement } from "../browser/widget.ts";
import { mount } from "../browser/widget.ts";
import { byId } from "./bar.ts";

const PLAIN: Arrangement = { kind: "view", views: ["pool"], is_plain: true };

interface Opened {
  asked: number; // the moment at which the question stands
  plays_to: number;
  peak: number;
  used: number; // the answer
  told: CaptionRow[];
  recording: unknown;
}

export class Opening {
  element = byId("opening");
  verdict = byId("opening-verdict");
  after = byId("opening-after");
  inUse = byId("opening-in-use");
  result = byId("opening-result"); // on a phone the question has left the screen by then
  own = byId<HTMLFormElement>("opening-own");
  answers = [...this.element.querySelectorAll<HTMLButtonElement>("[data-blocks]")];
  said: number | null = null; // what the reader has answered
  stage: Stage | null = null;
  opened!: Opened; // with the stage

  // ask: opens a session in which so many people ask this, of the real model or the simulated one.
  constructor(ask: (question: string, people: number, isReal: boolean) => void) {
    for (const answer of this.answers)
      answer.addEventListener("click", () => this.answer(Number(answer.dataset.blocks)));
    this.own.addEventListener("submit", (event) => {
      event.preventDefault();
      const [question, people, isReal] = this.own.querySelectorAll("input");
      ask(question.value, people.valueAsNumber, isReal.checked);
    });
  }

  get isShown() {
    return !this.element.hidden;
  }

  async show(place: HTMLElement) {
    this.element.hidden = false;
    const opened = await fetched().catch(() => null);
    if (!opened) return this.offerOwn("The picture for this question could not be loaded. You can ask your own below.");
    const stage = await mount(place, JSON.stringify(opened.recording), PLAIN);
    if (this.element.hidden) return stage.close(); // another session was quicker
    this.stage = stage;
    this.opened = opened;
    const captions = new Captions();
    captions.add(opened.asked - 1, opened.plays_to, opened.told);
    (stage.track as SoloTrack).captions = captions;
    stage.moveTo(opened.asked);
    stage.on("painted", () => {
      this.inUse.textContent = `${stage.sides[0].scene.score.used} in use`;
      this.judge();
    });
    for (const button of this.answers) button.disabled = false;
  }

  answer(blocks: number) {
    this.said = blocks;
    for (const button of this.answers) {
      button.disabled = true;
      button.setAttribute("aria-pressed", String(Number(button.dataset.blocks) === blocks));
    }
    this.verdict.textContent = `You say ${blocks}.`;
    this.element.dataset.state = "answered";
    this.play();
  }

  // The message at the page's top is repeated where the reader has asked.
  say(words: string) {
    byId("own-state").textContent = words;
  }

  play() {
    const { stage, opened } = this;
    if (!stage) return;
    stage.root.focus({ preventScroll: true });
    stage.root.scrollIntoView({ block: "nearest" }); // on a phone the question fills the screen
    stage.player.play(opened.asked, opened.plays_to);
    stage.changed();
  }

  // The answer is shown when the step is over, played or skipped.
  judge() {
    const { stage, said, opened } = this;
    if (!stage || said === null || stage.isPlaying || stage.position < opened.plays_to || !this.after.hidden) return;
    const { used, peak } = opened;
    this.verdict.textContent = `${said === used ? "Right" : `You said ${said}`}: ${peak} at first, ${used} once shared.`;
    for (const button of this.answers) {
      const blocks = Number(button.dataset.blocks);
      button.classList.toggle("live-right", blocks === used);
      button.classList.toggle("live-other", blocks === said && said !== used);
    }
    this.result.textContent = `The answer is ${used}.`;
    this.offerOwn(this.verdict.textContent);
    this.after.scrollIntoView({ block: "nearest" });
  }

  offerOwn(words: string) {
    this.verdict.textContent = words;
    this.after.hidden = false;
  }

  close() {
    this.element.hidden = this.after.hidden = true;
    this.stage?.close();
    this.stage = null;
  }
}

async function fetched() {
  const answer = await fetch(new URL("recorded/opening.bin", import.meta.url));
  return answer.ok ? ((await unpacked(new Uint8Array(await answer.arrayBuffer()))) as Opened) : null;
}
