"""Live: two releases of vLLM, and a checkout beside the installed one.

LABENGINE_VLLM_PYTHON=vllm/bin/python LABENGINE_VLLM_030_PYTHON=vllm30/bin/python pytest THIS_FILE
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import labengine
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from labengine.__main__ import main
from labengine.driven.model import DrivenModel
from labengine.driven.process import DrivenEngine
from labengine.events import BlockFreed
from labengine.finder.engines.scopes import vllm_scopes
from labengine.finder.engines.search import find_in_engine

OTHER, OTHER_VERSION = "LABENGINE_VLLM_030_PYTHON", "0.30"
"""Environment variable that names the interpreter of the older release, and that release."""

FREED, BRANCH = "for block in ordered_blocks:\n            if block.pool", "for block in [*ordered_blocks][::-1]:"
PROMPT = "once upon a time there was a block of a table"


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of the newer release."""
    return named_interpreter() or pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}")


@pytest.fixture(scope="module")
def branch(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with nothing compiled, whose blocks are freed in the reverse order."""
    found = "import importlib.util; print(importlib.util.find_spec('vllm').submodule_search_locations[0])"
    installed = Path(subprocess.run([python, "-c", found], capture_output=True, text=True, check=True).stdout.strip())
    folder = tmp_path_factory.mktemp("branch")
    _link_all(installed, folder / "vllm", "v1/core/block_pool.py")
    text = (installed / "v1/core/block_pool.py").read_text()
    assert text.count(FREED) == 1
    (folder / "vllm/v1/core/block_pool.py").write_text(
        text.replace(FREED, FREED.replace("for block in ordered_blocks:", BRANCH))
    )
    return folder


def _link_all(installed: Path, folder: Path, but: str) -> None:
    """Fill a folder with links to what is installed, without one file, compiled files and vLLM's version."""
    folder.mkdir()
    own, _, rest = but.partition("/")
    for one in installed.iterdir():
        if one.name == own and rest:
            _link_all(one, folder / one.name, rest)
        elif one.name not in (own, "_version.py", "__pycache__") and one.suffix != ".so":
            (folder / one.name).symlink_to(one)


@pytest.mark.timeout(600)
def test_a_branch_runs_beside_the_installed_release(
    python: str, branch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"num_blocks": 8, "block_size": 4}
    with (
        labengine.drive("vllm", python, **sizes) as one,
        labengine.drive("vllm", python, branch, **sizes) as other,
        labengine.compare(one, other) as comparison,
    ):
        comparison.add(PROMPT, max_tokens=2)
        comparison.run()
        difference, why, model = comparison.first_difference(), other.why(block=1), other.session.model
        assert isinstance(model, DrivenModel)
        assert model.described("BlockPool.free_blocks")["file"].startswith(str(branch))
        assert f" in {branch}, driven with {python}" in other.status()["engine"]
    assert difference is not None
    assert isinstance(difference.left, BlockFreed) and isinstance(difference.right, BlockFreed)
    place = "BlockPool.free_blocks (vllm/v1/core/block_pool.py, line "
    assert all(reason.startswith(place) for reason in difference.reasons) and place in " ".join(str(why).split())
    assert main(["drive", "vllm", "--python", python, "--against", str(branch), "--workloads", "20"]) == 1
    assert capsys.readouterr().out.count("BlockPool.free_blocks, vllm/v1/core/block_pool.py, line ") == 2


@pytest.mark.timeout(600)
def test_two_releases_differ_in_a_long_prompt_that_is_alone(python: str) -> None:
    older = os.environ.get(OTHER) or pytest.skip(f"set {OTHER} to an interpreter with vLLM {OTHER_VERSION}")
    settings = {"num_blocks": 16, "block_size": 4, "max_num_batched_tokens": 16, "long_prefill_token_threshold": 4}
    with (
        labengine.drive("vllm", older, **settings) as one,
        labengine.drive("vllm", python, **settings) as other,
        labengine.compare(one, other) as comparison,
    ):
        assert one.title.startswith(f"vllm {OTHER_VERSION}.")
        comparison.add(PROMPT, max_tokens=2)
        comparison.run()
        difference, why = str(comparison.first_difference()), " ".join(str(comparison.why()).split())
    assert f"This step computes 4 tokens of A for vllm {OTHER_VERSION}." in difference
    for release in (OTHER_VERSION, VERSION):
        assert f"vllm {release}." in difference
        assert f"vllm {release}." in why.partition("Scheduler.schedule (vllm/v1/core/sched/scheduler.py, line ")[2]


@pytest.mark.timeout(600)
def test_a_release_equals_itself_in_another_process(python: str) -> None:
    """Also where vLLM goes through a set of names, whose order differs between processes."""
    sends = [scope for scope in vllm_scopes() if scope.transfers and scope.transfers[1]]
    found = find_in_engine("vllm", python, against=DrivenEngine("vllm", python), max_workloads=60, scopes=sends)
    assert not found and found.num_conforming == 60, found
