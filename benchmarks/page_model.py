"""The real model in a web page beside the native engine on the same machine: how soon, and how fast.

    python benchmarks/page_model.py [--rounds 3]

fetched   seconds from the click to the session that computes with the weights: 98 MB from a static server on this
          machine, their digests, and their unpacking. Headless Chromium, each round with an empty profile.
kept      the same in a second page of that profile, from the start of loading: the weights are in Cache Storage.
first     seconds to the first token of a prompt of 13 tokens.
one, five tokens a second of one request and of five at once, 64 tokens each, recorded and checked as in a notebook.
long      tokens of a prompt of 512 a second, in steps of 64.

The last three are in seconds of processor time, in which others on the machine count less. One script measures them: in
Pyodide on Node, whose WebAssembly is Chromium's, and natively in float32 and bfloat16, with one thread, as a page has.
Medians of the rounds, lowest to highest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from machine import facts, headline, listening_for_noise  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from browser.chromium import launched, new_context  # noqa: E402
from browser.static_server import served  # noqa: E402
from tools.site import live_page, real_model  # noqa: E402

MEASURE = """
import json
import labengine

PROMPT = "Once upon a time, in a small village by the sea,"
QUESTIONS = ("The capital of France is", "Water boils because", "def fibonacci(n):", "My name is", PROMPT)

def seconds(call):
    began = clock()
    call()
    return clock() - began

def lab(**more):
    return labengine.Lab("smollm2", num_blocks=64, block_size=16, max_num_batched_tokens=64, **SETTINGS, **more)

def speed(prompts):
    made = lab()
    for prompt in prompts:
        made.add(prompt, max_tokens=64, ignore_eos=True)
    made.step()
    rate = 63 * len(prompts) / seconds(made.run)
    made.close()
    return rate

def figures():
    made = lab()
    made.add(PROMPT, max_tokens=1)
    first = seconds(made.step)
    made.add(token_ids=[500 + 7 * number for number in range(512)], max_tokens=1)
    long = 512 / seconds(made.run)
    made.close()
    return {"first": first, "one": speed([PROMPT]), "five": speed(QUESTIONS), "long": long}

figures()
json.dumps(figures())
"""
IN_A_PAGE = """
import js
SETTINGS = {}
def clock():
    used = js.process.cpuUsage()
    return (used.user + used.system) / 1e6
"""
NATIVE = """
import torch
from time import process_time as clock
torch.set_num_threads(1)
SETTINGS = {"dtype": "DTYPE", "device": "cpu"}
"""
FIGURES = {"first": "s", "one": "tok/s", "five": "tok/s", "long": "tok/s"}


def in_a_page(site: Path, folder: Path) -> dict[str, float]:
    """Return the figures of Pyodide on Node."""
    (folder / "script.py").write_text(IN_A_PAGE + MEASURE, encoding="utf-8")
    (folder / "given.json").write_text("{}", encoding="utf-8")
    script = ROOT / "tests" / "live_page" / "real_model.js"
    files = [site / "pyodide", site / "labengine.zip", site / "model" / "kernels.wasm", real_model.gguf()]
    command = [sys.executable, "-m", "tools.node", "node", str(script), *map(str, files)]
    command += [str(folder / "script.py"), str(folder / "given.json")]
    return _last_line(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def native(dtype: str) -> dict[str, float]:
    """Return the figures of the native engine, in a process of its own."""
    lines = MEASURE.strip().splitlines()
    code = "\n".join([NATIVE.replace("DTYPE", dtype), *lines[:-1], f"print({lines[-1]})"])
    return _last_line(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def _last_line(printed: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(printed.strip().splitlines()[-1])
    return found


IS_REAL = "() => new URLSearchParams(location.search).get('model') === 'smollm2'"
WATCH = """
new MutationObserver(() => {
  const words = document.getElementById("model-state")?.textContent ?? "";
  if (words && !window.began) window.began = performance.now();
  if (!words && window.began) window.loaded ??= (performance.now() - window.began) / 1000;
}).observe(document, { subtree: true, childList: true });
"""


def loading_times(browser: Browser, address: str) -> tuple[float, float]:
    """Return the seconds from the click to the session, and from the first news to the end of loading when kept."""
    with new_context(browser) as context:
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector('#lab[data-state="live"]')
        began = perf_counter()
        page.locator("#real-model").click()
        page.wait_for_function(IS_REAL)
        fetched = perf_counter() - began
        again = context.new_page()
        again.add_init_script(WATCH)
        again.goto(page.url)
        again.wait_for_function("() => window.loaded")
        return fetched, float(again.evaluate("() => window.loaded"))


def line(name: str, unit: str, values: list[float]) -> str:
    """Return a figure's line."""
    return f"{name:<24}{median(values):8.2f} {unit:<6}({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(headline(facts(1)))
    rounds: list[dict[str, Any]] = []
    with TemporaryDirectory() as place, listening_for_noise() as others:
        site = live_page.build(Path(place, "site"), [], real_model.write).parent
        with served(site) as address, launched() as browser:
            times = [loading_times(browser, address) for _ in range(arguments.rounds)]
        for _ in range(arguments.rounds):
            rounds.append({"page": in_a_page(site, Path(place)), **{of: native(of) for of in ("float32", "bfloat16")}})
    for name, values in zip(("fetched", "kept"), zip(*times, strict=True), strict=True):
        print(line(name, "s", list(values)))
    for where in ("page", "float32", "bfloat16"):
        for name, unit in FIGURES.items():
            print(line(f"{where}: {name}", unit, [one[where][name] for one in rounds]))
    print(f"others, and the browser, took {others.share or 0:.0%} of the cores")


if __name__ == "__main__":
    main()
