"""The tap's list of wrapped methods and of known releases, held against the kept parameters of vLLM's releases."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import fake_vllm
from differential import vllm_signatures
from differential.vllm_signatures import others, refusals, signatures_in, table_row, wrapped_methods
from labengine_vllm.engine import GROUP_KINDS, KNOWN_VERSIONS, METHODS

RELEASES = vllm_signatures.read()
KNOWN = RELEASES["0.32.0"]


def releases_of(version: str) -> list[str]:
    return [release for release in RELEASES if release.startswith(version + ".")]


def test_the_kept_table_has_the_wrapped_methods_and_no_others() -> None:
    wanted = [f"{owner}.{name}" for owner, name, _ in wrapped_methods()]
    assert set(vllm_signatures.CLASSES) == set(METHODS) and len(wanted) == len(set(wanted)) > 40
    for release, signatures in RELEASES.items():
        assert list(signatures) == wanted, f"{release}: record again with tests/record_vllm_signatures.py"


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_a_version_that_is_known_to_work_is_not_refused(version: str) -> None:
    assert releases_of(version), f"vLLM {version} is not in the kept table"
    for release in releases_of(version):
        assert refusals(RELEASES[release]) == {}


def test_a_release_that_lacks_a_method_is_refused_by_name() -> None:
    assert "BlockPool has no unpin_blocks" in refusals(RELEASES["0.29.0"]).values()
    assert "FreeKVCacheBlockQueue has no prepend_n" in refusals(RELEASES["0.20.0"]).values()
    changed = KNOWN | {"BlockPool.touch": ["groups", "blocks"]}
    assert list(refusals(changed).values()) == ["BlockPool.touch takes (groups, blocks), not (blocks, ...)"]
    assert others(changed, KNOWN) == {}


def test_the_page_has_the_kept_table(project_root: Path) -> None:
    page = (project_root / "docs" / "vllm.md").read_text()
    rows = [table_row(release, signatures, KNOWN) for release, signatures in RELEASES.items()]
    assert "\n".join(rows) in page


def test_parameters_are_read_as_python_reads_them() -> None:
    """Inherited methods too: the fake scheduler has the classes under its own names."""
    source = inspect.getsource(fake_vllm)
    renamed = {"FakeScheduler": "Scheduler", "FakeQueue": "FreeKVCacheBlockQueue", "FakePool": "BlockPool"}
    for own, name in renamed.items():
        source = source.replace(own, name)
    found = signatures_in([source + "\nclass AsyncScheduler(Scheduler): ..."])
    for own, name in renamed.items():
        methods = [method for owner, method, _ in wrapped_methods() if owner == name]
        assert methods
        for method in methods:
            parameters = [*inspect.signature(getattr(getattr(fake_vllm, own), method)).parameters][1:]
            assert found[f"{name}.{method}"] == parameters
    assert found["AsyncScheduler.schedule"] == found["Scheduler.schedule"]
    assert all(found[f"{group}.free"] is not None for group in GROUP_KINDS if hasattr(fake_vllm, group))
    assert found["KVCacheManager.allocate_slots"] is None
