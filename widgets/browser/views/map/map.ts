// The prefix map as chains of hashes. Each bead is a content, with the blocks that the map serves for it, in order of
// service.

import { element as make, write as say } from "../../look/element.ts";
import { contentName, counted, groupName } from "../../model/names.ts";
import type { Recording } from "../../model/recording.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes, Evicted } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { About } from "../about.ts";
import { MarkedView } from "../marks.ts";
import { keep, keyOf, moreText } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt } from "../step_facts.ts";
import type { PaintMoment, ViewHost } from "../view.ts";
import { VisibleRows } from "../visible_rows.ts";
import type { Bead } from "./beads.ts";
import { legend, paintBead } from "./beads.ts";
import type { ChainRow } from "./chain_layout.ts";
import { ChainLayout, hanging } from "./chain_layout.ts";

export const title = "Prefix map";

const MAX_ROWS = 64;
const MAX_BEADS_IN_ALL = 960;
const MAX_SCANNED = 20_000;
const MAX_FORGOTTEN = 8192;

export function create(stage: ViewHost, side: Side) {
  return new HashMap(stage, side);
}

type ChainElement = ReturnType<typeof makeRow>;

class HashMap extends MarkedView {
  summary = make("p", "le-map-summary le-fine");
  list = make("div", "le-map-rows", { role: "list" });
  visible: VisibleRows;
  layout = new ChainLayout();
  seen!: { start: number; stop: number } | null;
  present!: Set<string>;
  lost!: Map<string, Set<number>>;
  scene!: Scene;
  recording!: Recording;
  start!: number;
  evicted!: Map<string, Evicted>;
  isNewStep!: boolean;
  coming!: Set<ChainRow>; // rows into which this step brings hashes
  cachings!: Set<string>; // hashes that this step caches
  limit!: number;
  digits?: number;

  constructor(stage: ViewHost, side: Side) {
    super(stage, side, "le-map-view", "Prefix map: the blocks found under each hash");
    this.element.append(legend(), this.summary, this.list);
    this.visible = new VisibleRows(this.element, this.list, () => this.markLate());
    this.forget();
  }

  forget() {
    this.layout = new ChainLayout();
    this.list.replaceChildren();
    this.seen = null;
    this.present = new Set();
    this.lost = new Map();
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    const { recording } = this.side;
    if (recording !== this.recording) this.forget();
    this.scene = scene;
    this.recording = recording;
    const facts = factsAt(recording, moment),
      isNewStep = facts.start !== this.start;
    if (!changes.all && !changes.keys.size && !changes.blocks.size && !isNewStep) return;
    const isCrowded = isNewStep && this.layout.places.size > 2 * scene.map.size + MAX_FORGOTTEN;
    if (isCrowded) this.forget();
    this.start = facts.start;
    this.evicted = evictedIn(scene, facts);
    this.isNewStep = isNewStep || changes.all;
    this.follow(changes, isCrowded);
    this.expect(facts);
    const shown = this.layout.rows.filter(
      (row) => row.present > 0 || this.coming.has(row) || row.keys.some((key) => this.evicted.has(key)),
    );
    this.setDigits(String(scene.numBlocks).length);
    this.limit = MAX_BEADS_IN_ALL / ([16, 32].find((rows) => shown.length <= rows) ?? MAX_ROWS);
    const numHidden = Math.max(0, shown.length - MAX_ROWS),
      rows = shown.slice(numHidden);
    if (this.stage.isPair) rows.sort((a, b) => a.group - b.group); // the same groups stand beside one another
    this.element.classList.toggle("le-is-empty", !shown.length);
    this.paintSummary(numHidden);
    this.visible.expect(rows.length);
    const below = hanging(rows, this.layout.places);
    keep(
      this.list,
      rows.map((row) => ({ key: row.index, row, signature: `${row.version} ${below.has(row)}` })),
      ({ row }) => makeRow(row),
      (child, { row }, place) => this.visible.paint(child, () => this.paintRow(child, row, below.has(row)), place),
    );
    this.visible.settle();
    this.markAgain();
  }

