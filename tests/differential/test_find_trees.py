"""Live: the finder on mini-sglang's and SGLang's own schedulers.

LABENGINE_SGLANG=unpacked-wheel LABENGINE_MINI_SGLANG=clone LABENGINE_SGLANG_PYTHON=python
pytest tests/differential/test_find_trees.py (see tree_process.py)
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from differential.tree_process import TESTS, UPSTREAM, named_folder, python
from labengine.finder.engines.finding import EngineSearch
from labengine.finder.engines.search import find_in_engine
from waiting import PATIENCE

CURE = str(TESTS / "differential" / "minisgl_142.py")

OLDEST_LAST = """
from minisgl.kvcache.radix_cache import RadixTreeNode

RadixTreeNode.__lt__ = lambda self, other: self.timestamp > other.timestamp
"""

NO_UNLOCK = """
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

UnifiedRadixCache.dec_lock_ref = lambda self, *arguments, **options: None
"""


def search(engine: str, num_workloads: int, **options: str | None) -> EngineSearch:
    """Search an engine that the environment names; skip without one."""
    folder = named_folder(engine)
    if folder is None:
        variable, _, version = UPSTREAM[engine]
        pytest.skip(f"set {variable} to the folder of {version}")
    found = find_in_engine(engine, python(), seconds=PATIENCE, max_workloads=num_workloads, checkout=folder, **options)
    print(found)
    return found


@pytest.mark.parametrize(
    ("edition", "patch", "is_found"),
    [
        ("mini-sglang+142", None, True),
        ("mini-sglang+142", CURE, False),
        ("mini-sglang", None, False),
        (None, None, True),
    ],
)
def test_freed_pages_in_a_table_are_found(
    edition: str | None, patch: str | None, is_found: bool, tmp_path: Path
) -> None:
    """Pull request 142: the pages of the second of two equal prompts are freed, and its row still names them."""
    found = search("mini-sglang", 100, edition=edition, patch=patch)
    assert bool(found) == is_found
    for finding in found.findings:
        assert (finding.kind, finding.finding.rule) == ("rule", "ref_count")
        assert len(finding.case.workload) == 2
        script = tmp_path / "script.py"
        script.write_text(finding.to_script())
        run = subprocess.run([python(), str(script)], capture_output=True, text=True, timeout=PATIENCE, env=os.environ)
        assert run.returncode == 1 and "SYMPTOM: block" in run.stderr


@pytest.mark.parametrize(
    ("engine", "edition", "patch", "place"),
    [
        ("mini-sglang", "mini-sglang", OLDEST_LAST, ("differs", "requests")),
        ("sglang", None, NO_UNLOCK, ("rule", "tree")),
    ],
)
def test_a_wrong_method_is_found(
    engine: str, edition: str | None, patch: str, place: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "patch.py"
    file.write_text(patch)
    (finding,) = search(engine, 300, edition=edition, patch=str(file)).findings
    assert (finding.kind, finding.finding.rule) == place


def test_sglang_does_as_its_edition() -> None:
    found = search("sglang", 100)
    assert not found and found.num_conforming == found.num_workloads
