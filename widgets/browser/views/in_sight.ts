// The rows of a long list are painted while they are in sight, the others when they come there. Nothing is measured: the browser tells.

const SHORT = 24; // a list up to this length is painted whole
const FIRST = 8; // rows that are painted before the browser has told who is in sight

export class InSight {
  // frame: what scrolls; list: the rows' parent; onLate: some rows were painted after the others.
  constructor(frame, list, onLate) {
    Object.assign(this, { list, onLate, seen: new Set(), waiting: new Map(), watched: new Set(), isLong: false });
    this.observer = new IntersectionObserver((entries) => this.hear(entries), { root: frame, rootMargin: "30px" });
  }

  // Before the rows are kept: so many of them there will be.
  expect(count) {
    const isLong = count > SHORT;
    if (isLong === this.isLong) return;
    this.isLong = isLong;
    this.list.classList.toggle("le-is-long", isLong);
    if (!isLong) this.forget();
  }

  // Paints a row now, or when it comes into sight.
  paint(row, act, place) {
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

  hear(entries) {
    let isLate = false;
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) this.seen.delete(target);
      else if (this.watched.has(target)) {
        this.seen.add(target);
        const act = this.waiting.get(target);
        this.waiting.delete(target);
        if (act) act(), (isLate = true);
      }
    }
    if (isLate) this.onLate();
  }

  drop(row) {
    this.observer.unobserve(row);
    for (const known of [this.watched, this.seen, this.waiting]) known.delete(row);
  }

  // A short list again: everybody is painted.
  forget() {
    const acts = [...this.waiting].filter(([row]) => row.parentNode === this.list);
    for (const row of [...this.watched]) this.drop(row);
    for (const [, act] of acts) act();
  }

  close() {
    this.observer.disconnect();
  }
}