  // What this step will bring into the map has its place from the step's beginning, as far as the recording goes.
  expect(facts: StepFacts) {
    const { recording, seen } = this,
      isSame = seen && seen.start === facts.start && seen.stop <= facts.stop;
    let known = seen;
    if (!isSame || !known) {
      this.seen = known = { start: facts.start, stop: facts.start };
      this.coming = new Set();
      this.cachings = new Set();
    }
    for (let i = Math.max(known.stop, recording.start); i < facts.stop; i++) {
      if (recording.kind(i) !== "BlockCached" || !recording.field(i, "mapped")?.length) continue;
      const key = `${recording.field(i, "group")}:${recording.field(i, "block_hash")}`,
        { row } = this.place(key);
      this.cachings.add(key);
      this.coming.add(row);
      row.version += 1;
    }
    known.stop = facts.stop;
  }

  setDigits(digits: number) {
    if (digits === this.digits) return;
    this.digits = digits;
    this.element.style.setProperty("--le-map-digits", String(digits));
  }

  paintSummary(numHidden: number) {
    const { map } = this.scene,
      parts = [map.size ? counted(map.size, "hash") : "no hashes"];
    if (this.lost.size) parts.push(`${this.lost.size} lost`);
    if (numHidden) parts.push(moreText(numHidden, "older chains"));
    say(this.summary, parts.join(" · "));
  }

  // Costs the keys and blocks that changed; all of them only after a jump.
  follow(changes: Changes, isCrowded: boolean) {
    const isAll = changes.all || isCrowded;
    if (isAll) this.takeStock();
    else for (const key of changes.keys) this.setPresent(key);
    const blocks = isAll ? this.blocksInStock() : changes.blocks;
    for (const id of blocks) this.setLost(id);
    if (this.isNewStep) for (const row of this.layout.rows) row.version += 1;
    for (const key of this.evicted.keys()) this.place(key);
  }

  takeStock() {
    for (const row of this.layout.rows) row.present = 0;
    this.present.clear();
    this.lost.clear();
    let keys = [...this.scene.map.keys()];
    if (keys.length > MAX_SCANNED) keys = keys.slice(-MAX_SCANNED);
    keys.sort((a, b) => this.scene.contentOf(a) - this.scene.contentOf(b));
    for (const key of keys) this.setPresent(key);
  }

  // Lost blocks are alive, so they stand in some request's table.
  blocksInStock(): Set<number> {
    const ids = new Set<number>();
    if (!this.scene.score.lost) return ids;
    for (const request of this.scene.requests.values())
      for (const table of request.tables) for (const id of table) if (id >= 0) ids.add(id);
    return ids;
  }

  place(key: string) {
    return this.layout.add(key, (one) => this.recording.shared.parents.get(one));
  }

  setPresent(key: string) {
    const is = this.scene.map.has(key) || this.lost.has(key),
      isSame = is === this.present.has(key);
    if (isSame && !is) return;
    const { row } = this.place(key);
    row.version += 1;
    if (isSame) return;
    row.present += is ? 1 : -1;
    if (is) this.present.add(key);
    else this.present.delete(key);
  }

  setLost(id: number) {
    const block = this.scene.block(id);
    for (const [key, ids] of this.lost) {
      if (!ids.delete(id) || ids.size) continue;
      this.lost.delete(key);
      this.setPresent(key);
    }
    for (const key of block.keys) {
      this.place(key).row.version += 1;
      if (!block.isLost) continue;
      this.lost.set(key, (this.lost.get(key) ?? new Set()).add(id));
      this.setPresent(key);
    }
  }

