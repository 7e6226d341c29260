// The lines around the lab: which session, what state, a link to it; below, the prompt of two engines at once.

import type { RequestOption } from "../browser/model/payloads.ts";
import type { Side } from "../browser/model/side.ts";

const PROMPT = "Two people ask the very same question at the very same moment. The", // of a newly opened edition
  ORIGIN = ["bug", "follow_up", "edition", "compare"]; // what a link begins with; all else in it is the pool and acts

export function byId<T extends HTMLElement>(id: string) {
  return document.getElementById(id) as T;
}

interface Acts {
  open(query: string): void;
  add(request: { prompt: string } & Record<"copies" | "max_tokens" | RequestOption, number>): void;
  restart(): void;
}

export class Bar {
  scenario = byId<HTMLSelectElement>("scenario");
  edition = byId<HTMLSelectElement>("edition");
  beside = byId<HTMLSelectElement>("beside");
  copy = byId<HTMLButtonElement>("copy-link");
  restart = byId<HTMLButtonElement>("restart");
  words = byId("state");
  refusal = byId("refusal");
  form = byId<HTMLFormElement>("add-to-both");

  constructor(readonly acts: Acts) {
    this.showForm(false);
    this.scenario.addEventListener("change", () => {
      const { value } = this.scenario;
      this.open(value ? `bug=${encodeURIComponent(value)}` : withEditions("labengine", ""));
    });
    for (const select of [this.edition, this.beside]) select.addEventListener("change", () => this.openEditions());
    this.copy.addEventListener("click", () => this.copyLink());
    this.restart.addEventListener("click", () => acts.restart());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const [prompt, ...numbers] = this.form.querySelectorAll("input"),
        [copies, max_tokens, n, beams, priority] = numbers.map((one) => one.valueAsNumber);
      acts.add({ prompt: prompt.value, copies, max_tokens, n, beams, priority });
    });
  }

  open(query: string) {
    this.refuse("");
    this.acts.open(query);
  }

  openEditions() {
    const { edition, beside } = this;
    if (edition.value || beside.value) this.open(withEditions(edition.value || "labengine", beside.value));
  }

  // Selects what the query names.
  follow(query: string) {
    const asked = new URLSearchParams(query),
      [left = "", right = ""] = (asked.get("compare") ?? asked.get("edition") ?? "").split(",");
    this.scenario.value = asked.get("bug") ?? "";
    this.edition.value = left;
    this.beside.value = right;
    this.copy.textContent = "Copy link";
  }

  say(words: string, isWrong: boolean) {
    this.words.textContent = words;
    this.words.classList.toggle("live-wrong", isWrong);
    this.restart.hidden = !isWrong;
  }

  refuse(words: string) {
    this.refusal.textContent = words;
  }

  enable(isEnabled: boolean) {
    for (const one of [this.scenario, this.edition, this.beside, this.copy]) one.disabled = !isEnabled;
  }

  // One lab has its own form, with the same labels: only one of the two is in the page.
  showForm(isShown: boolean) {
    this.form.hidden = false;
    if (isShown) byId("lab").after(this.form);
    else this.form.remove();
  }

  // A field for each option that both engines take; the others are as they were at first.
  offer(sides: Side[]) {
    for (const label of this.form.querySelectorAll<HTMLElement>("[data-option]")) {
      const option = label.dataset.option as RequestOption;
      label.hidden = !sides.every(({ status }) => status.request_options?.includes(option));
      const [input] = label.getElementsByTagName("input");
      if (label.hidden) input.value = input.defaultValue;
    }
  }

  // A page that is not served by https or from this machine may not write to the clipboard.
  async copyLink() {
    const isCopied = await navigator.clipboard?.writeText(location.href).then(
      () => true,
      () => false,
    );
    this.copy.textContent = isCopied ? "Copied" : "It is in the address bar";
  }
}

// The same requests and steps on other editions; a scenario's are its own, so that two equal prompts take their place.
function withEditions(edition: string, beside: string) {
  const asked = new URLSearchParams(location.search),
    isOwn = asked.has("edition") || asked.has("compare"),
    kept = isOwn ? asked : new URLSearchParams({ prompt: PROMPT, copies: "2" });
  for (const name of ORIGIN) kept.delete(name);
  const origin = new URLSearchParams(beside ? { compare: `${edition},${beside}` } : { edition });
  return [origin, kept].map(String).filter(Boolean).join("&");
}
