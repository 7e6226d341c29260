// Four figures per step, side by side: blocks in use, hit rate, tokens, and the step's time where it is known.

import { element } from "../../look/element.ts";
import { countUpTo } from "../../model/arrays.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { StorySeries } from "../../model/story.ts";
import { storyOf } from "../../model/story.ts";
import { Mentioned } from "../about.ts";
import type { PaintMoment, ViewHost } from "../view.ts";
import { Figure } from "./figure.ts";
import { figures } from "./kinds.ts";

export const title = "Charts";

export function create(stage: ViewHost, side: Side) {
  return new Charts(stage, side);
}

class Charts {
  moment = 0;
  hovered: number | null = null;
  mentioned = new Mentioned();
  marked: number[] = [];
  element = element("div", "le-charts");
  news!: string | null;
  isInside!: boolean;
  selection = this.stage.selection;
  figures = figures().map((figure) => new Figure(figure, this));

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    for (const figure of this.figures) this.element.append(figure.element);
  }

  get story() {
    return storyOf(this.side.recording);
  }

  paint(_scene: Scene, changes: Changes, { moment }: PaintMoment) {
    this.show(changes, moment);
  }

  show(changes: { all: boolean }, moment: number) {
    const { recording } = this.side,
      news = `${recording.start}:${recording.end}`;
    const isNew = news !== this.news || changes.all;
    if (!isNew && moment === this.moment) return;
    this.news = news;
    this.moment = moment;
    if (isNew) this.findMarked();
    this.draw(isNew);
  }

  draw(isNew = false) {
    const { story, moment } = this,
      current = countUpTo(story.series.moment, moment) - 1;
    this.isInside = moment > (story.series.moment[current] ?? story.start);
    for (const figure of this.figures) figure.paint(story, this.side.recording, current, isNew);
  }

  mark(selection: Selection | null) {
    this.selection = selection;
    if (!this.news) return;
    this.findMarked();
    this.draw();
  }

  // The steps with events that name the selection.
  findMarked() {
    const { series } = this.story,
      events = this.mentioned.find(this.side.recording, this.selection);
    this.marked = [...new Set(events.map((event) => countUpTo(series.moment, event)))].filter(
      (index) => index < series.step.length,
    );
  }

  point() {}

  hover(index: number | null) {
    if (this.hovered === index) return;
    this.hovered = index;
    this.draw();
  }

  resize() {
    this.news = null;
    if (this.side.hasRecording) this.show({ all: true }, this.moment);
  }

  destroy() {
    this.element.remove();
  }

  csv() {
    const { series } = this.story,
      seconds = this.side.recording.seconds;
    const names = Object.keys(series) as (keyof StorySeries)[];
    return [
      [...names, "seconds"],
      ...series.step.map((step, i) => [...names.map((name) => series[name][i]), seconds.get(step) ?? ""]),
    ];
  }
}
