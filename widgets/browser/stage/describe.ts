// The tooltip's text on one subject.

import type { Violation } from "../model/alarms.ts";
import { alarmsAt, misnamedAt, violationFound } from "../model/alarms.ts";
import { differing } from "../model/differing.ts";
import {
  beamName,
  blockNames,
  contentName,
  counted,
  groupName,
  joined,
  requestName,
  stateWords,
} from "../model/names.ts";
import { phrase } from "../model/phrases.ts";
import type { Scene } from "../model/scene.ts";
import { wordsOf } from "../model/scene.ts";
import { textOf } from "../model/sentence.ts";
import type { Side } from "../model/side.ts";
import type { Subject, ViewHost } from "../views/view.ts";

export function describe(stage: ViewHost, side: Side, { kind, id, about }: Subject) {
  const { scene, recording } = side;
  if (kind === "block")
    return (
      blockWords(side, Number(id)) +
      misnamedWords(side, Number(id)) +
      wasBlock(stage, side, Number(id)) +
      (about && stage.askWhy ? "\nclick: why this ref count?" : "") +
      brokenBlock(side, Number(id))
    );
  if (kind === "request") return requestWords(side, Number(id)) + wasRequest(stage, side, Number(id));
  if (kind === "hash") return hashWords(scene, String(id)) + wasHash(stage, side, String(id));
  if (kind === "node") return nodeWords(side, Number(id));
  const event = Number(id);
  if (kind === "event" && event >= recording.start && event < recording.end)
    return (
      `event ${id}\n${brokenEvent(side, event) ?? textOf(phrase(recording, event, (token) => side.text(token)))}` +
      `${about && stage.askWhy ? "\nclick: why?" : ""}`
    );
  return "";
}

const MAX_WORDS = 40; // of a node's text

const HEAD_WORDS = { next: "next to be used", head: "at the head of the free queue" };

function blockWords(side: Side, id: number) {
  const { scene } = side;
  if (id === scene.nullBlock) return `#${id} · the null block: it pads block tables and is never allocated`;
  const block = scene.block(id),
    queued = side.headBlock === id ? HEAD_WORDS[side.headWord] : "in the free queue";
  if (!block.refCount && !block.isMapped) return `#${id} · free, holds nothing · ${queued}`;
  const parts = [`#${id}`, block.refCount ? `ref count ${block.refCount}` : `freed, content kept · ${queued}`];
  if (block.content >= 0) parts.push(`content ${contentName(block.content)}`);
  if (block.keepsStates) parts.push(block.state === null ? "no state yet" : `${stateWords(block.state)} tokens`);
  else if (block.content < 0) parts.push(`${block.fill} of ${block.size} slots written`);
  if (block.numGuessed) parts.push(`the last ${counted(block.numGuessed, "token")} guessed, not judged yet`);
  if (block.garbage)
    parts.push(
      block.keepsStates
        ? "it includes a rejected guess: garbage, to be overwritten"
        : `${slotWords(block.garbage)} KV of rejected guesses: garbage, to be overwritten`,
    );
  if (block.owners.length) parts.push(`held by ${block.owners.map(requestName).join(", ")}`);
  if (block.node) parts.push(`in node ${block.node} of the prefix tree${block.isEvictable ? ", evictable" : ""}`);
  if (block.groups.length && scene.groups.length > 1)
    parts.push(`in the tables of ${block.groups.map((group) => groupName(scene.groups, group)).join(" and ")}`);
  if (block.content >= 0 && !block.isHashed) parts.push("hash not registered yet");
  if (block.promised) parts.push(`registered, with ${counted(block.promised, "slot")} not written yet`);
  if (block.isLost) parts.push("LOST: in use, but the prefix map does not lead here");
  const words = wordsOf(block, (token) => side.text(token));
  return parts.join(" · ") + (words.length ? `\n${joined(words)}` : "");
}

function slotWords([start, end]: [start: number, end: number]) {
  return end - start === 1 ? `slot ${start} holds` : `slots ${start} to ${end - 1} hold`;
}

function misnamedWords({ scene, recording, moment }: Side, id: number) {
  const misnamed = misnamedAt(recording, moment).get(id);
  if (!misnamed || scene.contentOf(misnamed.claimed) !== scene.contentOfBlock[id]) return "";
  const held = misnamed.held === null ? -1 : scene.contentOf(misnamed.held),
    claimed = contentName(scene.contentOf(misnamed.claimed));
  const what = held < 0 ? "unknown content" : `content ${contentName(held)}`;
  return `\n≠ its hash stands for ${claimed}, but its KV is ${what} (found by the checks)`;
}

