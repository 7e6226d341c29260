// The rows of a long list are painted while they are in sight, the others when they come there. Nothing is measured:
// the browser tells.

const SHORT = 24; // a list up to this length is painted whole
const FIRST = 8; // rows that are painted before the browser has reported which are visible

export class VisibleRows {
  seen = new Set<Element>();
  waiting = new Map<Element, () => void>();
  watched = new Set<Element>();
  isLong = false;
  observer: IntersectionObserver;
  // frame: what scrolls; list: the rows' parent; onLate: some rows were painted after the others.
  constructor(
    frame: HTMLElement,
    readonly list: HTMLElement,
    readonly onLate: () => void,
  ) {
    this.observer = new IntersectionObserver((entries) => this.hear(entries), { root: frame, rootMargin: "30px" });
  }

  // Before the rows are kept: so many of them there will be.
  expect(count: number) {
    const isLong = count > SHORT;
    if (isLong === this.isLong) return;
    this.isLong = isLong;
    this.list.classList.toggle("le-is-long", isLong);
    if (!isLong) this.forget();
  }

  // Paints a row now, or when it comes into sight.
  paint(row: HTMLElement, act: () => void, place: number) {
    if (!this.isLong) return act();
    if (!this.watched.has(row)) {
      this.watched.add(row);
      this.observer.observe(row);
      if (place < FIRST) this.seen.add(row);
    }
    if (this.seen.has(row)) act();
    else this.waiting.set(row, act);
  }

  // After the rows are kept: those that left are forgotten.
  settle() {
    for (const row of this.watched) if (row.parentNode !== this.list) this.drop(row);
  }

  hear(entries: IntersectionObserverEntry[]) {
    let isLate = false;
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) this.seen.delete(target);
      else if (this.watched.has(target)) {
        this.seen.add(target);
        const act = this.waiting.get(target);
        this.waiting.delete(target);
        if (act) {
          act();
          isLate = true;
        }
      }
    }
    if (isLate) this.onLate();
  }

  drop(row: Element) {
    this.observer.unobserve(row);
    this.watched.delete(row);
    this.seen.delete(row);
    this.waiting.delete(row);
  }

  // For a list that is short again: paints all rows.
  forget() {
    const acts = [...this.waiting].filter(([row]) => row.parentNode === this.list);
    for (const row of [...this.watched]) this.drop(row);
    for (const [, act] of acts) act();
  }

  close() {
    this.observer.disconnect();
  }
}
