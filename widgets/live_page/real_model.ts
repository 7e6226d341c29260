// The real model in the page: its button, its loading messages, and the sessions that wait for it.
import { refusal } from "./fetched.ts";

// What the worker posts of it. absent: its weights are not kept here, and nobody has asked for them yet.
export type ModelNews =
  | { state: "absent" | "loaded" }
  | { state: "loading"; arrived: number; total: number }
  | { state: "failed"; message: string };

export const MODEL = "smollm2";

const // Two equal prompts of real words: their blocks merge.
  FIRST = new URLSearchParams({
    model: MODEL,
    edition: "labengine",
    prompt: "Two people ask the very same question at the very same moment. The",
    copies: "2",
  });

interface Acts {
  open(query: string): void;
  load(isAsked: boolean): void;
  showFront(): void;
  say(words: string): void;
}

export class RealModel {
  button = document.getElementById("real-model") as HTMLButtonElement;
  words = document.getElementById("model-state") as HTMLElement;
  state: ModelNews["state"] = "absent";
  query = ""; // of the session in the page
  wanted = ""; // the session that waits for the weights
  megabytes = Math.round(Number(this.button.dataset.bytes) / 1e6);

  constructor(readonly acts: Acts) {
    this.button.hidden = !Number(this.button.dataset.bytes);
    (document.getElementById("own-real") as HTMLElement).hidden = this.button.hidden;
    this.button.addEventListener("click", () => this.press());
    this.label();
  }

  // True if a session can be opened only once the weights are there.
  isNeededBy(query: string) {
    return this.state !== "loaded" && isReal(query);
  }

  // Opens a session when the weights are there. isAsked: the reader wants them; else only those are taken that the
  // browser has kept, and without them the page's front is shown.
  openWhenLoaded(query: string, isAsked: boolean) {
    const reason = refusal();
    this.wanted = query;
    if (this.button.hidden) this.showFront("This site has no real model, so it shows its front page.");
    else if (reason) this.hear({ state: "failed", message: reason });
    else this.load(isAsked);
  }

  load(isAsked: boolean) {
    if (isAsked) this.hear({ state: "loading", arrived: 0, total: this.megabytes * 1e6 });
    this.acts.load(isAsked);
  }

  // A new Python has no weights.
  forget() {
    this.state = "absent";
    this.say("");
  }

  follow(query: string) {
    this.query = query;
    this.label();
  }

  enable(isEnabled: boolean) {
    this.button.disabled = !isEnabled || this.state === "loading";
  }

  press() {
    const reason = refusal();
    if (isReal(this.query)) this.acts.open(simulated(this.query));
    else if (this.state === "loaded") this.acts.open(real(this.query));
    else if (reason) this.say(`The lab stays simulated: ${reason}.`, true);
    else this.load(true);
  }

  hear(news: ModelNews) {
    this.state = news.state;
    this.button.disabled = news.state === "loading";
    this.label();
    if (news.state === "loading") this.say(progress(news.arrived, news.total));
    else if (news.state === "loaded") this.openWanted();
    else if (news.state === "failed") this.fail(news.message);
    else this.showFront("This link runs a real model. Until its weights have been downloaded, you see the front page.");
  }

  openWanted() {
    const wanted = this.wanted || real(this.query);
    this.wanted = "";
    this.say("");
    this.acts.open(wanted);
  }

  showFront(words: string) {
    this.say(words);
    this.acts.showFront();
  }

  // The session that waited is opened on the simulated model.
  fail(message: string) {
    if (this.wanted) this.acts.open(simulated(this.wanted));
    this.wanted = "";
    this.say(`The real model could not be loaded, so the lab stays simulated: ${message}.`, true);
  }

  label() {
    const fetches = `Use a real model (${this.megabytes} MB, once)`,
      uses = this.state === "loaded" ? "Use the real model" : fetches;
    this.button.textContent = isReal(this.query) ? "Use the simulated model" : uses;
    this.button.toggleAttribute("data-wanted", this.wanted !== ""); // beside the front's question too
  }

  say(words: string, isWrong = false) {
    this.words.textContent = words;
    this.acts.say(words);
    this.words.classList.toggle("live-wrong", isWrong);
  }
}

const isReal = (query: string) => new URLSearchParams(query).get("model") === MODEL;

function progress(arrived: number, total: number) {
  if (arrived >= total && arrived) return "Unpacking the real model …";
  return `Loading the real model: ${Math.floor(arrived / 1e6)} of ${Math.round(total / 1e6)} MB …`;
}

// The same requests and steps with weights; a scenario's need tokens that are made for it.
function real(query: string) {
  const asked = new URLSearchParams(query);
  if (!asked.has("edition") && !asked.has("compare")) return FIRST.toString();
  asked.delete("moment");
  return new URLSearchParams([["model", MODEL], ...asked]).toString();
}

function simulated(query: string) {
  const asked = new URLSearchParams(query);
  for (const name of ["model", "moment"]) asked.delete(name);
  return asked.toString();
}
