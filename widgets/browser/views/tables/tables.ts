// Block tables: a compact row per request, logical block to physical block; unfolded, with every token's slot and
// state: found, loaded, computed, in this step, not yet. With several KV-cache groups also by group, side by side.

import { button, element as make, write as say } from "../../look/element.ts";
import type { Violation } from "../../model/alarms.ts";
import { alarmsAt } from "../../model/alarms.ts";
import { groupName, joined, requestName } from "../../model/names.ts";
import type { RequestRecord } from "../../model/requests.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { About } from "../about.ts";
import { MarkedView } from "../marks.ts";
import type { Keyed, LeftOut } from "../pieces.ts";
import { groupOf, isNull, keep, keyOf, moreText } from "../pieces.ts";
import type { StepFacts } from "../step_facts.ts";
import { factsAt } from "../step_facts.ts";
import type { CsvRow, PaintMoment, ViewHost } from "../view.ts";
import { VisibleRows } from "../visible_rows.ts";
import { paintGroups } from "./groups.ts";
import { paintHead, paintStrip } from "./head.ts";
import type { TableLayout } from "./places.ts";
import { arrange, paintPlace, placesOf, shownPlaces } from "./places.ts";
import type { TableGroupElement, TableRowElement } from "./rows.ts";
import { Folding, hasEnded, isAboutSlots, makeGroup, makeRow, queuePlaces, shownRequests } from "./rows.ts";
import { SaidLines } from "./said.ts";
import { legend, numPlaces } from "./token_states.ts";

export const title = "Block tables";

const MAX_CARDS = 16;
const MAX_CARDS_IN_ALL = 96;
const MAX_CHIPS_IN_ALL = 640;
const MAX_FOLDED = 10; // chips of a folded row
const MAX_SLOTS = 16;
const MAX_SAID = 80;

export function create(stage: ViewHost, side: Side) {
  return new Tables(stage, side);
}

interface Layouts {
  folded: TableLayout;
  unfolded: TableLayout;
}

interface RowItem extends Keyed {
  id: number;
}

class Tables extends MarkedView {
  mode = button("", "", () => this.turn(), "le-tables-mode");
  top = make("div", "le-tables-top", {}, legend(), this.mode);
  list = make("div", "le-tables-list", { role: "list" });
  groups = make("div", "le-groups");
  isByGroup = false;
  rows = new Map<number, { name: string; blocks: number[]; version: number }>();
  folding = new Folding(this.stage);
  saidLines = new SaidLines(() => this.stage.theme);
  visible: VisibleRows;
  scene!: Scene;
  facts!: StepFacts;
  queuePlaces!: Map<number, number> | null;
  start!: number;
  hasNumbers!: boolean;
  violations!: Violation[];
  broken?: string;
  count = 0;

  constructor(stage: ViewHost, side: Side) {
    super(stage, side, "le-tables", "Block tables: logical block to physical block, request by request");
    this.element.append(this.top, this.list, this.groups);
    this.visible = new VisibleRows(this.element, this.list, () => this.markLate());
  }

  override covered() {
    return this.top.offsetHeight;
  }

  override shownPart(found: HTMLElement) {
    return found.dataset.request === undefined ? found : (found.closest<HTMLElement>(".le-tables-row") ?? found);
  }

  paint(scene: Scene, changes: Changes, { moment }: PaintMoment) {
    this.scene = scene;
    this.facts = factsAt(this.side.recording, moment);
    const isNewStep = this.facts.start !== this.start || changes.all;
    this.start = this.facts.start;
    if (isNewStep) this.rows.clear();
    const { shown, numHidden } = this.shownRequests();
    if (this.paintMode()) {
      const isOpen = (id: number) => !this.isEnded(id);
      paintGroups(this.groups, scene, shown.filter(isOpen), numHidden);
      return this.markAgain();
    }
    this.queuePlaces = queuePlaces(scene);
    this.hasNumbers = isAboutSlots(this.stage);
    this.takeViolations(moment);
    const layout = this.layoutFor(shown);
    this.element.classList.toggle("le-is-empty", !shown.length);
    this.element.classList.toggle("le-has-drafts", scene.hasDrafts);
    const items: (RowItem | LeftOut)[] = shown.map((id) => ({
      key: id,
      id,
      signature: this.version(id, changes, layout),
    }));
    if (numHidden) items.push({ key: "more", signature: numHidden, more: numHidden });
    this.visible.expect(items.length);
    keep<RowItem | LeftOut, HTMLElement>(
      this.list,
      items,
      (item) => ("more" in item ? make("p", "le-tables-more le-quiet") : this.makeRow(item.id)),
      (row, item, place) =>
        "more" in item
          ? say(row, moreText(item.more, "requests"))
          : this.visible.paint(row, () => this.paintRow(row as TableRowElement, item.id, layout), place),
    );
    this.visible.settle();
    this.markAgain();
  }

