"""python -m labengine replay: what it prints, and what it refuses before it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.engine.replay import replay

ADD = {"op": "add", "req": "a", "tokens": [1, 2, 3, 4, 5]}


def workload(*ops: Any, **settings: Any) -> dict[str, Any]:
    return {"num_blocks": 10, "block_size": 4, "ops": list(ops), **settings}


def test_the_command_prints_the_state_after_each_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(workload(ADD, {"op": "allocate", "req": "a", "n": None, "lookup": True})))
    assert main(["replay", str(path)]) == 0
    added, allocated = json.loads(capsys.readouterr().out)["results"]
    assert (added["op"], added["req"], added["state"]["tables"]) == ("add", "a", {"a": [[]]})
    assert (allocated["ok"], allocated["hit"], allocated["n"], allocated["new_blocks"]) == (True, 0, 5, [[1, 2]])
    assert allocated["state"]["num_cached_blocks"] == {"a": [1]} and allocated["state"]["free_queue"][0] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"block_size": 4, "ops": []}, "is missing ['num_blocks']"),
        (workload(retention_intervall=0), "unknown keys ['retention_intervall']"),
        (workload(ops="add"), "ops must be a list"),
        (workload(3), "op 0 must have an 'op'"),
        (workload({"op": "grow"}), "one of add, append, lookup"),
        (workload({"op": "free", "req": "b"}), "(none), got 'b'"),
        (workload(ADD, ADD), "(a), got 'a'"),
        (workload({"op": "add", "req": "a", "tokens": []}), "at least one token"),
        (workload({"op": "add", "req": "a", "tokens": "abc"}), "must be a list of integers"),
        (workload(ADD, {"op": "allocate", "req": "a", "n": -2}), "n must be at least 0"),
        (workload({"op": "evict", "blocks": [-1]}), "a block must be at least 0"),
        (workload(groups=[{"type": ["x"]}]), "kind must be"),
    ],
)
def test_what_cannot_be_replayed_ends_with_status_2(
    content: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(content))
    assert main(["replay", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243", "nano-vllm-2025-07"])
def test_editions_that_allocate_complete_prompts_are_refused(edition: str) -> None:
    with pytest.raises(ConfigError, match="whole prompts"):
        replay(workload(ADD), edition)


def test_a_file_that_is_no_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("{", "[]", "[" * 100_000):
        (tmp_path / "x.json").write_text(text)
        assert main(["replay", str(tmp_path / "x.json")]) == 2
        assert "is not a workload" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "absent.json")]) == 2
