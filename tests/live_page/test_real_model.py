"""The real model of a page, without a browser: the kernels in WebAssembly and Pyodide on Node, beside the engine's own.

Needs Zig's compiler and the weights, which are fetched once and kept in the user's cache: 200 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkout import ROOT
from labengine import Lab
from tools.site import live_page, real_model
from tools.site.wasm import kernels
from waiting import PATIENCE

pytestmark = pytest.mark.sweep

PROMPTS = (
    "Once upon a time, in a small village by the sea,",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees because",
    "Two people ask the very same question at the very same moment. The",
)
TOKENS = 24
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "seed": 5},
    {"temperature": 1.3, "seed": 6, "top_k": 40},
    {"temperature": 0.9, "seed": 7, "top_p": 0.9},
    {"temperature": 1.1, "seed": 8, "top_k": 200, "top_p": 0.95},
)
TEXTS = (PROMPTS[0], "naïve 12'34's\u2003x <|im_end|>")
REFUSED = {
    "auto": 'num_blocks="auto"',
    "large": "100000 blocks",
    "dtype": "dtype='bfloat16'",
    "runner": "runner=",
    "xray": "plotly",
}
"""By request, the words of the error that name what is refused."""
CONVERSATION = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script has found in the page's Python."""
    folder = tmp_path_factory.mktemp("page")
    live_page.copy_pyodide(folder / "pyodide")
    live_page.write_packages(folder / "labengine.zip")
    (folder / "kernels.wasm").write_bytes(kernels())
    given = {"prompts": PROMPTS, "max_tokens": TOKENS, "samplings": SAMPLINGS, "texts": TEXTS, "chat": CONVERSATION}
    (folder / "given.json").write_text(json.dumps(given), encoding="utf-8")
    here = Path(__file__).parent
    command = [sys.executable, "-m", "tools.node", "node", str(here / "real_model.js"), str(folder / "pyodide")]
    command += [str(folder / name) for name in ("labengine.zip", "kernels.wasm")]
    command += [str(real_model.gguf()), str(here / "real_model_script.py"), str(folder / "given.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def reference() -> Any:
    """The engine in float32, on the CPU."""
    with Lab("smollm2", dtype="float32", device="cpu", num_blocks=64) as lab:
        yield lab


def outputs(lab: Lab, samplings: tuple[dict[str, Any], ...], prompts: tuple[str, ...]) -> list[list[int]]:
    """Return the tokens of these prompts, all at once."""
    pairs = zip(prompts, samplings, strict=True)
    ids = [lab.add(prompt, max_tokens=TOKENS, ignore_eos=True, **sampling) for prompt, sampling in pairs]
    lab.run()
    return [list(lab.output(request_id).token_ids) for request_id in ids]


def test_greedy_tokens_are_those_of_the_engine(found: dict[str, Any], reference: Lab) -> None:
    expected = outputs(reference, ({},) * len(PROMPTS), PROMPTS)
    assert found["alone"] == expected
    assert found["text"] == reference.session.model.tokenizer.decode(expected[0])
    assert found["violations"] == 0


def test_requests_at_once_with_preemption_and_prefix_hits(found: dict[str, Any]) -> None:
    assert found["crowded"] == [*found["alone"], found["alone"][-1]]
    assert found["preempted"] >= 2 and found["hits"] >= 3


def test_sampled_tokens_are_those_of_the_engine(found: dict[str, Any], reference: Lab) -> None:
    assert found["sampled"] == [outputs(reference, SAMPLINGS, (PROMPTS[0],) * len(SAMPLINGS))] * 2


def test_a_fork_has_a_pool_of_its_own_and_steps_are_repeated(found: dict[str, Any]) -> None:
    assert found["forked"] == found["rewound"] == found["alone"][:1]
    assert found["untouched"] == 2, "the lab that was forked has its own KV, and two tokens"


def test_kv_is_that_of_the_engine(found: dict[str, Any], reference: Lab) -> None:
    with Lab("smollm2", dtype="float32", device="cpu", num_blocks=24, block_size=4) as lab:
        lab.add(PROMPTS[0])
        lab.step()
        keys, values = lab.kv(0, 3)
        assert found["kv"]["shape"] == list(keys.shape) and found["kv"]["num_bytes"] == keys.nbytes
        for name, tensor in (("keys", keys), ("values", values)):
            numbers = tensor.flatten().tolist()
            assert found["kv"][name] == pytest.approx(numbers, abs=1e-4)


def test_kv_comes_back_from_host_memory(found: dict[str, Any]) -> None:
    assert found["tiered"] == [found["alone"][0]] * 2 and found["loaded"] == 1


def test_equal_blocks_of_real_words_merge(found: dict[str, Any]) -> None:
    assert found["used"] == 5, "four blocks each, three of which were merged"


def test_texts_are_tokenized_as_elsewhere(found: dict[str, Any], reference: Lab) -> None:
    assert found["tokens"] == [reference.session.model.encode(text) for text in TEXTS]
    assert found["chat"] == reference.session.model.tokenizer.chat(list(CONVERSATION))


def test_a_long_prompt_is_computed_in_short_steps(found: dict[str, Any]) -> None:
    assert found["computed"] == [64, 128]


def test_what_a_page_cannot_do_is_refused(found: dict[str, Any]) -> None:
    refused = found["refused"]
    for asked, named in REFUSED.items():
        assert named in refused[asked] and refused[asked].startswith("ConfigError: ")
    assert "70,312 MiB" in refused["large"]
    assert refused["layer"].startswith("IndexError: no layer 30")
