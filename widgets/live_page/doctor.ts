// The doctor's page: a file of prompts is examined by Python in a worker, and the report appears below.

import { byId } from "./bar.ts";
import { Connection } from "./connection.ts";
import { exampleFile } from "./example_prompts.ts";
import type { Posted } from "./python.ts";

class DoctorPage {
  form = byId<HTMLFormElement>("form");
  input = byId<HTMLInputElement>("file");
  prefill = byId<HTMLInputElement>("prefill");
  decode = byId<HTMLInputElement>("decode");
  again = byId<HTMLButtonElement>("again");
  stop = byId<HTMLButtonElement>("stop");
  state = byId("state");
  refusal = byId("refusal");
  // No style of the page reaches the report, nor one of the report's the page. Its text is escaped, and the page's
  // policy lets no script run that is written in it.
  report = byId("report").attachShadow({ mode: "open" });
  file: File | null = null;
  isWaiting = false; // the file is examined as soon as Python is there
  isPythonThere = false;
  begun = 0;
  connection = new Connection(new URL("doctor_worker.mjs", import.meta.url), (posted) => this.take(posted));

  constructor() {
    this.input.addEventListener("change", () => this.choose(this.input.files?.[0]));
    byId("example").addEventListener("click", () => this.choose(exampleFile()));
    this.stop.addEventListener("click", () => this.restart());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.examine();
    });
    this.form.addEventListener("input", () => this.pairClock());
    addEventListener("dragover", (event) => this.hover(event, true));
    addEventListener("dragleave", (event) => this.hover(event, false));
    addEventListener("drop", (event) => {
      this.hover(event, false);
      this.choose(event.dataTransfer?.files[0]);
    });
  }

  hover(event: DragEvent, isOver: boolean) {
    event.preventDefault();
    document.body.classList.toggle("over", isOver);
  }

  // The clock is two numbers, or none.
  pairClock() {
    this.prefill.required = this.decode.value !== "";
    this.decode.required = this.prefill.value !== "";
  }

  choose(file?: File) {
    if (!file) return;
    this.file = file;
    if (this.form.reportValidity()) this.examine();
  }

  examine() {
    if (!this.file) return;
    if (!this.stop.hidden) this.restart(); // another file is being examined
    this.refusal.textContent = "";
    this.isWaiting = !this.isPythonThere;
    if (this.isWaiting) return this.say(`${this.file.name} is examined as soon as Python has loaded …`);
    this.begun = performance.now();
    this.show(true, `Opening ${this.file.name} …`);
    this.connection.post({ file: this.file, asked: this.asked() });
  }

  asked() {
    const clock = this.prefill.value && `${this.prefill.value},${this.decode.value}`;
    return { ...Object.fromEntries(new FormData(this.form)), "--clock": clock };
  }

  take({ kind, content }: Posted) {
    if (kind === "ready") this.beReady();
    else if (kind === "progress") this.say(String(content.words));
    else if (kind === "report") this.showReport(String(content.html));
    else if (kind === "refused") this.refuse(String(content.message));
    else this.fail(String(content.message));
  }

  beReady() {
    this.isPythonThere = true;
    this.show(false, "Ready: drop a file.");
    if (this.isWaiting) this.examine();
  }

  showReport(html: string) {
    const seconds = ((performance.now() - this.begun) / 1000).toFixed(1);
    this.report.innerHTML = html;
    this.show(false, `${this.file?.name}: examined in ${seconds} s.`);
    this.report.host.scrollIntoView({ block: "start" });
  }

  refuse(message: string) {
    this.report.replaceChildren();
    this.show(false, "");
    this.refusal.textContent = message;
  }

  // Python hears nothing while it examines a file: only its end stops it.
  restart() {
    this.isPythonThere = false;
    this.show(false, "Stopped. Python is loading again …");
    this.connection.restart();
  }

  fail(message: string) {
    const why = "WebAssembly" in globalThis ? message.trim().split("\n").at(-1) : "this browser has no WebAssembly";
    this.refuse(`Python cannot go on (${why}): load the page again, or run labengine doctor on your machine.`);
  }

  show(isBusy: boolean, words: string) {
    this.stop.hidden = !isBusy;
    this.again.disabled = isBusy || !this.file;
    this.say(words);
  }

  say(words: string) {
    this.state.textContent = words;
  }
}

new DoctorPage();
