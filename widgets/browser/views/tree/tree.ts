// The prefix tree: a bar per node, as long as its tokens and below its parent, with its locks and its place in the
// order of use. Only the rows in sight are drawn.

import { element, takeKey, write } from "../../look/element.ts";
import { counted } from "../../model/names.ts";
import type { Selection } from "../../model/payloads.ts";
import type { Scene } from "../../model/scene.ts";
import type { Changes } from "../../model/scene_state.ts";
import type { Side } from "../../model/side.ts";
import type { TreeNode } from "../../model/tree.ts";
import { aboutOf, namedBy } from "../about.ts";
import type { Ink } from "../canvas.ts";
import { Picture } from "../canvas.ts";
import type { CsvRow, PaintMoment, Subject, ViewHost } from "../view.ts";
import { drawHeader, drawRail, drawRow, drawTwig, HEADER, holdersOf, Scales } from "./tree_bars.ts";
import { TreeRows } from "./tree_rows.ts";

export const title = "Prefix tree";

const ROOMY = 26, // pixels of a row, while all fit
  LOW = 20,
  MANY = 500; // events at once, too many to point at their nodes

const KEY =
  "left: the order of use, solid where a node can be evicted; bars: tokens, dashed where no lock protects them; " +
  "dots: locks, and the letters of the requests whose lock begins there";

export function create(stage: ViewHost, side: Side) {
  return new TreeView(stage, side);
}

class TreeView {
  summary = element("p", "le-tree-summary le-fine", { title: KEY });
  picture = new Picture();
  spacer = element("div", "le-tree-rows");
  frame = element("div", "le-scroll le-tree-frame", {}, this.picture.canvas, this.spacer);
  element = element("div", "le-tree", { role: "group", ariaLabel: title }, this.summary, this.frame);
  canvas = this.picture.canvas;
  scene!: Scene;
  laid = new TreeRows();
  focus = new Set<number>(); // nodes that the current event is about
  longest = { key: "", blocks: 0 }; // of this recording: the scale stays when a long node goes
  selected: Selection | null = null;
  pointed: Subject | null = null;
  cursor = 0;
  sizes = new ResizeObserver(() => this.draw()); // it may have been painted before it was shown
  scrolled = 0; // pixels, when it was drawn
  isByHand = false;

