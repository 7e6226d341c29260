// Keyboard commands, and the help page that lists them.

import { element, targetOf } from "../look/element.ts";
import { SPEEDS } from "./player.ts";
import type { Presentation } from "./presentation.ts";
import type { Scrubber } from "./scrubber.ts";
import type { Stage } from "./stage.ts";

const OF_A_LAB = [
  ["space", "run or pause the lab"],
  ["s", "one step of the lab"],
  ["p", "one phase of a step"],
];
const KEYS = [
  ["← →", "one moment back or forward"],
  ["page up, page down", "to the end of the previous or next step"],
  ["home", "before this step, then before the previous one"],
  ["end", "the newest moment"],
  ["r", "play from here, or replay the last step"],
  ["− +", "slower, faster"],
  ["m", "mark this moment: later changes are outlined"],
  ["tab, arrows, Enter", "enter a view, move within it, select"],
  ["w", "why? about the selection"],
  ["Esc", "skip the playback, clear the selection"],
  ["?", "these keys"],
];

// The targets of keys. controls: of a layout that has them; keys click their buttons.
interface KeyTargets {
  stage: Stage;
  controls?: Record<"run" | "step" | "phase", HTMLButtonElement>;
  scrubber: Scrubber | null;
  keys: Keys;
  presentation?: Presentation; // of a dashboard
}

export class Keys {
  list = element("dl");
  ofALab = OF_A_LAB.flatMap(([key, meaning]) => this.add(key, meaning));
  element = element(
    "div",
    "le-keys",
    { hidden: true, role: "dialog", ariaLabel: "Keys" },
    element("h4", "", "Keys while the dashboard has the focus"),
    this.list,
  );

  constructor(readonly stage: Stage) {
    for (const [key, meaning] of KEYS) this.add(key, meaning);
  }

  add(key: string, meaning: string) {
    const made = [element("dt", "", key), element("dd", "", meaning)];
    this.list.append(...made);
    return made;
  }

  // A recording cannot be stepped.
  toggle() {
    for (const part of this.ofALab) part.hidden = !this.stage.hasControls;
    this.element.hidden = !this.element.hidden;
  }
}

// The root's keys; a text field keeps its own, and so does a view that has used one. Every key is kept from the
// notebook, where s or d would mean something else.
export function onKey(event: KeyboardEvent, targets: KeyTargets) {
  const { stage } = targets;
  event.stopPropagation();
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const target = targetOf(event),
    isTyping = target.matches?.("input, textarea, select") && (target as HTMLInputElement).type !== "range";
  if (isTyping) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if ((event.key === " " || event.key === "Enter") && target.matches?.("button, summary, [role=tab], [role=button]"))
    return;
  const act = actOf(event.key, targets);
  if (act) {
    event.preventDefault();
    act();
  } else if (stage.isPlaying && event.key.length === 1) stage.last();
}

function actOf(
  key: string,
  { stage, controls, scrubber, keys, presentation }: KeyTargets,
): (() => unknown) | undefined {
  const acts: Record<string, () => unknown> = {
    ArrowLeft: () => stage.back(),
    ArrowRight: () => stage.forward(),
    PageUp: () => stage.step(-1),
    PageDown: () => stage.step(1),
    Home: () => stage.first(),
    End: () => stage.last(),
    r: () => stage.play(),
    m: () => scrubber?.toggleMark(),
    w: () => stage.askWhy?.(),
    "-": () => faster(stage, -1),
    "+": () => faster(stage, 1),
    Escape: () => leave(stage, keys, presentation),
    "?": () => keys.toggle(),
  };
  if (controls && stage.hasControls)
    Object.assign(acts, {
      " ": () => controls.run.click(),
      s: () => controls.step.click(),
      p: () => controls.phase.click(),
    });
  if (presentation) acts.f = () => presentation.toggle();
  if (presentation?.isOn) acts[" "] = acts.PageDown = () => presentation.next();
  return acts[key];
}

function leave(stage: Stage, keys: Keys, presentation?: Presentation) {
  if (!keys.element.hidden) keys.toggle();
  else if (stage.isPlaying || stage.player.isHeld) stage.skipPlay();
  else if (presentation?.isOn) presentation.end();
  else if (stage.selection) stage.select(null);
}

function faster(stage: Stage, by: number) {
  stage.setSpeed(Math.max(SPEEDS[0], Math.min(SPEEDS[SPEEDS.length - 1], stage.speed * 2 ** by)));
}