  paintRow(child: ChainElement, row: ChainRow, isBelow: boolean) {
    const { scene } = this;
    child.style.setProperty("--le-depth", String(isBelow ? Math.min(row.depth, 6) : 0));
    if (row.after !== null) say(child.branch, isBelow ? "└" : `after ${contentName(scene.contentOf(row.after))}`);
    const isSeen = (key: string) => this.present.has(key) || this.evicted.has(key) || this.cachings.has(key);
    const last = lastIndex(row.keys, isSeen),
      head = row.keys.findIndex(isSeen);
    const first = last + 1 - head > this.limit ? 8 * Math.ceil((last + 1 - this.limit) / 8) : head;
    const items = row.keys.slice(first, last + 1).map((key, i) => this.item(row, key, first + i));
    // Only when it has happened: room kept for it would give away the story's end.
    for (const item of items) item.isWide = item.numBlocks + item.lost.length > 1;
    say(child.group, scene.groups.length > 1 && row.after === null ? groupName(scene.groups, row.group) : "");
    const isCut = first > head;
    const numLeft = isCut ? row.keys.slice(0, first).filter((key) => this.present.has(key)).length : first;
    child.more.hidden = first === 0;
    child.more.style.visibility = numLeft ? "" : "hidden"; // they are still to come in this step, and have their room
    say(child.more, `… ${numLeft} ${isCut ? "more" : "gone"}`);
    keep(
      child.beads,
      items,
      () => make("span"),
      (bead, item) => paintBead(scene, bead, item),
    );
  }

  item(row: ChainRow, key: string, at: number): Bead {
    const { scene } = this,
      ids = scene.map.get(key) || [],
      lost = [...(this.lost.get(key) || [])],
      evicted = this.evicted.get(key);
    const blocks = ids.slice(0, 4).map((id): [number, boolean] => [id, scene.isKept(id)]);
    const isBroken = at > 0 && ids.length > 0 && !scene.map.has(row.keys[at - 1]);
    const isComing =
      !ids.length &&
      !lost.length &&
      !evicted &&
      this.cachings.has(key) &&
      !row.keys.slice(at + 1).some((next) => this.present.has(next));
    const signature = JSON.stringify([isComing, blocks, ids.length, lost, evicted?.block, isBroken]);
    return { key, signature, blocks, numBlocks: ids.length, lost, evicted, isBroken, isComing, depth: row.depth + at };
  }

  // The place of a hash once it is painted.
  override rowOf({ hash, block }: About) {
    if (!this.scene) return null;
    const keys = new Set([...hash, ...[...block].flatMap((id) => this.scene.block(id).keys)]);
    return [...this.list.children].find((child) =>
      this.layout.rows[Number(keyOf(child))]?.keys.some((key) => keys.has(key) && this.present.has(key)),
    );
  }

  csv() {
    return [
      ["group", "hash", "content", "blocks"],
      ...[...(this.scene?.map || [])].map(([key, ids]) => [
        ...key.split(":"),
        contentName(this.scene.contentOf(key)),
        ids.join(" "),
      ]),
    ];
  }

  override destroy() {
    this.visible.close();
    super.destroy();
  }
}

// Hashes that this step took out of the map and did not bring back.
function evictedIn(scene: Scene, facts: StepFacts) {
  const found = new Map<string, Evicted>();
  for (const [key, gone] of scene.evicted) if (gone.moment >= facts.start && !scene.map.has(key)) found.set(key, gone);
  return found;
}

function lastIndex<T>(items: T[], test: (item: T) => boolean) {
  let i = items.length - 1;
  while (i >= 0 && !test(items[i])) i -= 1;
  return i;
}

function makeRow(row: ChainRow) {
  const made = Object.assign(make("div", "le-map-row le-row", { role: "listitem" }), {
    group: make("span", "le-map-group le-fine"),
    branch: make("span", row.after === null ? "" : "le-map-branch le-quiet"),
    more: make("span", "le-quiet"),
    beads: make("span", "le-map-beads le-row"),
  });
  made.dataset.group = String(row.group);
  if (row.after !== null) made.append(made.branch);
  made.append(made.group, made.more, made.beads);
  return made;
}
