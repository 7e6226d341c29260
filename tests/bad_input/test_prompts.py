"""Prompts that cannot be computed: too long, empty, no text, no conversation, no token ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bad_input.refusal import refused
from labengine import ConfigError
from labengine.lab import Lab


def test_refusing_a_prompt_longer_than_the_pool_names_the_blocks_it_needs(lab: Lab) -> None:
    with refused(lab, ConfigError, "a prompt of 50 tokens", "needs 14 blocks", "the pool has 12", "num_blocks=14"):
        lab.add(token_ids=range(50), max_tokens=4)
    with refused(lab, ConfigError, "needs 13 blocks"):
        lab.add(token_ids=range(2), max_tokens=48)
    assert lab.add(token_ids=range(2), max_tokens=47) == 2, "47 tokens fill the pool: the last one needs no slot"


def test_a_prompt_as_long_as_the_pool_runs_in_exactly_the_blocks_named() -> None:
    with Lab("simulated", num_blocks=14, block_size=4) as lab:
        lab.generate([list(range(50))], max_tokens=4)
        assert lab.stats().peak_used_blocks == 14


def test_a_prompt_longer_than_the_models_positions_is_refused(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "8192 positions", "shorten the prompt or lower max_tokens"):
        smollm2.add("Hello", max_tokens=8192)


@pytest.mark.parametrize("empty", [{"prompt": ""}, {"token_ids": []}, {"token_ids": ()}])
def test_an_empty_prompt_is_refused(lab: Lab, empty: dict[str, Any]) -> None:
    with refused(lab, ConfigError, "the prompt must not be empty", "at least one token"):
        lab.add(**empty)


def test_an_empty_text_is_refused_by_the_real_model_too(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "the prompt must not be empty"):
        smollm2.add("")


@pytest.mark.parametrize("wrong", [{}, {"prompt": "a", "token_ids": [1]}])
def test_a_request_has_one_prompt(lab: Lab, wrong: dict[str, Any]) -> None:
    with refused(lab, ConfigError, "either a prompt or token_ids"):
        lab.add(**wrong)


def test_a_prompt_is_a_text(lab: Lab) -> None:
    with refused(lab, ConfigError, "got list", "token_ids=[...]"):
        lab.add([1, 2, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, 1.5, "a", None, True])
def test_token_ids_are_integers_from_0(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "token_ids[1] must be", f"got {wrong!r}"):
        lab.add(token_ids=[3, wrong])


@pytest.mark.parametrize(
    "wrong", [np.float64(1.0), np.True_, np.array([1]), torch.tensor(1.0), torch.tensor(True), 2**63]
)
def test_token_ids_of_numpy_and_torch_are_integers_too(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "token_ids[1] must be", f"got {wrong!r}"):
        lab.add(token_ids=[3, wrong])


@pytest.mark.parametrize("wrong", [5, "abc", b"abc"])
def test_token_ids_are_a_list(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "token_ids must be a list of integers"):
        lab.add(token_ids=wrong)


@pytest.mark.parametrize("ids", [np.arange(5), torch.arange(5), [np.int64(i) for i in range(5)], (i for i in range(5))])
def test_integers_of_numpy_and_torch_are_taken_and_become_plain_ones(lab: Lab, ids: Any) -> None:
    one = lab.add(token_ids=ids, max_tokens=np.int64(2), top_k=torch.tensor(3), temperature=np.float32(0.5))
    lab.run()
    state = lab.snapshot().requests[one]
    assert state.token_ids[:5] == (0, 1, 2, 3, 4) and len(state.token_ids) == 7
    assert {type(token) for token in state.token_ids} == {int}


@pytest.mark.parametrize("prompts", [np.arange(3), torch.arange(3), [np.int64(0), 1, 2], (0, 1, 2)])
def test_generate_takes_one_row_of_token_ids_of_any_kind(lab: Lab, prompts: Any) -> None:
    (output,) = lab.generate(prompts, max_tokens=2)
    assert lab.snapshot().requests[output.request_id].token_ids[:3] == (0, 1, 2)
    assert len(lab.generate(np.ones((2, 3), dtype=np.int64), max_tokens=2)) == 2


@pytest.mark.parametrize("wrong", [None, 5, b"ab"])
def test_generate_wants_prompts(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "prompts must be"):
        lab.generate(wrong)


@pytest.mark.parametrize("wrong", [None, "hi", [], {"role": "user", "content": "hi"}])
def test_a_conversation_is_a_list_of_messages(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "a conversation"):
        lab.chat(wrong)


def test_a_text_that_is_no_unicode_is_refused(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "half a surrogate pair"):
        smollm2.add("a \ud800 b")


def test_token_ids_lie_in_the_vocabulary(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "token_ids[2] must be below", "got 49152"):
        smollm2.add(token_ids=[1, 49151, 49152])
