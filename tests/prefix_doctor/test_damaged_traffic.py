"""Mutants of files of each form: prompts, or an error in one sentence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import labengine
from differential import vllm_streams
from differential.vllm_golden import FOLDER
from labengine.config import ConfigError
from labengine.prefix_doctor.traffic.prompt import Prompt
from recorded_engines import traffic_in

MUTANTS = 34
WORDS = (
    b"null",
    b"-1",
    b"1e999",
    b"true",
    b'"x"',
    b"[]",
    b"{}",
    b"[[1]]",
    b"9" * 30,
    b"\0",
    b"\xff",
    b"\n",
    b"NaN",
    b"",
)


def prompts() -> bytes:
    lines = [
        {"prompt": [1, 2, 3, 4], "time": 1.5, "max_tokens": 3, "cache_salt": "s", "priority": 1, "replica": 0},
        {"prompt": "some text to read", "timestamp": "2026-01-01", "answer": [4, 5], "user": "u", "lora": "a"},
        {"body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"image_url": "x"}]}]}},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "{}"}}]}]},
        {"prompt": "x", "response": {"body": {"choices": [{"message": {"content": "y"}}]}}, "replica": "a"},
    ]
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines * 3)


def trace() -> bytes:
    line = {"timestamp": 5, "input_length": 1030, "output_length": 2, "hash_ids": [1, 2, 3]}
    return b"".join(json.dumps(line | {"timestamp": 5 * i}).encode() + b"\n" for i in range(5))


def lab() -> bytes:
    played = labengine.Lab("simulated", num_blocks=8, block_size=4)
    played.generate([[1, 2, 3, 4, 5]], max_tokens=2)
    played.save("run.lab")
    return Path("run.lab").read_bytes()


def stream() -> bytes:
    _, items = next(vllm_streams.read())
    return b"".join(line + b"\n" for line in vllm_streams.lines_of(items))


SOURCES: list[Callable[[], bytes]] = [
    prompts,
    lambda: gzip.compress(prompts()),
    trace,
    lab,
    stream,
    lambda: (FOLDER / "vllm-kv-events-0.kvevents").read_bytes(),
]


def mutant(content: bytes, rng: Random) -> bytes:
    for _ in range(rng.randrange(1, 4)):
        at, size = rng.randrange(len(content)), rng.choice((0, 1, 4, 40))
        content = content[:at] + rng.choice(WORDS) + content[at + size :] or b"\n"
    return content[: rng.randrange(len(content))] if rng.random() < 0.2 else content


@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_a_mutant_is_read_or_refused(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng, sound, ends = Random(number), SOURCES[number](), set[str]()
    path = tmp_path / "file"
    for _ in range(MUTANTS):
        path.write_bytes(mutant(sound, rng))
        try:
            found = list(traffic_in(path))
        except ConfigError as error:
            ends.add("refused")
            assert len(str(error)) < 2000
        else:
            ends.add("read")
            assert found and all(type(one) is Prompt and one.token_ids and one.num_answer >= 1 for one in found)
            assert all(type(token) is int and token >= 0 for one in found for token in (*one.token_ids, *one.answer))
            arrivals = [one.arrival for one in found if one.arrival is not None]
            assert arrivals == sorted(arrivals)
    assert ends, "all were tried"
