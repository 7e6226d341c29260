"""Only the two folds interpret events about blocks. Everybody else reads the state after an event, but for those here.

Those read the events themselves because their subject is an event and no state: its sentence, its cause, its place in a
story, whether it may come at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from labengine import events as ev

KINDS = {kind.__name__ for kind in ev.EVENT_KINDS if kind.topic == "block"}
READERS = {
    "labengine/record/fold.py": "the fold",
    "widgets/browser/model/fold.ts": "the browser's fold",
    "labengine/core/": "decides and emits them",
    "labengine/vllm/conformance/": "compares a scheduler's events with an edition's, one by one",
    "labengine/vllm/stream/written.py": "makes what a stream does not say: how states are copied and advanced",
    "labengine/check/": "its rules are about events: what may follow what, and who is to blame",
    "labengine/record/files/sequence.py": "refuses a file whose rows cannot follow each other",
    "labengine/record/figures.py": "counts those that gave up cached content for another request",
    "labengine/finder/scopes.py": "names events at which a step may end",
    "labengine/finder/tally.py": "a merge is a decision",
    "labengine/session/step_text.py": "counts the events of a step in words",
    "labengine/prefix_doctor/look_ups/": "asks when a content came and by which event it went",
    "labengine/prefix_doctor/report/evictions.py": "pairs an eviction with the event that gives the block away",
    "labengine/scenarios/": "finds the events at which its own story stops",
    "labengine/course/": "asks about an event, and shows the one that an answer gets wrong",
    "tools/event_types.py": "which fields a stream of vLLM leaves out",
    "tools/site/opening.py": "has its own sentences on a step",
    "widgets/labengine_widgets/compare/alignment.py": "pairs the events of two recordings by their subjects",
    "widgets/labengine_widgets/why/": "an answer is a chain of events",
    "widgets/labengine_widgets/words/scene.py": "which allocations took a block from elsewhere than the queue's head",
    "widgets/labengine_widgets/words/event_runs.py": "which neighbours share a sentence",
    "widgets/labengine_widgets/words/sentences.py": "a sentence for each",
    "widgets/labengine_widgets/words/prefix_tree.py": "a sentence for each",
    "widgets/labengine_widgets/words/filling.py": "the table entry that a block's content came from outlives the entry",
    "widgets/browser/model/alarms.ts": "what ends a block's wrong name",
    "widgets/browser/model/forgetting.ts": "which hashes kept rows still name",
    "widgets/browser/model/plain_words.ts": "a sentence for a first visitor",
    "widgets/browser/views/why/code.ts": "the seam of an event's variant",
    "widgets/browser/views/map/map.ts": "when a key came",
    "widgets/browser/views/queue/": "how a block takes or leaves its seat, and why it is there",
}
"""Files and packages, each with its reason."""
TABLES = {
    "labengine/events/blocks.py",
    "labengine/events/prefix_tree.py",
    "widgets/browser/model/event_rows.ts",
    "vllm_tap/labengine_vllm/kinds.py",
}
"""Names of events, and files generated from them."""
PACKAGES = ("labengine", "widgets/labengine_widgets", "widgets/browser", "widgets/live_page", "vllm_tap", "tools")
QUOTED = re.compile(rf'"({"|".join(KINDS)})"|^  ({"|".join(KINDS)})[(:]', re.MULTILINE)


def readers(root: Path) -> Iterator[str]:
    """Yield the files whose code, not only their text, names a kind of event about blocks."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".ts") and "static" not in path.parts and names_one(path):
                yield path.relative_to(root).as_posix()


def names_one(path: Path) -> bool:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ts":
        return QUOTED.search(re.sub("//.*", "", source)) is not None
    for node in ast.walk(ast.parse(source)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in KINDS or (isinstance(node, ast.Constant) and node.value in KINDS):
            return True
    return False


def place_of(path: str) -> str | None:
    return next((place for place in READERS if path == place or (place.endswith("/") and path.startswith(place))), None)


def test_who_reads_events_about_blocks_is_listed_with_a_reason(project_root: Path) -> None:
    found = [path for path in readers(project_root) if path not in TABLES]
    assert [path for path in found if place_of(path) is None] == []
    assert {place_of(path) for path in found} == {*READERS}, "a reader that reads them no longer"


def test_few_files_name_a_kind_whose_fields_say_what_they_are(project_root: Path) -> None:
    """Motion, blame, pairs of runs and the order of rows follow from the fields' types: labengine/events/fields.py."""
    packages = ("labengine", "widgets/labengine_widgets", "widgets/browser")
    paths = (path for name in packages for end in ("py", "ts") for path in (project_root / name).rglob(f"*.{end}"))
    named = [path for path in paths if "BlockMerged" in path.read_text(encoding="utf-8")]
    assert len(named) <= 16, named
