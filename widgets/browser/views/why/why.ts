// The Why? view: the question, the answer, and the chain of events that caused it; each link leads to its moment.
// Beside them the code that decided the shown event.

import { button, element, takeKey, targetOf, write } from "../../look/element.ts";
import type { Answer, AnswerLink, AskedSubject, Selection } from "../../model/payloads.ts";
import type { Side } from "../../model/side.ts";
import { keep } from "../pieces.ts";
import type { ViewHost } from "../view.ts";
import { moveToMoment } from "../view.ts";
import { Code } from "./code.ts";
import type { Question } from "./questions.ts";
import { questionsFor } from "./questions.ts";

export const title = "Why?";

const BUSY_MS = 1500;
const NOTHING_SELECTED = "Select a block, a request, a hash or an event in any view to ask about it.";

export function create(stage: ViewHost, side: Side) {
  return new WhyDrawer(stage, side);
}

class WhyDrawer {
  asked = 0;
  known?: string;
  questions = element("div", "le-why-questions", { role: "group", ariaLabel: "Questions to ask" });
  heading = element("h4", "le-why-question");
  again = button("", "", () => this.question && void this.ask(this.question), "le-why-again");
  answer = element("p", "le-why-answer", { role: "status" });
  names = element("p", "le-why-names"); // the engine's own ids of the requests
  chain = element("ol", "le-why-chain");
  sheet = element("div", "le-why-sheet", {}, this.heading, this.again, this.answer, this.names, this.chain);
  code = new Code(this.side);
  columns = element("div", "le-why-columns", {}, this.sheet, this.code.element);
  element = element("section", "le-why", { ariaLabel: "Why?" }, this.questions, this.columns);
  offered?: Question[];
  preferred?: string | null;
  question: Question | null = null; // whose answer can be asked for again
  askedAt?: number;
  askedIn?: string; // the recording
  patience?: number;
  links!: AnswerLink[] | null;
  selection = this.stage.selection;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    this.again.hidden = true;
    this.questions.addEventListener("click", (event) => this.onQuestion(event));
    this.chain.addEventListener("click", (event) => this.onLink(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.showNothing();
  }

  get moment() {
    return this.side.moment;
  }

  paint() {
    this.offer();
    this.markHere();
    this.follow();
    this.paintAge();
    this.code.paint(this.moment);
  }

  get recording() {
    const { lab, generation } = this.side.recording.header;
    return `${lab} ${generation}`;
  }

  // False for an answer from before a restart, or a gap of a stream: its moments are not in this recording.
  get isAboutThis() {
    return this.askedIn === undefined || this.askedIn === this.recording;
  }

  // An answer is about the moment at which it was asked for; after a move the question can be asked again.
  paintAge() {
    const { isAboutThis } = this,
      when = isAboutThis ? `at event ${this.askedAt}` : "before the recording restarted";
    this.again.hidden = !this.question || (isAboutThis && this.askedAt === this.moment);
    write(this.again, this.again.hidden ? "" : `Asked ${when}. Ask again here`);
    for (const button of this.chain.querySelectorAll<HTMLButtonElement>(".le-why-link")) button.disabled = !isAboutThis;
  }

  // A choice made while the drawer is open is a question.
  mark(selection: Selection | null) {
    this.selection = selection;
    this.code.mark(selection);
    this.offer();
    this.follow();
  }

  destroy() {
    clearTimeout(this.patience);
    this.asked += 1;
    this.element.remove();
  }

  // -- the questions

  offer() {
    const { side } = this;
    if (!side.hasRecording) return;
    this.offered = questionsFor(this.selection, side, this.moment, this.stage.track.whyDifferent);
    keep(
      this.questions,
      this.offered.map(({ subject, text }) => ({
        key: `${subject.kind} ${subject.id} ${subject.about || ""}`,
        signature: text,
        text,
      })),
      () => element("button", "le-button le-why-ask", { type: "button" }),
      (chip, { text }) => write(chip, text),
    );
  }

  onQuestion(event: MouseEvent) {
    const chip = targetOf(event).closest(".le-why-ask");
    const question = chip && this.offered?.[[...this.questions.children].indexOf(chip)];
    if (question) void this.ask(question);
  }

  // The next choice is asked about this, even if it is the same as before.
  prefer(about: string | undefined) {
    this.preferred = about;
    this.known = undefined;
  }

  // Asks the likeliest question of a new choice, once, if the drawer can be seen.
  follow() {
    const { selection } = this,
      name = selection?.kind ? `${selection.kind} ${selection.id}` : "";
    if (name === this.known || !this.side.recording || this.element.offsetParent === null) return;
    this.known = name;
    const question =
      this.offered?.find(({ subject }) => this.preferred && subject.about === this.preferred) ?? this.offered?.[0];
    if (name && question && question.subject.kind === selection?.kind) void this.ask(question);
    else if (!name && !this.links) this.showNothing();
    this.preferred = null;
  }

  // -- asking

  async ask(question: Question) {
    const number = ++this.asked,
      { moment } = this;
    clearTimeout(this.patience);
    this.question = question.answer ? null : question;
    this.askedAt = moment;
    this.askedIn = this.recording;
    this.paintAge();
    if (question.answer) return this.showAnswer(question.answer);
    const carried = this.carried(question.subject);
    if (carried)
      return this.showAnswer(carried.answer, carried.moment === moment ? "" : `As it was at event ${carried.moment}.`);
    this.wait(question);
    try {
      const payload = (await this.stage.ask("why", { moment, subject: question.subject, side: this.side.index })) as {
        answer?: Answer;
      } | null;
      if (number === this.asked) this.showAnswer((payload?.answer ?? payload) as Answer | null);
    } catch (error) {
      if (number === this.asked) this.fail(question, error);
    }
  }

  // A page without Python has the answers it was saved with: the one for this moment, else the nearest after it.
  carried(subject: AskedSubject) {
    const answers = this.side.recording.header.answers || [];
    const fitting = answers.filter((one) => isSame(one.subject, subject));
    return (
      fitting.find(({ moment }) => moment === this.moment) ||
      (this.stage.isLive ? null : fitting.find(({ moment }) => moment > this.moment) || fitting.at(-1)) ||
      null
    );
  }

  wait({ text }: Question) {
    this.show(text, "Asking …", []);
    this.sheet.ariaBusy = "true";
    this.patience = setTimeout(
      () => write(this.answer, "The kernel is busy with something else: the answer will come when it is free."),
      BUSY_MS,
    );
  }

  fail({ text }: Question, error: unknown) {
    const message = error instanceof Error ? error.message : String(error);
    const hasSome = (this.side.recording.header.answers || []).length > 0;
    this.show(text, hasSome ? `${message} The page was saved with answers to other questions.` : message, []);
  }

  showAnswer(answer: Answer | null | undefined, note = "") {
    if (!answer || typeof answer.answer !== "string") return this.show("Why?", "No answer came back.", []);
    this.show(answer.question, note ? `${answer.answer} (${note})` : answer.answer, answer.links || [], answer.names);
  }

  showNothing() {
    this.show("", NOTHING_SELECTED, []);
    this.links = this.question = null;
  }

  // -- the answer

  show(question: string, answer: string, links: AnswerLink[], names = "") {
    clearTimeout(this.patience);
    this.sheet.ariaBusy = null;
    write(this.heading, question);
    write(this.answer, answer);
    write(this.names, names);
    this.names.hidden = !names;
    this.element.classList.toggle("le-why-rests", !question);
    this.links = links;
    this.chain.classList.toggle(
      "le-why-counts",
      links.some(({ change }) => Boolean(change)),
    );
    const seams = links.map(({ seam }) => seam);
    this.chain.replaceChildren(
      ...links.map((link, i) => this.item(link, Boolean(link.seam) && !seams.slice(0, i).includes(link.seam))),
    );
    this.sheet.scrollTop = 0;
    this.markHere();
  }

  item(link: AnswerLink, hasSeam: boolean) {
    const { change = 0, event_number: number, sentence } = link,
      button = element(
        "button",
        "le-why-link",
        {
          type: "button",
          title: number === null ? "show the beginning of the recording" : `show the moment after event ${number}`,
        },
        element("span", "le-why-number le-fine", number === null ? "start" : String(number)),
        element("span", "le-why-change", change ? (change > 0 ? `+${change}` : `−${-change}`) : ""),
        element("span", "le-why-sentence", sentence),
      ),
      made = element("li", "le-why-item", {}, button);
    if (hasSeam) made.append(seamLine(link));
    return made;
  }

  markHere() {
    if (!this.links) return;
    this.links.forEach((link, i) => {
      const isHere = this.isAboutThis && this.stage.sides[link.side || 0]?.moment === link.moment;
      (this.chain.children[i].firstElementChild as Element).ariaCurrent = isHere ? "true" : null;
    });
  }

  onLink(event: MouseEvent) {
    const button = targetOf(event).closest(".le-why-link");
    const at = button?.parentElement ? [...this.chain.children].indexOf(button.parentElement) : -1,
      link = this.links?.[at];
    if (link) moveToMoment(this.stage, this.stage.sides[link.side || 0] || this.side, link.moment);
  }

  onKey(event: KeyboardEvent) {
    const buttons = [...this.chain.querySelectorAll<HTMLElement>(".le-why-link")],
      at = buttons.indexOf(document.activeElement as HTMLElement),
      go = (step: number) => () => buttons[Math.min(buttons.length - 1, Math.max(0, at + step))].focus();
    if (buttons.length) takeKey(event, { ArrowDown: go(1), ArrowUp: go(-1) });
  }
}

function seamLine({ seam, reason, place }: AnswerLink) {
  const words = element("span", "", reason ? ` ${reason}` : ""),
    line = element("div", "le-why-seam le-fine", {}, element("code", "", seam), words);
  if (place) line.append(element("span", "le-why-place", ` ${place}`));
  return line;
}

function isSame(one: AskedSubject, other: AskedSubject) {
  return one.kind === other.kind && String(one.id) === String(other.id) && (one.about || "") === (other.about || "");
}