  // Returns true if the tables are shown by group. Two sides are compared request by request.
  paintMode() {
    const hasGroups = this.scene.groups.length > 1 && !this.stage.isPair,
      isByGroup = hasGroups && this.isByGroup;
    this.mode.hidden = !hasGroups;
    say(this.mode, isByGroup ? "by request" : "by group");
    this.element.classList.toggle("le-is-by-group", isByGroup);
    this.list.hidden = isByGroup;
    this.groups.hidden = !isByGroup;
    return isByGroup;
  }

  turn() {
    this.isByGroup = !this.isByGroup;
    this.stage.repaint();
  }

  // What is broken is marked where it is: new ones may be about any row.
  takeViolations(moment: number) {
    this.violations = alarmsAt(this.side.recording, moment).violations;
    const broken = this.violations.map(({ event }) => event).join();
    if (broken !== this.broken) this.rows.clear();
    this.broken = broken;
  }

  // In a comparison the same requests in the same order on both sides; last, those that ended before on either.
  shownRequests() {
    const { scene, facts, stage } = this,
      own = shownRequests(scene, facts);
    if (!stage.isPair) return own;
    const others = stage.sides
      .filter((side) => side !== this.side)
      .map((side) => ({ scene: side.scene, facts: factsAt(side.recording, side.moment) }));
    const ids = [
      ...new Set(
        [own, ...others.map((other) => shownRequests(other.scene, other.facts))].flatMap(({ shown }) => shown),
      ),
    ].filter((id) => scene.requests.has(id));
    const isEnded = (id: number) => [{ scene, facts }, ...others].every((one) => hasEnded(one, id));
    return { shown: ids.sort((a, b) => Number(isEnded(a)) - Number(isEnded(b)) || a - b), numHidden: own.numHidden };
  }

  // Of unfolded rows: cards while they can be taken in at a glance, chips beyond; chosen by what cannot change within a
  // step.
  layoutFor(shown: number[]): Layouts {
    const { scene, hasNumbers } = this;
    let most = 0,
      total = 0,
      numRows = 0;
    for (const id of shown) {
      if (this.isEnded(id) || !this.isUnfolded(id)) continue;
      scene.groups.forEach((_, group) => {
        const count = numPlaces(scene, this.facts, id, group);
        most = Math.max(most, count);
        total += count;
        numRows += 1;
      });
    }
    const size = Math.max(...scene.groups.map((_, group) => groupOf(scene, group).size), 1);
    const kind = most > MAX_CARDS || total > MAX_CARDS_IN_ALL ? "chips" : size > MAX_SLOTS ? "texts" : "slots";
    const limit = Math.max(12, Math.floor(MAX_CHIPS_IN_ALL / Math.max(1, numRows)));
    return {
      folded: { kind: "chips", limit: MAX_FOLDED, isFolded: true },
      unfolded: { kind, limit, hasNumbers: hasNumbers && kind === "slots" },
    };
  }

  // It gets a single line.
  isEnded(id: number) {
    return hasEnded(this, id);
  }

  // A story about slots shows them.
  isUnfolded(id: number) {
    return this.folding.isUnfolded(id, this.hasNumbers);
  }

  layoutOf(id: number, { folded, unfolded }: Layouts) {
    return this.isUnfolded(id) ? unfolded : folded;
  }

