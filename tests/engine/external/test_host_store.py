from __future__ import annotations

import pytest

from engine.external.pools import SimulatedPool, TensorPool, chain, held, saved
from labengine.config import ConfigError
from labengine.engine.external import HostStore

BLOCK_BYTES = 4 * (4 * 2 * 8) * 4
"""Group 0: keys and values of two layers make four tensors of [4, 2, 8] float32."""


def test_it_counts_the_bytes_of_kv() -> None:
    store = HostStore()
    saved(store, [1, 2, 3])
    assert (len(store), store.num_bytes) == (3, 3 * BLOCK_BYTES)
    store.forget(chain(2))
    assert (len(store), store.num_bytes) == (2, 2 * BLOCK_BYTES)
    store.close()
    assert (len(store), store.num_bytes) == (0, 0)


@pytest.mark.parametrize(
    "caps", [{"max_blocks": 3}, {"max_bytes": 3 * BLOCK_BYTES}, {"max_bytes": 4 * BLOCK_BYTES - 1}]
)
def test_the_least_recently_used_block_goes(caps: dict[str, int]) -> None:
    store = HostStore(**caps)
    pool = saved(store, [1, 2, 3])
    store.start_load_kv(chain(1), pool)
    saved(store, [4], pool)
    assert held(store, range(9)) == [1, 3, 4]
    store.save_kv(chain(3), pool)  # there already: a use
    saved(store, [5], pool)
    assert held(store, range(9)) == [3, 4, 5]


def test_of_a_chain_that_does_not_fit_the_head_stays() -> None:
    store = HostStore(max_blocks=3)
    stored = store.save_kv(chain(1, 2, 3, 4, 5), TensorPool())
    assert stored == tuple(chain(1, 2, 3))
    assert held(store, range(9)) == [1, 2, 3]


def test_of_a_chain_that_was_loaded_the_tail_goes_first() -> None:
    store = HostStore(max_blocks=3)
    pool = saved(store, [3, 2, 1])
    store.start_load_kv(chain(1, 2, 3), pool)
    saved(store, [8], pool)
    assert held(store, range(9)) == [1, 2, 8]


def test_a_block_larger_than_the_store_is_refused_and_noted() -> None:
    store = HostStore(max_bytes=BLOCK_BYTES - 1)
    assert store.save_kv(chain(1), TensorPool()) == ()
    [failure] = store.failures
    assert failure.startswith("block 000000010000 of group 0 ")
    assert f"max_bytes={BLOCK_BYTES - 1} " in failure and f"({BLOCK_BYTES} bytes)" in failure


def test_failures_are_bounded_and_the_newest_last() -> None:
    store = HostStore(max_bytes=1)
    for name in range(300):
        store.save_kv(chain(name % 32), TensorPool())
    assert len(store.failures) == 100
    assert "block 0000000b" in store.failures[-1]


def test_a_cap_of_blocks_bounds_a_simulated_model_too() -> None:
    store = HostStore(max_blocks=4, max_bytes=10)
    store.save_kv(chain(*range(9)), SimulatedPool())
    assert (len(store), store.num_bytes) == (4, 0)


@pytest.mark.parametrize("caps", [{"max_blocks": 0}, {"max_bytes": -1}, {"max_blocks": "many"}, {"max_bytes": 1e9}])
def test_caps_are_checked(caps: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"max_(blocks|bytes) "):
        HostStore(**caps)
