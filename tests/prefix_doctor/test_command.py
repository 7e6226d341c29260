"""labengine doctor on a file of prompts, from the typed line to the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labengine
from labengine.__main__ import main

RULES = "Answer in one sentence, and name the shelf on which the book stands. " * 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Forty prompts with a clock before the rules, of two tenants on two replicas by turns."""
    found = tmp_path / "prompts.jsonl"
    prompts = (f"It is 09:{number:02d}. {RULES}Question {number * 37}?" for number in range(40))
    lines = ({"prompt": one, "tenant": "ab"[i % 2], "session": str(i % 4)} for i, one in enumerate(prompts))
    found.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return found


def test_the_cause_its_price_and_its_cure_are_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--blocks", "100", "--clock", "1000,0.01", "--price-per-hour", "3600", "--currency", "EUR"]
    assert main(["doctor", str(path), *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first = found["findings"][0]
    assert (found["schema"], first["kind"], first["num_prompts"]) == ("labengine.doctor/1", "clock", 39)
    assert first["price"]["money"] == pytest.approx(first["price"]["seconds"])
    assert first["cure"]["num_saved"] > 0.9 * first["num_lost"] > 1000
    assert first["cure"]["after"]["ttft_p95"] < first["cure"]["before"]["ttft_p95"]
    assert main(["doctor", str(path), *options]) == 0
    assert "clock" in capsys.readouterr().out


def test_the_exit_status_says_whether_the_hit_rate_is_high_enough(path: Path) -> None:
    assert main(["doctor", str(path), "--blocks", "100", "--fail-under", "0.5"]) == 1
    assert main(["doctor", str(path), "--blocks", "100", "--fail-under", "0"]) == 0


def test_a_finding_is_shown_by_a_few_prompts_in_a_lab(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnosis = labengine.doctor(path, num_blocks=100)
    lab = diagnosis.lab(1)
    lab.run()
    assert labengine.doctor(lab).findings[0].num_lost > 50
    assert main(["doctor", str(path), "--blocks", "100", "--show", "1"]) == 0
    exec(capsys.readouterr().out, {})
    assert "diverged from A" in capsys.readouterr().out
    with pytest.raises(labengine.ConfigError, match="no finding 9"):
        diagnosis.lab(9)


def test_a_page_is_written(path: Path, tmp_path: Path) -> None:
    assert main(["doctor", str(path), "--blocks", "100", "--html", str(tmp_path / "report.html")]) == 0
    assert "clock" in (tmp_path / "report.html").read_text()


def test_replicas_share_the_prompts(path: Path) -> None:
    found = labengine.doctor(path, num_blocks=100, num_replicas=2, routing="sticky")
    assert found.report.settings["num_replicas"] == 2 and found.findings[0].kind == "clock"


@pytest.mark.parametrize(
    ("options", "why"),
    (
        (["--blocks", "100", "--gib", "1"], "--gib cannot be combined with --blocks"),
        (["--gib", "1"], "--gib needs a model's config.json, or --kv-bytes-per-token"),
        (["--gib", "1", "--kv-bytes-per-token", "0"], "above 0"),
        (["--clock", "1000,0.01", "--price-per-hour", "-2"], "price"),
        (["--blocks", "1"], "--blocks must"),
        (["--block-size", "0"], "--block-size must"),
        (["--replicas", "0"], "--replicas must"),
        (["--max-num-seqs", "0"], "--max-num-seqs must"),
        (["--edition", "vlm"], "edition"),
        (["--show", "1", "--html", "report.html"], "instead of the report: leave out --html"),
        (["--show", "1", "--json"], "leave out --json"),
        (["--show", "1", "--fail-under", "0.5"], "leave out --fail-under"),
        (["--clock", "fast"], "clock"),
        (["--tokenizer", "/nothing/here"], "no model"),
        (["--price-per-hour", "3"], "clock"),
        (["--perfetto", "out"], "recording"),
        (["--blocks", "100", "--html", "/no/such/folder/report.html"], "cannot be written"),
        (["--seconds", "3"], "running vLLM"),
    ),
)
def test_what_cannot_be_is_refused_in_a_sentence(
    path: Path, options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert why in error and "Traceback" not in error
