"""A run whose letters depend on the order of its events, and which letters a text or a page gives."""

from __future__ import annotations

import re

from labengine import Lab

MAPPED = re.compile(r"(\w+)->\(?#(\d+)")
BEADS = """() => [...document.querySelectorAll(".le-map-bead")].filter((one) => one.dataset.hash).flatMap((one) => {
  const letter = one.querySelector(".le-map-letter").textContent;
  return [...one.querySelectorAll(".le-map-block")].map((block) => [letter, block.dataset.block]);
})"""


def two_that_part() -> Lab:
    """Equal prompts of two blocks, other answers: what B's first answer fills is new before what A's second does."""
    lab = Lab("simulated", num_blocks=12, block_size=4)
    for _ in range(2):
        lab.add(token_ids=list(range(8)), max_tokens=14)
    lab.run()
    return lab


def letters_in(text: str) -> dict[str, str]:
    """Block to letter, by the line of the map."""
    [line] = [line for line in text.splitlines() if line.startswith("map ")]
    return {block: letter for letter, block in MAPPED.findall(line)}
