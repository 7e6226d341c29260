"""docs/add-an-event.md, followed: a new kind, written by hand where the page says, is known everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

KIND = '''@dataclass(frozen=True, slots=True)
class BlockSplit(Event):
    """A block's second half was given to another block, which leaves the free queue."""

    block_id: int
    into_block_id: int
    ref_count: int

    topic = "block"
    decided_by = {"": ("BlockPool.touch",)}
    in_vllm = {"": InVllm("pool", "split", "A block is split.")}
'''
BEFORE = "@dataclass(frozen=True, slots=True)\nclass HashesMoved("
FOLDED = """    def _block_split(self, event: ev.BlockSplit) -> None:
        self._known(event.block_id)
        self._leave_queue(event.into_block_id)
        self._count(event.into_block_id, event.ref_count, 1)

"""
HANDLED = """  BlockSplit(scene, [, block, into, refCount]) {
    known(scene, block);
    leaveQueue(scene, into);
    count(scene, into, refCount);
  },

"""
EDITS = {
    "labengine/events/blocks.py": ((BEFORE, f"{KIND}\n\n{BEFORE}"),),
    "labengine/record/fold.py": (("    def _hashes_moved(", f"{FOLDED}    def _hashes_moved("),),
    "widgets/browser/model/fold.ts": (("  HashesMoved(", f"{HANDLED}  HashesMoved("),),
    "widgets/labengine_widgets/words/phrases.json": (
        ('    "HashesMoved":', '    "BlockSplit": "{block} is split into {into_block}.",\n    "HashesMoved":'),
    ),
}
"""Lines written by hand, by file. The core's method, the tap's observer and Why? are not tested here."""
TRIED = """
from labengine import events as ev
from labengine.core.editions import LABENGINE
from labengine.core.seams import decider
from labengine.record.files import codec
from labengine.record.fold import Fold
from labengine.vllm.stream.header import REASONS
from labengine_vllm.kinds import BLOCK_SPLIT, DECIDED_BY, KINDS
from labengine_widgets.words.phrases import phrase

event, fold = ev.BlockSplit(0, 1, 1), Fold()
for one in (ev.EngineStarted(4, (("full", 2, None),), "labengine"), event):
    fold.apply(one)
assert fold.ref_counts == [0, 1, 0, 0] and list(fold.free_queue) == [0, 2, 3] and not fold.num_impossible
assert list(codec.rows([event])[0])[1:] == [0, 1, 1]
assert phrase(event) == "#0 is split into #1."
assert str(decider(LABENGINE, event)).endswith(".touch") and REASONS["BlockSplit"] == "A block is split."
assert KINDS[BLOCK_SPLIT] == ("BlockSplit", "block_id", "into_block_id", "ref_count")
assert DECIDED_BY["BlockSplit"] == ("pool", "split")
"""


def test_a_new_kind_of_event(tmp_path: Path, project_root: Path) -> None:
    page = (project_root / "docs" / "add-an-event.md").read_text(encoding="utf-8")
    assert max(map(int, re.findall(r"^(\d+)\. ", page, re.MULTILINE))) <= 8
    assert all(path in page for path in EDITS)
    for package in ("labengine", "widgets", "vllm_tap", "tools"):
        shutil.copytree(project_root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for path, edits in EDITS.items():
        text = (tmp_path / path).read_text(encoding="utf-8")
        for old, new in edits:
            assert text.count(old) == 1, (path, old)
            text = text.replace(old, new)
        (tmp_path / path).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((".", "widgets", "vllm_tap"))}
    for arguments in (["-m", "tools.event_types"], ["-c", TRIED]):
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environment, check=True)
    rows = (tmp_path / "widgets/browser/model/event_rows.ts").read_text(encoding="utf-8")
    assert 'BlockSplit: ["block_id", "into_block_id", "ref_count"]' in rows and "  BlockSplit: 2," in rows
