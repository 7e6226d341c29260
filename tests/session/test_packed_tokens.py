"""Packed prompts: the same ids in few bytes."""

from __future__ import annotations

import pytest

from labengine.session.history.inputs import pack, unpack


@pytest.mark.parametrize(
    ("token_ids", "size"),
    [([0], 2), ([1, 65_535], 2), ([65_536, 3], 4), ([2**32 - 1], 4), ([2**32], 8), ([2**63 - 1, 0, 7], 8)],
)
def test_ids_come_back_as_they_were(token_ids: list[int], size: int) -> None:
    packed = pack(token_ids)
    assert list(unpack(packed)) == token_ids and len(packed) == 1 + size * len(token_ids)
