// Who can see what: nothing is painted out of sight, and a step is played only to somebody who can follow it.
const ENOUGH = { sentence: 0.6, pool: 0.3 };

export class Sight {
  // onChange: called when more or less can be seen.
  constructor(root, { sentence, pool }, onChange) {
    this.root = root;
    this.isOnPage = true;
    this.shares = new Map([[sentence, 1], [pool, 1]]);
    this.least = new Map([[sentence, ENOUGH.sentence], [pool, ENOUGH.pool]]);
    const whole = new IntersectionObserver((entries) => {
      this.isOnPage = entries.at(-1).isIntersecting;
      onChange();
    });
    const parts = new IntersectionObserver((entries) => {
      for (const entry of entries) this.shares.set(entry.target, entry.intersectionRatio);
      onChange();
    }, { threshold: [0, ...Object.values(ENOUGH)] });
    whole.observe(root);
    for (const part of this.least.keys()) parts.observe(part);
    this.observers = [whole, parts];
  }

  get isVisible() {
    return this.isOnPage && !document.hidden;
  }

  // The sentence can be read, and a good part of the pool is there.
  get isEnough() {
    return this.isVisible && [...this.least].every(([part, least]) => this.shares.get(part) >= least);
  }

  approach() {
    if (!this.isEnough) this.root.scrollIntoView({ block: "nearest" });
  }

  disconnect() {
    for (const observer of this.observers) observer.disconnect();
  }
}
