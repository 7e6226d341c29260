// Sentences on a lab's state where Python's captions are missing: while it runs, and at a recording's start.
import { statePhrase } from "../model/phrases.ts";
import type { Scene } from "../model/scene.ts";

export function runningWords(scene: Scene) {
  const statuses = [...scene.requests.values()].map(({ status }) => status),
    running = statuses.filter((status) => status === "running").length,
    finished = statuses.filter((status) => status === "finished").length;
  return statePhrase("running", {
    step: scene.step,
    num_running: running,
    num_waiting: statuses.length - running - finished,
    used: scene.score.used,
  });
}

export function openingWords(scene: Scene) {
  const { used, lost } = scene.score;
  return scene.step
    ? statePhrase("stepped", { step: scene.step, used, lost })
    : statePhrase("new", { num_blocks: scene.numBlocks, used });
}
