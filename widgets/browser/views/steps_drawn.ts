// The steps along an axis of moments: which are in sight, and as many of their numbers as there is room for.
import type { Theme } from "../look/theme.ts";
import type { Story } from "../model/story.ts";
import { countUpTo } from "../model/story.ts";
import type { Axis } from "./axis.ts";
import { label } from "./board.ts";

// A step in sight: its index, and its edges in pixels.
export interface ShownStep {
  i: number;
  x: number;
  right: number;
}

export function shownSteps(story: Story, axis: Axis): ShownStep[] {
  const { steps } = story,
    shown: ShownStep[] = [];
  let painted = -Infinity;
  for (
    let i = Math.max(0, countUpTo(steps.start, axis.from) - 1);
    i < steps.start.length && steps.start[i] < axis.to;
    i++
  ) {
    const x = Math.max(axis.left, axis.x(steps.start[i])),
      right = Math.min(axis.left + axis.width, axis.x(steps.end[i] ?? story.end));
    if (right < painted + 1 || right < axis.left) continue;
    painted = Math.floor(right);
    shown.push({ i, x, right });
  }
  return shown;
}

export function labelSteps(
  context: CanvasRenderingContext2D,
  story: Story,
  shown: ShownStep[],
  y: number,
  theme: Theme,
) {
  const { steps } = story;
  let free = -Infinity;
  for (const { i, x, right } of shown) {
    const number = steps.number[i].toLocaleString(),
      text = `${right - x > 62 ? "step " : ""}${number}${steps.isTakenBack[i] && right - x > 110 ? " taken back" : ""}`;
    if (
      x < free ||
      !label(context, text, x + 4, y, right - x < 22 ? null : right - x - 3, `12px ${theme.ui}`, theme.soft)
    )
      continue;
    free = x + 12 + context.measureText(text).width;
  }
}