  constructor(
    readonly stage: ViewHost,
    readonly side: Side,
  ) {
    Object.assign(this.canvas, { className: "le-tree-canvas", tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.sizes.observe(this.frame);
    this.frame.addEventListener("scroll", () => this.draw(), { passive: true });
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("click", () => this.noteHand(), { capture: true });
  }

  destroy() {
    this.sizes.disconnect();
    this.element.remove();
  }

  // -- layout

  get rowHeight() {
    return (this.laid.size + 1) * ROOMY <= this.picture.size.height - HEADER ? ROOMY : LOW;
  }

  get scales() {
    const size = this.scene.groups[0]?.size ?? 1;
    return new Scales(this.picture.size.width, this.longest.blocks * size, size);
  }

  paint(scene: Scene, changes: Changes, at: PaintMoment) {
    const isNew = changes.all || changes.tree || scene !== this.scene;
    this.scene = scene;
    const isMoved = this.takeFocus(at);
    if (!isNew && !isMoved && !changes.blocks.size) return;
    if (isNew || isMoved) this.lay(scene);
    this.say();
    this.draw();
  }

  // The nodes that the current events name. Returns true if they are others.
  takeFocus({ moment, since = moment }: PaintMoment) {
    const { recording } = this.side,
      start = Math.max(since, recording.start),
      hadFocus = this.focus.size > 0;
    this.focus = new Set();
    if (moment - since <= MANY)
      for (let event = start; event < moment; event++)
        for (const id of namedBy(recording, event, "node")) this.focus.add(Number(id));
    return hadFocus || this.focus.size > 0;
  }

  lay(scene: Scene) {
    const { nodes } = scene.tree,
      gone = new Map<number, TreeNode>();
    for (const id of this.focus) {
      const row = nodes.has(id) ? -1 : this.laid.ids.indexOf(id);
      if (row >= 0) gone.set(id, this.laid.nodes[row]);
    }
    this.laid = new TreeRows(nodes, gone);
    const key = `${this.side.recording.header.lab} ${this.side.recording.header.generation}`,
      before = this.longest.key === key ? this.longest.blocks : 0;
    this.longest = { key, blocks: Math.max(before, this.laid.numBlocks) };
  }

  // -- drawing

  draw() {
    if (!this.scene || !this.picture.measure()) return;
    const { size } = this.laid,
      { theme } = this.stage,
      height = this.rowHeight;
    this.spacer.style.height = `${Math.max(0, HEADER + size * height + 6 - this.picture.size.height)}px`;
    this.scrolled = this.frame.scrollTop;
    const ink = this.picture.begin(theme),
      first = Math.max(0, Math.floor(this.scrolled / height) - 1),
      last = Math.min(size, Math.ceil((this.scrolled + this.picture.size.height) / height) + 1);
    if (size) {
      this.drawRails(ink, first, last);
      this.drawRows(ink, first, last);
      drawHeader(ink, this.scales);
    }
  }

  top(row: number) {
    return HEADER + row * this.rowHeight - this.scrolled;
  }

  drawRails(ink: Ink, first: number, last: number) {
    const { laid, scales, rowHeight } = this,
      middle = (row: number) => this.top(row) + rowHeight / 2;
    for (const row of laid.parentsAround(first, last)) {
      const from = Math.max(this.top(row) + rowHeight - 2, HEADER),
        to = Math.min(middle(laid.lastChildren[row]), this.picture.size.height);
      drawRail(ink, scales.railOf(laid.row(row)), from, to);
    }
    for (let row = first; row < last; row++)
      if (laid.parents[row] >= 0) drawTwig(ink, scales.railOf(laid.row(laid.parents[row])), middle(row));
  }

  drawRows(ink: Ink, first: number, last: number) {
    const { scales, scene, rowHeight, laid } = this,
      holders = holdersOf(scene.tree),
      selected = this.marked(this.selected),
      pointed = this.marked(this.pointed),
      text = (token: number) => this.side.text(token);
    for (let i = first; i < last; i++) {
      const row = laid.row(i);
      drawRow(ink, row, scales.barOf(row, this.top(i), rowHeight), {
        scene,
        scales,
        text,
        holders,
        isFocused: this.focus.has(row.id),
        isSelected: selected.nodes.has(row.id),
        isPointed: pointed.nodes.has(row.id),
        blocks: this.pointed ? pointed.blocks : selected.blocks,
        numNodes: scene.tree.nodes.size,
      });
    }
  }

  // The nodes that have a subject's blocks, and the blocks.
  marked(subject: Selection | null) {
    const { block } = aboutOf(subject, this.side),
      nodes = new Set<number>();
    for (const id of block) if (this.scene.nodeOf[id]) nodes.add(this.scene.nodeOf[id]);
    if (subject?.kind === "node" && (subject.side ?? this.side.index) === this.side.index)
      nodes.add(Number(subject.id));
    return { nodes, blocks: block };
  }

  say() {
    const { tree, score } = this.scene,
      next = this.laid.next < 0 ? null : this.laid.row(this.laid.next),
      numBlocks = tree.numBlocks;
    const words = tree.nodes.size
      ? [
          counted(tree.nodes.size, "node"),
          counted(numBlocks, "block"),
          `${score.evictable} evictable`,
          next ? `next: node ${next.id} (${counted(next.node.blocks.length, "block")})` : "nothing can be evicted",
        ].join(" · ")
      : this.side.recording.hasTree
        ? "The prefix tree is empty."
        : "This edition has no prefix tree.";
    write(this.summary, words);
    this.canvas.ariaLabel = `${title}: ${words}`;
  }

  // -- selecting

  at(event: MouseEvent): Subject | null {
    const y = event.offsetY / (this.canvas.currentCSSZoom ?? 1) - HEADER;
    if (!this.scene || event.target !== this.canvas || y < 0) return null;
    const row = Math.floor((y + this.scrolled) / this.rowHeight),
      id = this.laid.ids[row];
    return id === undefined || this.laid.gone.has(id) ? null : { kind: "node", id };
  }

  mark(selection: Selection | null) {
    this.selected = selection;
    if (selection && !this.isByHand) this.reveal();
    this.draw();
  }

  point(subject: Subject | null) {
    if (!subject && !this.pointed) return;
    this.pointed = subject;
    this.draw();
  }

  // A reader who selects something in this view sees it already.
  noteHand() {
    this.isByHand = true;
    setTimeout(() => (this.isByHand = false));
  }

  reveal() {
    if (!this.scene) return;
    const { nodes } = this.marked(this.selected),
      row = nodes.size ? this.laid.ids.findIndex((id) => nodes.has(id)) : -1;
    if (row >= 0) this.scrollTo(row);
  }

  scrollTo(row: number) {
    const { frame, rowHeight } = this,
      top = row * rowHeight,
      room = frame.clientHeight - HEADER - rowHeight;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top > frame.scrollTop + room) frame.scrollTop = top - room;
  }

  onKey(event: KeyboardEvent) {
    const { ids } = this.laid,
      go = (step: number) => () => {
        this.cursor = Math.max(0, Math.min(ids.length - 1, this.cursor + step));
        if (!ids.length) return;
        this.scrollTo(this.cursor);
        this.point({ kind: "node", id: ids[this.cursor] });
      };
    takeKey(event, {
      ArrowUp: go(-1),
      ArrowDown: go(1),
      Enter: () => this.cursor < ids.length && this.stage.select({ kind: "node", id: ids[this.cursor] }),
    });
  }

  csv() {
    const { tree, groups } = this.scene,
      size = groups[0]?.size ?? 1,
      holders = holdersOf(tree),
      rows: CsvRow[] = [["node", "parent", "first_token", "tokens", "blocks", "locks", "locked_by", "age"]];
    for (let row = 0; row < this.laid.size; row++) {
      const { id, node, age, isGone } = this.laid.row(row);
      if (!isGone)
        rows.push([
          id,
          node.parent,
          node.firstIndex * size,
          node.blocks.length * size,
          node.blocks.join(" "),
          node.numLocks,
          (holders.get(id) ?? []).join(" "),
          age,
        ]);
    }
    return rows;
  }
}
