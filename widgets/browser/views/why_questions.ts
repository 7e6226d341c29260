// Which questions one can ask of what is chosen, likeliest first: {text, subject: {kind, id, about}}; of a parting, with the answer.
import { requestName } from "../look/palette.ts";

const HASH_DIGITS = 8;

// parted: the answer to why two sides part, where there are two, and they do.
export function questionsFor(selection, scene, recording, moment, parted = null) {
  const ask = OF[selection?.kind],
    chosen = ask ? ask(selection.id, scene, recording) : [];
  return [...chosen, ...ofParting(parted), ...always(selection, scene, recording, moment)];
}

function ofParting(parted) {
  return parted
    ? [{ text: "Why do the two part?", subject: { kind: "parting", id: parted.question }, answer: parted }]
    : [];
}

function always(selection, scene, recording, moment) {
  const questions = [];
  const isChosen = selection?.kind === "event" && Number(selection.id) === moment - 1;
  if (moment > recording.start && !isChosen)
    questions.push(question("Why did the last event happen?", "event", moment - 1));
  const [next] = scene.queue.first(1);
  if (next !== undefined && !(selection?.kind === "block" && Number(selection.id) === next))
    questions.push(question(`Why is #${next} next in the free queue?`, "block", next, "queue"));
  return questions;
}

function question(text, kind, id, about) {
  return { text, subject: about ? { kind, id, about } : { kind, id } };
}

function ofBlock(given, scene) {
  const id = Number(given);
  if (!(id >= 0 && id < scene.numBlocks)) return [];
  const block = scene.block(id),
    questions = [];
  if (block.isLost) questions.push(question(`Why is #${id} lost?`, "block", id, "lost"));
  if (block.refCount)
    questions.push(question(`Why is #${id}'s ref count ${block.refCount}?`, "block", id, "ref_count"));
  else questions.push(question(`Why is #${id} free?`, "block", id, "free"));
  if (scene.queue.has(id)) {
    const isNext = scene.queue.first(1)[0] === id;
    questions.push(
      question(
        isNext ? `Why is #${id} next in the free queue?` : `Why does #${id} stand where it stands in the queue?`,
        "block",
        id,
        "queue",
      ),
    );
  }
  for (const key of block.keys || []) questions.push(...ofHash(key, scene));
  return questions;
}

function ofRequest(given, scene) {
  const id = Number(given),
    request = scene.requests.get(id),
    name = requestName(id);
  if (!request) return [];
  const isWaiting = request.status === "waiting" || request.status === "preempted",
    questions = [];
  if (request.status === "preempted")
    questions.push(question(`Why was ${name} preempted?`, "request", id, "preempted"));
  if (isWaiting) questions.push(question(`Why is ${name} waiting?`, "request", id, "waiting"));
  if (request.status === "finished") questions.push(question(`Why is ${name} finished?`, "request", id, "finished"));
  questions.push(question(`Why did ${name} hit or miss?`, "request", id, "hit"));
  if (request.numPreempted && request.status !== "preempted")
    questions.push(question(`Why was ${name} preempted?`, "request", id, "preempted"));
  return questions;
}

function ofHash(key, scene) {
  const short = key.slice(key.indexOf(":") + 1).slice(0, HASH_DIGITS),
    ids = scene.map.get(key) || [];
  return [
    question(
      ids.length ? `Why does hash ${short}… lead to #${ids[0]}?` : `Why is hash ${short}… not in the map?`,
      "hash",
      key,
    ),
  ];
}

function ofEvent(given, scene, recording) {
  const id = Number(given);
  if (!(id >= recording.start && id < recording.end)) return [];
  return [question(`Why did event ${id} happen (${recording.kind(id)})?`, "event", id)];
}

const OF = { block: ofBlock, request: ofRequest, hash: ofHash, event: ofEvent };
