"""The browser's own fold of the events, in headless Chromium without any picture.

    python benchmarks/browser_fold.py [--events 370000] [--blocks 512 65536] [--rounds 5]

parse     JSON.parse of the recording's rows, milliseconds.
pass      folding all of them once, with keyframes: what opening such a recording costs; and microseconds an event.
forward   one event on, by `move`: microseconds, over 2,000 events in a row.
seek      to a random moment of it, milliseconds: half of them take less, and the slowest of 200.
back      one event back, what changed included.
keyframes how many, and the megabytes of typed arrays in them.

A pool of 65,536 blocks has 64 requests decoding after prompts of 16,000 tokens; a small one has prompts of 100. Times
are medians of the rounds; what others took of the cores in the second before is printed with them.
"""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path
from random import Random
from statistics import median
from time import sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from machine import facts, headline, listening_for_noise  # noqa: E402

from browser.chromium import launched  # noqa: E402
from driving import recorded, small_engine  # noqa: E402
from labengine.config import SamplingParams  # noqa: E402
from labengine.record.files.codec import KINDS, dumps, rows  # noqa: E402
from labengine.record.hooks import Hooks  # noqa: E402
from labengine_widgets.browser import esm  # noqa: E402

MEASURE = """
() => {
  const time = (act) => { const begin = performance.now(); act(); return performance.now() - begin; };
  const times = (n, act) => Array.from({ length: n }, (_, i) => time(() => act(i))).sort((a, b) => a - b);
  let payload, recording;
  const parse = time(() => { payload = JSON.parse(window.text); });
  const pass = time(() => { recording = window.Recording.full(payload); });
  const scene = recording.sceneAt(recording.end >> 1), { end } = recording;
  const forward = time(() => { for (let i = 0; i < 2000; i++) recording.move(scene, scene.moment + 1); }) / 2;
  const seeks = times(200, () => recording.move(scene, Math.floor(Math.random() * end)));
  recording.move(scene, end >> 1);
  const backs = times(50, () => recording.move(scene, scene.moment - 1));
  const { keyframes } = recording, values = keyframes.flatMap((kept) => Object.values(kept));
  const mega = values.reduce((sum, value) => sum + (value?.buffer?.byteLength ?? 0), 0) / 1e6;
  const seek = seeks[100], slowest = seeks[199], back = backs[25];
  return { parse, pass, forward, seek, slowest, back, keyframes: keyframes.length, mega, end };
}
"""


def recording(num_events: int, num_blocks: int) -> bytes:
    """A run on the simulated model, as the message `full` carries it."""
    prompt, generated = (16_000, 2_000) if num_blocks > 8192 else (100, 60)
    hooks, rng = Hooks(), Random(1)
    events = recorded(hooks)
    engine = small_engine(
        num_blocks, 16, max_num_seqs=64, budget=20_000, hooks=hooks, next_token=lambda i, at: (i * 7919 + at) % 50_021
    )
    while len(events) < num_events:
        while len(engine.scheduler.waiting) < 4:
            tokens = [1] * (prompt // 2) + [rng.randrange(50_000) for _ in range(prompt // 2)]
            engine.add(tokens, SamplingParams(max_tokens=rng.randint(generated // 2, generated)))
        engine.step()
    header = {"kinds": KINDS, "first": 0, "is_live": False}
    return dumps({"header": header, "start": 0, "keyframe": None, "events": rows(events[:num_events])})


def measured(text: str, rounds: int) -> list[dict[str, Any]]:
    """Each round in a page of its own."""
    source = base64.b64encode(esm().encode()).decode()
    load = "async (source) => Object.assign(window, (await import('data:text/javascript;base64,' + source)).internals)"
    found = []
    with launched() as browser:
        for _ in range(rounds):
            page = browser.new_page()
            page.evaluate(load, source)
            page.evaluate("(text) => { window.text = text; }", text)
            found.append(page.evaluate(MEASURE))
            page.close()
    return found


def report(num_blocks: int, found: list[dict[str, Any]]) -> str:
    """Medians, in one line."""
    figure = {name: median(one[name] for one in found) for name in found[0]}
    return (
        f"{num_blocks:>6} blocks, {figure['end']:,.0f} events: parse {figure['parse']:.0f} ms, "
        f"pass {figure['pass']:.0f} ms ({1000 * figure['pass'] / figure['end']:.2f} us an event), "
        f"forward {figure['forward']:.1f} us, seek {figure['seek']:.1f} ms "
        f"(slowest {figure['slowest']:.0f}), back {figure['back']:.1f} ms, "
        f"{figure['keyframes']:.0f} keyframes of {figure['mega']:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=370_000)
    parser.add_argument("--blocks", type=int, nargs="+", default=[512, 65_536])
    parser.add_argument("--rounds", type=int, default=5)
    selected = parser.parse_args()
    print(headline(facts(threads=1)), flush=True)
    for num_blocks in selected.blocks:
        text = recording(selected.events, num_blocks).decode()
        with listening_for_noise() as others:
            sleep(1)
        found = measured(text, selected.rounds)
        print(f"{report(num_blocks, found)}; others took {others.share or 0:.0%} before", flush=True)


if __name__ == "__main__":
    main()
