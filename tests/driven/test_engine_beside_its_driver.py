"""An engine in a module beside its driver file: scripts of it, and other copies of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.driven.drive import driven
from labengine.driven.played_script import PlayedScript, played
from labengine.finder.engines.search import find_in_engine

OWN = Path(__file__).with_name("own_engine.py").read_text()
LIFO = "self.free.appendleft(block)"
LEAK = """
def release(self, request):
    for block in request.blocks[1:]:
        self.ref_counts[block] -= 1
        self.free.append(block)
"""


def engine_in(folder: Path, freeing: str = "self.free.append(block)") -> Path:
    """Write the engine of own_engine.py into a folder, with another way to free a block."""
    folder.mkdir(exist_ok=True)
    parts, _, _ = OWN.replace("self.free.append(block)", freeing).partition("class Core:")
    (folder / "tiny_parts.py").write_text(parts)
    return folder


def driver_in(folder: Path) -> str:
    """The path of a driver file that imports the engine."""
    _, _, core = OWN.partition("class Core:")
    head = "from tiny_parts import Request, Scheduler\n\nVERSION = '1.0'\nSUPPORTS = ('abort', 'reset')\n"
    file = folder / "tiny.py"
    file.write_text(f"{head}PACKAGES = ('tiny_parts',)\n\n\nclass Core:{core}")
    return str(file)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A driver file with its engine beside it."""
    return driver_in(engine_in(tmp_path / "beside"))


def one_file(folder: Path) -> str:
    """A driver file with its engine in it, which uses a name of the tools that replace methods."""
    file = folder / "one.py"
    file.write_text(
        f"{OWN}\n\ndef replace(*values):\n    raise ValueError\n\n\nif __name__ == '__main__':\n    replace()\n"
    )
    return str(file)


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_test_runs_anywhere_and_fails_for_the_patch(is_beside: bool, tiny: str, tmp_path: Path) -> None:
    with labengine.drive(tiny if is_beside else one_file(tmp_path), num_blocks=8, block_size=4) as lab:
        lab.add(token_ids=range(9), max_tokens=2)
        lab.run()
        with lab.rerun(labengine.Patch("Scheduler.release", LEAK)) as comparison:
            script = comparison.to_test()
    assert "(right) fails here: SYMPTOM: block 0 has ref_count 1" in script
    (run,) = played([(driven("nano-vllm", None, None), script)])
    assert run.is_red and run.said.startswith("SYMPTOM: block 0 has ref_count 1")


def test_a_finding_has_a_script_that_runs_anywhere(tmp_path: Path) -> None:
    file = driver_in(engine_in(tmp_path / "beside", "self.free.append(block + (block == 5))"))
    (finding,) = find_in_engine(file, driven(file, None, None).python, max_workloads=60).findings
    (run,) = played([(driven("nano-vllm", None, None), finding.to_script())])
    assert run.is_red and run.said.startswith("SYMPTOM")


def test_a_script_whose_change_cannot_be_made_is_not_red() -> None:
    run = PlayedScript(1, "", "Traceback\nLookupError: the engine has no method 'A.b'\n")
    assert not run.is_red and run.said == "the engine does not start (LookupError: the engine has no method 'A.b')"


def against(file: str, *more: str) -> int:
    return main(["drive", file, "--workloads", "10", "--against", *more])


def test_another_folder_has_another_engine(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same, other = engine_in(tmp_path / "same"), engine_in(tmp_path / "other", LIFO)
    assert against(tiny, str(same)) == 0
    assert against(tiny, str(other)) == 1
    assert against(tiny, str(other), "--path", str(other)) == 0
    assert f"differs from tiny 1.0 ({other})" in capsys.readouterr().out
    assert against(tiny, str(tmp_path)) == 2
    assert f"{tmp_path} has no module that {tiny} imports" in capsys.readouterr().err


def test_another_driver_file_drives_another_engine(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = driver_in(engine_in(tmp_path / "other", LIFO))
    assert against(tiny, other) == 1
    assert f"tiny 1.0 ({tiny}) differs from tiny 1.0 ({other})" in capsys.readouterr().out
    less = tmp_path / "less.py"
    less.write_text(Path(tiny).read_text().replace("('abort', 'reset')", "('abort',)"))
    assert against(tiny, str(less)) == 2
    assert "have different SUPPORTS" in capsys.readouterr().err


def test_without_an_engine_beside_it_a_path_is_needed(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    file, folder = driver_in(tmp_path / "alone"), str(engine_in(tmp_path / "clone"))
    with pytest.raises(ConfigError, match="No module named 'tiny_parts'"):
        labengine.drive(file, num_blocks=8, block_size=4)
    with labengine.drive(file, path=folder, num_blocks=8, block_size=4) as lab:
        assert folder in lab.status()["engine"]
