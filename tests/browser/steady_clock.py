"""A page's clock that a stalled page does not run away from: plays show every moment, however slow the machine."""

STEADY_CLOCK = """() => {
  const real = performance.now.bind(performance);
  let seen = real(), steady = seen;
  performance.now = () => steady;
  let isSteady = true;
  window.setRealClock = () => { isSteady = false; delete performance.now; };
  const tick = () => {
    if (!isSteady) return;
    const now = real();
    steady += Math.min(now - seen, 150);
    seen = now;
    requestAnimationFrame(tick);
  };
  tick();
}"""
"""Evaluated in a page: performance.now() goes on with each frame, by 150 ms at most: a moment at double speed."""

REAL_CLOCK = "() => window.setRealClock()"
"""Evaluated in such a page: performance.now() is the browser's own again, and the page can serve another test."""

WATCH_PLAYS = """(root) => {
  window.plays = [];
  const note = () => window.plays.push([root.dataset.playing, performance.now()]);
  new MutationObserver(note).observe(root, { attributes: true, attributeFilter: ["data-playing"] });
}"""
"""Evaluated with a widget's root: keep [playing, milliseconds] of every beginning and end in window.plays."""
