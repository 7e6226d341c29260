"""A clear word on what to do instead, and nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from labengine.lab import Lab


@contextmanager
def refused(lab: Lab, error: type[Exception], *words: str) -> Iterator[None]:
    """What is called inside raises `error`, says all the words, and leaves the lab as it was, ready to go on."""
    before, moment = lab.snapshot(), lab.timeline.end if lab.timeline else None
    with pytest.raises(error) as caught:
        yield
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert lab.snapshot() == before and lab.timeline is not None and lab.timeline.end == moment
    assert lab.check() == []
