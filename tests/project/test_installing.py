"""How to get labengine: the README begins in plain words, and its commands and docs/installing.md's exist."""

from __future__ import annotations

import re
import tomllib

from checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OPENING = README.partition("\n## ")[0]
"""The first screen."""


def test_a_block_is_explained_before_the_word_is_used() -> None:
    before, _, after = OPENING.partition("**KV block**")
    assert after and not re.search(r"\bblocks?\b", before)
    assert re.search(r"pieces? of equal size", before) and "**KV cache**" in before
    assert len(before.split("\n\n")[1]) < 250, "the first paragraph is a sentence: what it is, and for whom"


def test_the_words_of_the_picture_are_told_below_it() -> None:
    alt = re.findall(r'alt="([^"]+)"', OPENING)[0]
    below = OPENING.partition("</picture>")[2].partition("```")[0]
    assert {"blocks", "merged", "lost"} <= {*re.findall(r"\*\*([^*]+)\*\*", below)}
    assert "hatched" in alt and "hatched" in below.lower()


def test_it_is_fetched_before_it_is_run() -> None:
    commands = OPENING.split("```")[1].strip().splitlines()
    assert [line.partition("  ")[0].split()[:2] for line in commands] == [
        ["git", "clone"],
        ["cd", "labengine"],
        ["make", "lab"],
        ["make", "demo"],
    ]


def test_the_commands_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for text in (README, PAGE):
        for target in re.findall(r"(?:`|^)make (\w+)", text, re.MULTILINE):
            assert re.search(rf"^{target}(?: \w+)*:", MAKEFILE, re.MULTILINE), target
        for names in re.findall(r'-e "\.\[([\w,]+)\]"', text):
            assert {*names.split(",")} <= extras.keys()
        for variable in re.findall(r"`make \w+ ([A-Z_]+)=", text):
            assert f"#   {variable}=" in MAKEFILE
    assert "(docs/installing.md)" in README
