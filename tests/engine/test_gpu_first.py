"""`python benchmarks/gpu --first`, as far as it works without a GPU: its stages, and the folder brought along."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import first
import known_models
import preparation
from brought import Brought, find_brought
from stages import Budget, Journal, Run, Stage

from engine.reference import transformers_logits
from labengine import model_path
from stage_runs import run_in, verdicts

STAGES = [*first.side_by_side(Brought()), *first.alone(Brought(), Path("out"))]
OF_TESTS = [stage for stage in STAGES if "pytest" in stage.command]


def test_every_case_of_a_kernel_has_a_stage() -> None:
    """Those of graphs and pieces are interpreted: test_cuda.py has real ones."""
    used = {Path(word).name for stage in OF_TESTS if stage.name.startswith("kernels") for word in stage.command}
    found = {path.name for path in (ROOT / "tests" / "engine").glob("triton_*_cases.py")}
    assert found - used == {"triton_graphs_cases.py", "triton_pieces_cases.py"}


def test_every_test_of_a_gpu_has_a_stage() -> None:
    """All but those of test_triton.py, which runs the cases in separate processes.

    FA3 serves those that compare backends, and the figures.
    """
    used = {word for stage in OF_TESTS for word in stage.command}
    marked = re.compile(r"^(@pytest\.mark\.gpu|pytestmark = pytest\.mark\.gpu)$", re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if marked.search(path.read_text(encoding="utf-8"))
    }
    assert found - used == {"tests/engine/test_triton.py"}
    brought = Brought(fa3=Path("library.so"))
    stages = [*first.side_by_side(brought), *first.alone(brought, Path("out"))]
    by_fa3 = [stage.name for stage in stages if "LABENGINE_FA3_LIBRARY" in stage.environment]
    assert by_fa3 == ["labs and graphs", "auto and memory", "figures: attention"]


def test_every_word_that_selects_tests_selects_one() -> None:
    """And a test of test_cuda.py that shares the card in one stage has it alone in no other one."""
    for stage in OF_TESTS:
        words = stage.command[stage.command.index("-k") + 1].split() if "-k" in stage.command else []
        files = [word for word in stage.command if word.endswith(".py")]
        names = "\n".join(re.findall(r"^def (test_\w+)", "\n".join((ROOT / file).read_text() for file in files), re.M))
        assert [word for word in words if word not in ("or", "and", "not") and word not in names] == [], stage.name


@pytest.mark.sweep
@pytest.mark.parametrize("name", [stage.name for stage in OF_TESTS])
def test_a_stages_tests_are_collected(name: str) -> None:
    (stage,) = [stage for stage in OF_TESTS if stage.name == name]
    command = [*stage.command[stage.command.index(sys.executable) :], "--collect-only", "-q"]
    if "-n" in command:
        del command[command.index("-n") : command.index("-n") + 2]
    environment = {**os.environ, **Brought().environment(), "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_all_stages_run_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need the card alone come after all others."""

    def fails(name: str, *words: object) -> Stage:
        return Stage(name, (sys.executable, "-c", f"print({name!r}); raise SystemExit(1)"), 100)

    monkeypatch.setattr(first, "prepare", lambda run, brought, *models: brought)
    monkeypatch.setattr(first, "side_by_side", lambda brought: [fails("kernels"), fails("labs")])
    monkeypatch.setattr(first, "alone", lambda brought, out: [fails("memory"), fails("figures")])
    run = run_in(tmp_path)
    first.run_first(run, Brought())
    names = [outcome.stage for outcome in run.journal.outcomes]
    assert {*names[:2]} == {"kernels", "labs"} and names[2:] == ["memory", "figures"]
    assert {*verdicts(run.journal.outcomes).values()} == {"failed (1)"}
    only = run_in(tmp_path)
    first.run_first(only, Brought(), {"labs", "figures"})
    assert [outcome.stage for outcome in only.journal.outcomes] == ["labs", "figures"]


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as on a bare machine: in another folder, nothing on the path of modules."""
    environment = {**os.environ, "PYTHONPATH": "", "OUT": str(folder / "out"), "TMPDIR": str(folder)}
    line = [sys.executable, str(ROOT / "benchmarks" / "gpu"), *words, "--brought", str(folder / "none")]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("option", "last"), [("--first", "figures: attention"), ("--peers", "profile of 256")])
def test_the_commands_end_with_their_budget(option: str, last: str, tmp_path: Path) -> None:
    done = command(option, "--budget", "0", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch " in done.stdout.splitlines()[0] and "no whl/*.whl" in done.stdout
    assert f"{last}" in done.stdout and "| not run |" in done.stdout and "passed" not in done.stdout
    assert (tmp_path / "out" / "verdicts.jsonl").read_text().count('"not run"') > 5


# -- what is brought along ---------------------------------------------------------------------------------------------


def write_wheel(folder: Path, name: str, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        records = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                   "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "RECORD": ""}  # fmt: skip
        for file, text in records.items():
            wheel.writestr(f"{name}-1.0.dist-info/{file}", text)


def test_wheels_are_installed_and_archives_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels are there before anything else runs, and nothing runs by an FA3 that does not load."""
    write_wheel(tmp_path / "whl", "brought_along", "WORDS = 'from the wheel'")
    (tmp_path / "fa3").mkdir()
    (tmp_path / "fa3" / "_vllm_fa3_C.abi3.so.xz").write_bytes(lzma.compress(b"library"))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "one.cubin").write_bytes(b"kernel")
    with tarfile.open(tmp_path / "triton_cache.tar.xz", "w:xz") as packed:
        packed.add(tmp_path / "kernels", "lab_triton_cache")
    monkeypatch.setattr(preparation, "TRITON_CACHE", tmp_path / "temp" / "lab_triton_cache")
    brought = find_brought(tmp_path, work=tmp_path / "work")
    kept = {stage.name: stage for stage in preparation.preparation(brought)}
    monkeypatch.setattr(preparation, "preparation", lambda brought: [s for n, s in kept.items() if n != "probe"])
    run = Run(Journal(tmp_path / "out"), Budget(), brought.environment(), brought.work)
    code = (sys.executable, "-c", "import brought_along; print(brought_along.WORDS)")
    usable = preparation.prepare(run, brought, Stage("import", code, 100))
    assert run.journal.outcomes[0].stage == "prepare: wheels"
    assert verdicts(run.journal.outcomes) == {
        "prepare: wheels": "passed", "prepare: FA3": "failed (1)", "prepare: kernels": "passed", "import": "passed",
    }  # fmt: skip
    assert brought.fa3_library is not None and brought.fa3_library.read_bytes() == b"library"
    assert usable == replace(brought, fa3=None)
    assert (tmp_path / "temp" / "lab_triton_cache" / "one.cubin").read_bytes() == b"kernel"


@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m"])
def test_a_known_model_with_random_weights(
    name: str, tiny_llama: Path, tiny_gemma: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found under its name, and its logits are as large as a trained model's."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    config = (tiny_gemma if name.startswith("gemma") else tiny_llama) / "config.json"
    (tmp_path / "files" / "config.json").write_bytes(config.read_bytes())
    made = known_models.put_into_cache(name, tmp_path / "files")
    assert made == model_path(name) == known_models.put_into_cache(name, tmp_path / "files")
    logits = transformers_logits(made)(list(range(5, 69)))
    assert 0.8 * known_models.LARGEST_LOGIT < logits.abs().max() < 1.2 * known_models.LARGEST_LOGIT
