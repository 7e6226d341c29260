// The Why? view: the question, the answer, and the chain of events that caused it; each link leads to its moment.
// Beside them the code that decided the shown event.

import { element, targetOf, write } from "../../look/element.ts";
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
const NOTHING_SELECTED = "Choose a block, a request, a hash or an event in any view, and ask why it is as it is.";

export function create(stage: ViewHost, side: Side) {
  return new WhyDrawer(stage, side);
}

class WhyDrawer {
  stage: ViewHost;
  side: Side;
  selection: Selection | null;
  asked = 0;
  known?: string;
  element = element("section", "le-why");
  questions = element("div", "le-why-questions");
  heading = element("h4", "le-why-question");
  again = element("button", "le-button le-why-again");
  answer = element("p", "le-why-answer");
  names = element("p", "le-why-names"); // what the engine itself calls the requests
  chain = element("ol", "le-why-chain");
  sheet = element("div", "le-why-sheet");
  code: Code;
  offered?: Question[];
  preferred?: string | null;
  question: Question | null = null; // whose answer can be asked for again
  askedAt?: number;
  askedIn?: string; // the recording
  patience?: number;
  links!: AnswerLink[] | null;

  constructor(stage: ViewHost, side: Side) {
    this.stage = stage;
    this.side = side;
    this.selection = stage.selection;
    this.element.setAttribute("aria-label", "Why?");
    this.questions.setAttribute("role", "group");
    this.questions.setAttribute("aria-label", "Questions to ask");
    this.questions.addEventListener("click", (event) => this.onQuestion(event));
    Object.assign(this.again, { type: "button", hidden: true });
    this.again.addEventListener("click", () => {
      if (this.question) void this.ask(this.question);
    });
    this.answer.setAttribute("role", "status");
    this.chain.addEventListener("click", (event) => this.onLink(event));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.sheet.append(this.heading, this.again, this.answer, this.names, this.chain);
    this.code = new Code(side);
    const columns = element("div", "le-why-columns");
    columns.append(this.sheet, this.code.element);
    this.element.append(this.questions, columns);
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
      when = isAboutThis ? `at event ${this.askedAt}` : "before the recording began anew";
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
      () => this.chip(),
      (chip, { text }) => write(chip, text),
    );
  }

  chip() {
    const made = element("button", "le-button le-why-ask");
    made.type = "button";
    return made;
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
    this.sheet.setAttribute("aria-busy", "true");
    this.patience = setTimeout(
      () => write(this.answer, "The kernel is busy with something else: the answer comes when it is free."),
      BUSY_MS,
    );
  }

  fail({ text }: Question, error: unknown) {
    const message = error instanceof Error ? error.message : String(error);
    const hasSome = (this.side.recording.header.answers || []).length > 0;
    this.show(text, hasSome ? `${message} It was saved with answers to other questions.` : message, []);
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
    this.sheet.removeAttribute("aria-busy");
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
    const made = element("li", "le-why-item"),
      button = element("button", "le-why-link");
    button.type = "button";
    button.append(element("span", "le-why-number", link.event_number === null ? "start" : String(link.event_number)));
    const change = element(
      "span",
      "le-why-change",
      link.change ? (link.change > 0 ? `+${link.change}` : `−${-link.change}`) : "",
    );
    button.append(change, element("span", "le-why-sentence", link.sentence));
    button.title =
      link.event_number === null
        ? "show the beginning of the recording"
        : `show the moment after event ${link.event_number}`;
    made.append(button);
    if (hasSeam) made.append(seamLine(link));
    return made;
  }

  markHere() {
    if (!this.links) return;
    this.links.forEach((link, i) => {
      const button = this.chain.children[i].firstElementChild as Element,
        isHere = this.isAboutThis && this.stage.sides[link.side || 0]?.moment === link.moment;
      if (isHere) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
  }

  onLink(event: MouseEvent) {
    const button = targetOf(event).closest(".le-why-link");
    const at = button?.parentElement ? [...this.chain.children].indexOf(button.parentElement) : -1,
      link = this.links?.[at];
    if (link) moveToMoment(this.stage, this.stage.sides[link.side || 0] || this.side, link.moment);
  }

  onKey(event: KeyboardEvent) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key as "ArrowDown"];
    const buttons = [...this.chain.querySelectorAll<HTMLElement>(".le-why-link")],
      at = buttons.indexOf(document.activeElement as HTMLElement);
    if (!step || !buttons.length) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[Math.min(buttons.length - 1, Math.max(0, at + step))].focus();
  }
}

function seamLine({ seam, reason, place }: AnswerLink) {
  const line = element("div", "le-why-seam");
  line.append(element("code", "", seam), element("span", "", reason ? ` ${reason}` : ""));
  if (place) line.append(element("span", "le-why-place", ` ${place}`));
  return line;
}

function isSame(one: AskedSubject, other: AskedSubject) {
  return one.kind === other.kind && String(one.id) === String(other.id) && (one.about || "") === (other.about || "");
}