function requestWords(side: Side, id: number) {
  const request = side.scene.requests.get(id),
    engineId = side.engineId(id),
    name = `request ${requestName(id)}${engineId && ` = ${engineId}\n`}`;
  if (!request) return name.trimEnd();
  const sampled = request.tokens.length - request.numPrompt;
  return (
    `${name}${engineId ? "" : " · "}${request.status} · ${counted(request.numPrompt, "prompt token")}, ${sampled}` +
    ` generated · ${request.numComputed} computed` +
    (request.numJudged ? ` · ${request.numAccepted} of ${counted(request.numJudged, "draft")} accepted` : "") +
    (request.firstBeam === null ? "" : ` · beam ${beamName(id, request.firstBeam)}`) +
    (request.priority ? ` · priority ${request.priority}: smaller is more urgent` : "")
  );
}

function hashWords(scene: Scene, key: string) {
  const ids = scene.map.get(key),
    content = scene.contentOf(key),
    name = content >= 0 ? `content ${contentName(content)} · ` : "";
  const found = ids?.length ? `the map leads to ${blockNames(ids)}` : "not in the map";
  return `${name}${key.slice(0, 18)}… · ${found}${tierWords(scene, key)}`;
}

function nodeWords(side: Side, id: number) {
  const { scene } = side,
    { tree, groups } = scene,
    node = tree.nodes.get(id);
  if (!node) return "";
  const { size } = groups[0],
    { blocks, firstIndex, numLocks } = node,
    place = tree.byAge().findIndex(([one]) => one === id) + 1,
    lockers = [...tree.holds].filter(([, held]) => tree.path(held).includes(id)).map(([one]) => requestName(one)),
    shown = blocks.slice(0, Math.ceil(MAX_WORDS / size)),
    words = shown.flatMap((block) => wordsOf(scene.block(block), (token) => side.text(token)));
  const parts = [
    `node ${id}`,
    `${counted(blocks.length * size, "token")} after ${firstIndex * size}`,
    blockNames([...blocks]),
    numLocks ? `${counted(numLocks, "lock")}${lockers.length ? `: ${lockers.join(", ")}` : ""}` : "no locks",
    tree.nextLeaf() === id ? "evicted next" : `number ${place} of ${tree.nodes.size} in the order of use`,
  ];
  return `${parts.join(" · ")}\n${joined(words)}${shown.length < blocks.length ? "…" : ""}`;
}

function tierWords({ tier }: Scene, key: string) {
  const pins = tier.pins(key);
  return `${tier.has(key) ? " · in the external tier" : ""}${pins ? `, pinned by ${counted(pins, "transfer")}` : ""}`;
}

const MAX_BROKEN = 3; // violations that are listed for a block

// The broken rules; for the rule `said`, the value in the events and the value in the core.
function brokenBlock(side: Side, id: number) {
  const found = alarmsAt(side.recording, side.moment).violations.filter(({ blocks }) => blocks.includes(id));
  const more = found.length > MAX_BROKEN ? `\n… and ${found.length - MAX_BROKEN} more` : "";
  return (
    found
      .slice(0, MAX_BROKEN)
      .map((one) => `\n⚠ ${violationWords(one)}`)
      .join("") + more
  );
}

function brokenEvent({ recording }: Side, id: number) {
  const found = violationFound(recording, id);
  return found ? violationWords(found) : null;
}

function violationWords(violation: Violation) {
  if (!violation.isSaid) return `${violation.rule}: ${violation.message}`;
  const [, said = violation.message, is = ""] = violation.fact;
  return is ? `said: ${said}\n    is: ${is}` : said;
}

// The state of an outlined subject at the marked moment; a comparison has no marked moment.
function marked(stage: ViewHost, side: Side, kind: "blocks" | "requests" | "keys", id: number | string) {
  if (stage.isPair || !side.reference) return null;
  return (differing(side.scene, side.reference)[kind] as Set<number | string>).has(id) ? side.reference : null;
}

function wasBlock(stage: ViewHost, side: Side, id: number) {
  const before = marked(stage, side, "blocks", id);
  if (!before) return "";
  const { refCount, content, isLost, isMapped, fill } = before.block(id);
  const parts = [refCount ? `ref count ${refCount}` : content >= 0 && isMapped ? "free, content kept" : "free"];
  if (content >= 0 && (refCount || isMapped)) parts.push(`content ${contentName(content)}`);
  else if (refCount) parts.push(`${counted(fill, "slot")} written`);
  return `\nwas: ${[...parts, ...(isLost ? ["lost"] : [])].join(", ")}`;
}

function wasRequest(stage: ViewHost, side: Side, id: number) {
  const before = marked(stage, side, "requests", id),
    request = before?.requests.get(id);
  if (!before) return "";
  if (!request) return "\nwas: not there yet";
  return `\nwas: ${request.status}, ${counted(request.tokens.length, "token")}, ${request.numComputed} computed`;
}

function wasHash(stage: ViewHost, side: Side, key: string) {
  const before = marked(stage, side, "keys", key),
    ids = before?.map.get(key);
  return before ? `\nwas: ${ids?.length ? blockNames(ids) : "not in the map"}` : "";
}