  // A row looks different when its request changed, or one of the blocks drawn in it.
  version(id: number, changes: Changes, layouts: Layouts) {
    const known = this.rows.get(id),
      name = `${this.isUnfolded(id)}${this.queuePlaces?.get(id)}${Object.values(this.layoutOf(id, layouts))}`;
    const isSame =
      known &&
      known.name === name &&
      !changes.requests.has(id) &&
      !known.blocks.some((block) => changes.blocks.has(block));
    if (isSame) return known.version;
    this.count += 1;
    this.rows.set(id, { name, blocks: [], version: this.count });
    return this.count;
  }

  makeRow(id: number) {
    const row = makeRow(id, this.folding.toggle(id));
    this.saidLines.watch(row.said);
    return row;
  }

  paintRow(row: TableRowElement, id: number, layouts: Layouts) {
    const { scene, facts } = this,
      request = scene.requests.get(id),
      known = this.rows.get(id);
    if (!request || !known) return;
    const isEnded = this.isEnded(id),
      isUnfolded = this.isUnfolded(id);
    row.classList.toggle("le-tables-ended", request.status === "finished" && !request.isHolding);
    paintHead(row.head, this, id);
    this.folding.paint(row.fold, isUnfolded);
    row.body.hidden = row.said.hidden = isEnded;
    row.strip.hidden = isEnded || !isUnfolded;
    row.fold.disabled = isEnded;
    row.brief.hidden = !isEnded;
    const said = this.said(request);
    if (isEnded) return say(row.brief, said || "said nothing");
    if (isUnfolded) paintStrip(row.strip, scene, facts, id);
    const groups = scene.groups.map((_, group) => ({ key: group, group })),
      layout = this.layoutOf(id, layouts);
    keep(
      row.body,
      groups,
      () => makeGroup(),
      (child, { group }) => known.blocks.push(...this.paintGroup(child, id, group, layout)),
    );
    const fresh = this.facts.sampled.get(id) ?? [];
    this.saidLines.paint(row.said, said, joined(fresh.map((token) => this.side.text(token))));
  }

  paintGroup(child: TableGroupElement, id: number, group: number, layout: TableLayout) {
    const { scene } = this,
      rule = groupOf(scene, group),
      isAlone = scene.groups.length === 1;
    child.label.hidden = isAlone;
    if (!isAlone) say(child.label, groupName(scene.groups, group) + (rule.window ? `, last ${rule.window}` : ""));
    const shown = shownPlaces(this, placesOf(this, id, group, layout), layout);
    arrange(child.cells, layout, rule.size, {
      numShown: shown.length,
      numBlocks: scene.numBlocks,
      hasSaid: this.violations.some(({ isSaid }) => isSaid),
      keepsStates: rule.kind === "state",
    });
    keep(
      child.cells,
      shown,
      () => make("div"),
      (cell, item) => paintPlace(this, cell, item, layout),
    );
    return shown.flatMap((item) => ("look" in item && item.look ? [item.look.id] : []));
  }

  said(request: RequestRecord) {
    const newest = request.tokens.slice(request.numPrompt).slice(-MAX_SAID);
    return joined(newest.map((token) => this.side.text(token)));
  }

  // Where a block stands once its row is painted.
  override rowOf({ request, block }: About) {
    const { requests } = this.scene;
    return [...this.list.children].find((child) => {
      const id = Number(keyOf(child));
      return request.has(id) || requests.get(id)?.tables.some((table) => table.some((held) => block.has(held)));
    });
  }

  // The entries that hold a block, as elements.
  entriesOf(block: number) {
    return [...this.list.querySelectorAll<HTMLElement>(`[data-anchor^="row:"][data-block="${block}"]`)];
  }

  csv() {
    const rows: CsvRow[] = [["request", "group", "index", "block"]];
    for (const [id, request] of this.scene?.requests || [])
      request.tables.forEach((table, group) =>
        table.forEach((block, index) =>
          rows.push([
            requestName(id),
            groupName(this.scene.groups, group),
            index,
            isNull(this.scene, block) ? "" : block,
          ]),
        ),
      );
    return rows;
  }

  override destroy() {
    this.visible.close();
    this.saidLines.close();
    super.destroy();
  }
}
