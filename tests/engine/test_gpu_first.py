"""`python benchmarks/gpu --first`, as far as it goes without a GPU: its stages, and what is brought along."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import first
import known_models
import preparation
import probe
from brought import Brought, find_brought
from stages import Budget, Journal, Run, Stage, python

from engine.reference import transformers_logits
from labengine import model_path
from labengine.system.extras import EXTRAS
from stage_runs import run_in, verdicts

STAGES = [*first.side_by_side(Brought()), *first.alone(Brought(), Path("out"))]
OF_TESTS = [stage for stage in STAGES if "pytest" in stage.command]


def test_figures_come_last() -> None:
    names = first.names()
    assert names[:3] == [f"kernels: {name}" for name in ("attention", "ops", "models")]
    assert names[-2:] == ["figures: limits", "figures: attention"]
    assert len({*names}) == len(names)


def test_every_case_of_a_kernel_has_a_stage() -> None:
    """Those of graphs and pieces are interpreted: test_cuda.py has real ones."""
    used = {Path(word).name for stage in OF_TESTS if stage.name.startswith("kernels") for word in stage.command}
    found = {path.name for path in (ROOT / "tests" / "engine").glob("triton_*_cases.py")}
    assert found - used == {"triton_graphs_cases.py", "triton_pieces_cases.py"}


def test_every_test_of_a_gpu_has_a_stage() -> None:
    """All but those of test_triton.py, which runs the cases in processes of their own.

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


def test_a_missing_sanitizer_and_a_missing_model_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first, "executable", lambda name: None)
    found = {stage.name: stage.lacks for stage in first.side_by_side(Brought(models=(Path("models/smollm2"),)))}
    assert {name: reason for name, reason in found.items() if reason} == {
        "memcheck": "compute-sanitizer is not installed",
        "hybrid model": "gemma3-270m was not brought along",
    }


def test_without_xdist_tests_run_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first.tests("x.py", workers=4)[-3:] == ("-n", "4", "x.py")
    monkeypatch.setattr(first, "find_spec", lambda name: None)
    assert first.tests("x.py", workers=4) == (*first.PYTEST, "x.py")


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


def test_the_commands_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    assert "one of the arguments --first --peers is required" in command(folder=tmp_path).stderr
    refused = command("--first", "--only", "wide tables;kernel", folder=tmp_path)
    assert refused.returncode == 2 and "not kernel" in refused.stderr and "wide tables" in refused.stderr
    refused = command("--peers", "--only", "vLLM", folder=tmp_path)
    assert "labengine, blocks of 16; nano-vLLM;" in refused.stderr and "not vLLM" in refused.stderr


# -- the machine -------------------------------------------------------------------------------------------------------


def test_missing_packages_are_named() -> None:
    def version_of(package: str) -> str:
        if package in ("gguf", "pydantic", "pytest-xdist"):
            raise PackageNotFoundError(package)
        return "1.0"

    found = probe.versions(["torch", "gguf", "pydantic", "pytest-xdist"], version_of)
    words = "torch 1.0; MISSING: pytest-xdist; brought along: gguf, pydantic"
    assert probe.described(found, {"gguf", "pydantic", "numpy"}) == words


def test_the_probe_asks_for_all_that_the_engine_needs() -> None:
    assert {name.replace("_", "-") for name in EXTRAS["models"]} <= {*probe.NEEDED}


def test_what_cannot_be_imported_is_named() -> None:
    good, bad = probe.imports(["json", "no_such_module"])
    assert good.startswith("import json: ")
    assert bad == "import no_such_module: FAILED: ModuleNotFoundError: No module named 'no_such_module'"


def test_the_machine_is_described_without_a_gpu() -> None:
    lines = list(probe.machine())
    assert lines[0].startswith("Python 3.") and "compute-sanitizer: " in lines[1]


# -- what is brought along ---------------------------------------------------------------------------------------------


def write_wheel(folder: Path, name: str, content: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", content)
        records = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                   "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "RECORD": ""}  # fmt: skip
        for file, text in records.items():
            wheel.writestr(f"{name}-1.0.dist-info/{file}", text)


def test_a_folder_that_is_not_there_brings_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = find_brought(tmp_path / "none")
    assert brought == Brought() and len(list(brought.missing())) == 5
    assert [stage.name for stage in preparation.preparation(brought)] == ["probe"]
    monkeypatch.setenv("PYTHONPATH", "earlier")
    environment = brought.environment()
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(ROOT / "widgets"), "earlier"]
    assert not {"LABENGINE_CACHE", "PIP_NO_INDEX", "TRITON_CACHE_DIR"} & {*environment}
    assert brought.fa3_environment() == {}
    monkeypatch.delenv("PYTHONPATH")
    assert environment["PYTHONPATH"].endswith("earlier") and brought.environment()["PYTHONPATH"].endswith("widgets")


def test_parts_that_are_brought_along_are_used(tmp_path: Path) -> None:
    write_wheel(tmp_path / "whl", "typing_inspection", "")
    (tmp_path / "models" / "smollm2").mkdir(parents=True)
    (tmp_path / "fa3").mkdir()
    (tmp_path / "fa3" / "_vllm_fa3_C.abi3.so.xz").write_bytes(lzma.compress(b"library"))
    brought = find_brought(tmp_path, work=tmp_path / "work")
    assert brought.packages() == {"typing-inspection"} and brought.model_names() == ["smollm2"]
    assert [line.partition(":")[0] for line in brought.missing()] == ["no nano/", "no triton_cache.tar.xz"]
    work = tmp_path / "work"
    site, fa3 = str(work / "site"), str(ROOT / "benchmarks" / "gpu" / "fa3")
    environment, for_fa3 = brought.environment(), brought.fa3_environment()
    assert environment["LABENGINE_CACHE"] == str(work / "models") and environment["PIP_NO_INDEX"] == "1"
    assert site in environment["PYTHONPATH"].split(os.pathsep) and fa3 not in environment["PYTHONPATH"]
    assert for_fa3["PYTHONPATH"].split(os.pathsep)[2:4] == [site, fa3]
    assert for_fa3["LABENGINE_FA3_LIBRARY"] == str(work / "_vllm_fa3_C.abi3.so")


def test_a_checkout_and_a_library_come_from_anywhere(tmp_path: Path) -> None:
    library, checkout = tmp_path / "library.so", tmp_path / "checkout"
    brought = find_brought(tmp_path / "none", str(checkout), str(library))
    assert (brought.nano, brought.fa3_library) == (checkout, library)
    packed = find_brought(tmp_path / "none", fa3=f"{library}.xz", work=tmp_path / "work")
    assert packed.fa3_library == tmp_path / "work" / "_vllm_fa3_C.abi3.so"


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


def test_a_broken_archive_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "library.so.xz").write_bytes(b"no archive")
    target = tmp_path / "library.so"
    stage = Stage("unpack", python("unpack.py", "fa3", tmp_path / "library.so.xz", target), 100)
    assert run_in(tmp_path).alone(stage).verdict == "failed (1)" and not target.exists()


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


def test_norms_with_random_weights_differ(tiny_model: Callable[..., Path]) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model("qwen3"))
    known_models.scale_logits(model)
    norms = [weight for name, weight in model.named_parameters() if "norm" in name]
    assert all(norm.std() > 0.05 for norm in norms) and not torch.equal(norms[0], norms[1])
