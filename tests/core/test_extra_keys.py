"""Extra keys separate requests: only requests with equal keys, name by name, share blocks."""

from __future__ import annotations

import pytest

from driving import ALL_EDITIONS, recorded, small_engine
from labengine.config import SamplingParams
from labengine.core.request import ExtraKeys
from labengine.engine.request_options import RequestOptions, salted
from labengine.events import PrefixHit
from labengine.record.hooks import Hooks

PROMPT = list(range(10))
ONE = SamplingParams(max_tokens=1)
ADAPTER: ExtraKeys = (("adapter", "x"),)


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def hits(edition: str, *requests: tuple[str | None, ExtraKeys]) -> list[int]:
    """Tokens that each request finds, one after the other: (cache salt, extra keys)."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(16, edition=edition, hooks=hooks)
    for salt, extra_keys in requests:
        engine.add(PROMPT, RequestOptions(ONE, salted(extra_keys, salt)))
        engine.step()
    return [event.num_tokens for event in events if isinstance(event, PrefixHit)]


def test_an_adapter_is_not_a_salt_of_the_same_name(edition: str) -> None:
    """vLLM issue 44701: compared by values alone, they would share KV."""
    assert hits(edition, (None, ADAPTER), ("x", ()), (None, ADAPTER), ("x", ())) == [0, 0, 8, 8]


def test_a_salted_request_of_an_adapter_shares_with_its_like_only(edition: str) -> None:
    requests = [(None, ADAPTER), ("s", ADAPTER), ("s", ()), ("s", ADAPTER), (None, ())]
    assert hits(edition, *requests) == [0, 0, 0, 8, 0]


def test_two_adapters_share_nothing(edition: str) -> None:
    assert hits(edition, (None, (("adapter", "a"),)), (None, (("adapter", "b"),))) == [0, 0]


def test_a_salt_of_one_request_reaches_all_its_blocks(edition: str) -> None:
    """Only the first link hangs on it, and each later one on the link before."""
    hooks = Hooks(strict=True)
    engine = small_engine(16, edition=edition, hooks=hooks)
    for salt in ("a", "b"):
        engine.add(PROMPT, RequestOptions(SamplingParams(max_tokens=3), salted((), salt)))
    engine.step()
    tables = [set(request.block_tables[0]) for request in engine.snapshot().requests.values()]
    assert not tables[0] & tables[1]


@pytest.mark.parametrize(
    ("adapter", "found"),
    [(("sql", "/one", "2"), 8), (("sql", "/two", "1"), 0), (("poem", "/one", "1"), 0)],
    ids=["number", "path", "name"],
)
def test_vllm_hashes_an_adapters_name_and_path_and_not_its_number(adapter: tuple[str, str, str], found: int) -> None:
    """As `_gen_lora_extra_hash_keys` of vLLM 0.31.0 to 0.32.0."""
    names = ("lora", "lora_path", "lora_int_id")
    first, second = (tuple(zip(names, values, strict=True)) for values in (("sql", "/one", "1"), adapter))
    assert hits("vllm", (None, first), (None, second)) == [0, found]
