// The line above the lab: which session, what state, and a link to it.

const PROMPT = "Two people ask the very same question at the very same moment. The"; // of an edition that is opened anew

function byId<T extends HTMLElement>(id: string) {
  return document.getElementById(id) as T;
}

export class Bar {
  scenario = byId<HTMLSelectElement>("scenario");
  edition = byId<HTMLSelectElement>("edition");
  copy = byId<HTMLButtonElement>("copy-link");
  words = byId("state");
  refusal = byId("refusal");

  // open: opens the session of a query.
  constructor(open: (query: string) => void) {
    const opened = (query: string) => {
      this.refuse("");
      open(query);
    };
    this.scenario.addEventListener("change", () => {
      if (this.scenario.value) opened(`bug=${encodeURIComponent(this.scenario.value)}`);
    });
    this.edition.addEventListener("change", () => {
      if (this.edition.value) opened(withEdition(this.edition.value, location.search));
    });
    this.copy.addEventListener("click", () => this.copyLink());
  }

  // Selects what the query names.
  follow(query: string) {
    const asked = new URLSearchParams(query);
    this.scenario.value = asked.get("bug") ?? "";
    this.edition.value = this.scenario.value ? "" : (asked.get("edition") ?? "");
  }

  say(words: string, isWrong: boolean) {
    this.words.textContent = words;
    this.words.classList.toggle("live-wrong", isWrong);
  }

  refuse(words: string) {
    this.refusal.textContent = words;
  }

  enable(isEnabled: boolean) {
    for (const one of [this.scenario, this.edition, this.copy]) one.disabled = !isEnabled;
  }

  async copyLink() {
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    this.copy.textContent = "It is in the address bar";
  }
}

// The same requests and steps on another edition; a scenario's are its own, so that two equal prompts take their place.
function withEdition(edition: string, search: string) {
  const asked = new URLSearchParams(search);
  if (!asked.has("edition"))
    return `edition=${encodeURIComponent(edition)}&prompt=${encodeURIComponent(PROMPT)}&copies=2`;
  asked.set("edition", edition);
  return asked.toString();
}
