"""Look up what the bug pages say of lines in other engines: python -m tools.upstream_facts vllm=WHEELS/{version} ...

Each argument is NAME=PLACE: the folder that an unpacked wheel of {version} is in, or a clone, whose files are read at
the commit. Run by hand where these are; nothing of them is kept. Exits with 1 if a line is not what a page says. What
is at no place is listed as not looked up: read it by hand.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labengine.scenarios import SCENARIOS, bug
from labengine.scenarios.report import CodePassage


def passages() -> Iterator[tuple[str, CodePassage]]:
    """Yield a scenario's id and a line of upstream's code that it quotes, for all of them."""
    for id in SCENARIOS:
        for passage in bug(id).conclusion.passages:
            if isinstance(passage, CodePassage):
                yield id, passage


def found(passage: CodePassage, places: Mapping[str, str]) -> str:
    """Return 'as told', 'not there: ...', or 'not looked up' where the version is at no place."""
    text = _text(passage, places)
    if text is None:
        return "not looked up"
    lines = text.splitlines()
    if passage.line == 0:
        return "as told" if passage.text not in text else "not there: the text is in the file"
    if passage.line <= len(lines) and passage.text in lines[passage.line - 1]:
        return "as told"
    others = [number for number, line in enumerate(lines, 1) if passage.text in line]
    return f"not there: the text is in {f'lines {others}' if others else 'no line'}"


def _text(passage: CodePassage, places: Mapping[str, str]) -> str | None:
    name, version = passage.version.split(" ", 1)
    place = places.get(name)
    if place is None:
        return None
    if "{version}" in place:
        folder = Path(place.replace("{version}", version))
        return (folder / passage.file).read_text(encoding="utf-8") if folder.is_dir() else None
    line = ["git", "-C", place, "show", f"{version}:{passage.file}"]
    shown = subprocess.run(line, capture_output=True, text=True)
    return shown.stdout if shown.returncode == 0 else None


def main(arguments: Sequence[str]) -> int:
    """Print what does not hold, and how many lines were looked up."""
    if not all("=" in one for one in arguments):
        print(__doc__)
        return 2
    places = dict(one.split("=", 1) for one in arguments)
    counts: Counter[str] = Counter()
    for id, passage in passages():
        result = found(passage, places)
        counts[result.partition(":")[0]] += 1
        if result != "as told":
            print(f"{id}: {passage.source}: {result}")
    print(", ".join(f"{number} {result}" for result, number in sorted(counts.items())))
    return 1 if counts["not there"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
