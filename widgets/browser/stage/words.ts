// Plain words where Python's are missing: for a running lab, and for one at rest, by its numbers.
import type { Scene } from "../model/scene.ts";

export function counted(number: number, noun: string) {
  return number === 1 ? `1 ${noun}` : `${number} ${noun}${noun.endsWith("sh") ? "es" : "s"}`;
}

export function runningWords(scene: Scene) {
  let running = 0,
    waiting = 0;
  for (const { status } of scene.requests.values()) {
    if (status === "running") running += 1;
    else if (status !== "finished") waiting += 1;
  }
  return (
    `Step ${scene.step}: ${counted(running, "request")} running${waiting ? `, ${waiting} in line` : ""}, ` +
    `${counted(scene.score.used, "block")} used.`
  );
}

export function restingWords(scene: Scene) {
  const used = counted(scene.score.used, "block");
  return scene.step
    ? `After step ${scene.step}: ${used} used.`
    : `${counted(scene.numBlocks, "block")}, ${scene.score.used} used.`;
}
