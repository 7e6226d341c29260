"""Documents for browsers: the same JSON from each encoder, and long ones gzipped."""

from __future__ import annotations

import gzip
import json
from random import Random
from typing import Any

import numpy as np
import pytest

from labengine.record.files.codec import dumps
from labengine_widgets.feed.payload import LONG, packed


def unpacked(data: bytes) -> Any:
    """What a browser reads."""
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


@pytest.mark.parametrize(
    "value",
    [
        [(20, 3, b"\x00\xff", None, True, "tail"), (4, (1, 2), ((0, b""),))],
        "a 'quoted' </script> \u2028 line, \x00 and \U0001f600",
        "half a pair: \ud800",
        2**80,
        {7: "a key that is a number"},
        [np.int64(3), 0.25, -1],
    ],
)
def test_it_is_the_same_document_as_the_plain_writers(value: object) -> None:
    assert unpacked(packed({"events": value})) == json.loads(dumps({"events": value}))


def test_what_json_has_no_word_for_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="an event can contain only"):
        packed({"events": [{1}]})


def test_long_documents_are_gzipped_and_short_ones_are_not() -> None:
    rng = Random(1)
    rows = [[15, i, rng.randbytes(16)] for i in range(400)]
    short, long = packed({"events": rows[:100]}), packed({"events": rows})
    assert short == dumps({"events": rows[:100]}) and len(short) < LONG
    assert len(long) < len(dumps({"events": rows})) * 0.7
    assert unpacked(long) == json.loads(dumps({"events": rows}))
