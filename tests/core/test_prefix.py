"""Prefixes compare complete chains of tokens, without trusting a hash; requests that meet share their links."""

from __future__ import annotations

from random import Random

import pytest

from labengine.config import SamplingParams
from labengine.core.block import NO_KEYS, Prefix
from labengine.core.request import ExtraKeys, Request
from random_cases import for_random

SALT: ExtraKeys = (("cache_salt", "x"),)
ADAPTER: ExtraKeys = (("adapter", "x"),)


def request_of(token_ids: list[int], extra_keys: ExtraKeys = (), link_size: int = 2) -> Request:
    """A request that has its links, as after hashing."""
    request = Request(0, token_ids, SamplingParams(), 0, 1, extra_keys)
    ends = range(link_size, len(token_ids) + 1, link_size)
    request.links.extend(tuple(token_ids[end - link_size : end]) for end in ends)
    return request


def test_a_prefix_is_the_chain_of_the_requests_links() -> None:
    prefix = request_of([1, 2, 3, 4, 5]).prefix_at(1)
    assert (prefix.token_ids, prefix.num_links) == ((3, 4), 2)
    assert prefix.parent is not None and prefix.parent.token_ids == (1, 2)
    assert prefix.parent.parent is NO_KEYS


def test_a_request_makes_each_link_once() -> None:
    request = request_of([1, 2, 3, 4])
    long = request.prefix_at(1)
    assert request.prefix_at(0) is long.parent
    assert request.prefix_at(1) is long


@pytest.mark.parametrize(("mine", "theirs"), [((), SALT), (SALT, ()), (SALT, ADAPTER), (SALT, SALT + ADAPTER)])
def test_other_extra_keys_are_another_prefix(mine: ExtraKeys, theirs: ExtraKeys) -> None:
    for link in range(3):
        prefix = request_of([1, 2, 3, 4, 5, 6], theirs).prefix_at(link)
        assert not request_of([1, 2, 3, 4, 5, 6], mine).has_prefix(prefix, link)


def test_a_request_adopts_the_links_it_was_compared_with() -> None:
    prefix = request_of([1, 2, 3, 4]).prefix_at(1)
    request = request_of([1, 2, 3, 4, 5, 6])
    assert request.has_prefix(prefix, 1)
    assert request.prefixes == [prefix.parent, prefix]
    assert request.prefix_at(2).parent is prefix


def test_after_a_refusal_a_request_has_its_own_links() -> None:
    request = request_of([1, 2, 3, 4])
    assert not request.has_prefix(request_of([9, 9, 3, 4]).prefix_at(1), 1)
    mine = request.prefix_at(1)
    assert mine.parent is not None and mine.parent.token_ids == (1, 2)


def test_random_pairs_are_equal_exactly_when_their_tokens_are() -> None:
    """Few tokens, so that many chains are equal for a while; every pair is asked in a different order."""
    num_equal = 0

    def are_equal_as_their_tokens(rng: Random) -> None:
        nonlocal num_equal
        requests = [
            request_of([rng.randrange(2) for _ in range(rng.randint(1, 6))], rng.choice(((), SALT)), link_size=1)
            for _ in range(6)
        ]
        for _ in range(40):
            one, two = rng.choice(requests), rng.choice(requests)
            link_of_one, link = rng.randrange(len(one.links)), rng.randrange(len(two.links))
            prefix: Prefix = one.prefix_at(link_of_one)
            is_equal = one.links[: link_of_one + 1] == two.links[: link + 1] and one.extra_keys == two.extra_keys
            assert two.has_prefix(prefix, link) is is_equal
            assert [own.token_ids for own in two.prefixes] == two.links[: len(two.prefixes)]
            num_equal += is_equal

    for_random(are_equal_as_their_tokens, examples=300)
    assert num_equal > 1000
