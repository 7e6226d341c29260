"""Scenarios of freeing, sharing and loading on a real model: a wrong word, and the misread slot that caused it."""

from __future__ import annotations

import pytest

from labengine.scenarios import bug


@pytest.mark.sweep
@pytest.mark.parametrize(
    "id", ["atlas-1193", "dingocache-377", "lmcache-5095", "sglang-27444", "vllm-32255", "vllm-45357"]
)
def test_a_wrong_word_and_its_cause(id: str) -> None:
    scenario = bug(id)
    assert "read" in scenario.seen_by
    corruption = scenario.corruption("smollm2")
    assert corruption is not None and corruption.texts.num_differing >= 1
    assert corruption.cause is not None and corruption.cause.rule == "read"
    assert corruption.request_id in corruption.cause.request_ids
