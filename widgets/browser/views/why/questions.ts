// The questions about a selection, likeliest first: {text, subject: {kind, id, about}}; on the first difference, with
// the answer.

import { hashName, requestName } from "../../model/names.ts";
import type { Answer, AskedSubject, Selection } from "../../model/payloads.ts";
import type { Side } from "../../model/side.ts";

// A question that can be asked; answer: where it is known already.
export interface Question {
  text: string;
  subject: AskedSubject;
  answer?: Answer;
}

// whyDifferent: the answer to why two sides differ, where there are two, and they do.
export function questionsFor(
  selection: Selection | null,
  side: Side,
  moment: number,
  whyDifferent: Answer | null | undefined = null,
): Question[] {
  const own = selection ? OF[selection.kind](selection.id, side) : [];
  return [...own, ...aboutDifference(whyDifferent), ...always(selection, side, moment)];
}

function aboutDifference(whyDifferent: Answer | null | undefined) {
  return whyDifferent
    ? [
        {
          text: "Why do the two runs differ?",
          subject: { kind: "difference", id: whyDifferent.question },
          answer: whyDifferent,
        },
      ]
    : [];
}

function always(selection: Selection | null, side: Side, moment: number) {
  const { headBlock: head, recording } = side,
    questions: Question[] = [];
  const isSelected = selection?.kind === "event" && Number(selection.id) === moment - 1;
  if (moment > recording.start && !isSelected)
    questions.push(question("Why did the last event happen?", "event", moment - 1));
  if (head !== undefined && !(selection?.kind === "block" && Number(selection.id) === head))
    questions.push(ofPlace(head, side));
  return questions;
}

function ofPlace(block: number, { headBlock, headWord }: Side) {
  const place = block !== headBlock ? "at this place in" : headWord === "next" ? "next in" : "at the head of";
  return question(`Why is #${block} ${place} the free queue?`, "block", block, "queue");
}

function question(text: string, kind: string, id: number | string, about?: string): Question {
  return { text, subject: about ? { kind, id, about } : { kind, id } };
}

function ofBlock(subjectId: number | string, side: Side) {
  const id = Number(subjectId);
  const { scene } = side;
  if (!(id >= 0 && id < scene.numBlocks)) return [];
  const block = scene.block(id),
    questions: Question[] = [];
  if (block.isLost) questions.push(question(`Why is #${id} lost?`, "block", id, "lost"));
  if (block.refCount)
    questions.push(question(`Why is #${id}'s ref count ${block.refCount}?`, "block", id, "ref_count"));
  else questions.push(question(`Why is #${id} free?`, "block", id, "free"));
  if (scene.queue.has(id)) questions.push(ofPlace(id, side));
  for (const key of block.keys || []) questions.push(...ofHash(key, side));
  return questions;
}

function ofRequest(subjectId: number | string, { scene }: Side) {
  const id = Number(subjectId),
    request = scene.requests.get(id),
    name = requestName(id);
  if (!request) return [];
  const isWaiting = request.status === "waiting" || request.status === "preempted",
    questions: Question[] = [];
  if (request.status === "preempted")
    questions.push(question(`Why was ${name} preempted?`, "request", id, "preempted"));
  if (isWaiting) questions.push(question(`Why is ${name} waiting?`, "request", id, "waiting"));
  if (request.status === "finished") questions.push(question(`Why is ${name} finished?`, "request", id, "finished"));
  if (request.status === "running" && !request.scheduled)
    questions.push(question(`Why does ${name} get no token?`, "request", id, "token"));
  questions.push(question(`Why did ${name} hit or miss?`, "request", id, "hit"));
  if (request.numJudged)
    questions.push(question(`Why were ${name}'s drafts accepted or rejected?`, "request", id, "drafts"));
  if (request.numReplaced) questions.push(question(`Why was ${name}'s beam dropped?`, "request", id, "beam"));
  if (request.numPreempted && request.status !== "preempted")
    questions.push(question(`Why was ${name} preempted?`, "request", id, "preempted"));
  return questions;
}

function ofHash(subjectId: number | string, { scene }: Side) {
  const key = String(subjectId),
    short = hashName(key.slice(key.indexOf(":") + 1)),
    ids = scene.map.get(key) || [];
  return [
    question(
      ids.length ? `Why does hash ${short} lead to #${ids[0]}?` : `Why is hash ${short} not in the map?`,
      "hash",
      key,
    ),
  ];
}

function ofEvent(subjectId: number | string, { recording }: Side) {
  const id = Number(subjectId);
  if (!(id >= recording.start && id < recording.end)) return [];
  return [question(`Why did event ${id} happen (${recording.kind(id)})?`, "event", id)];
}

function ofNode(subjectId: number | string, { scene }: Side) {
  const verb = scene.tree.nodes.has(Number(subjectId)) ? "is" : "was",
    end = verb === "is" ? "in the prefix tree" : "evicted";
  return [question(`Why ${verb} node ${subjectId} ${end}?`, "node", subjectId)];
}

const OF: Record<Selection["kind"], (id: number | string, side: Side) => Question[]> = {
  block: ofBlock,
  request: ofRequest,
  hash: ofHash,
  node: ofNode,
  event: ofEvent,
};
