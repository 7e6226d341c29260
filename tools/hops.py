"""The functions of labengine that a token's id passes on its way: python -m tools.hops.

Prints each function of ours that is entered between `lab.add(token_ids=...)` and the sampling of the request's first
token, in order, and how often; then the same from the emit of a late merge to the message that a view is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from labengine.events import BlockMerged
from labengine.lab import Lab

OURS = ("labengine.", "labengine_widgets.")


@contextmanager
def entered(on: list[str]) -> Iterator[None]:
    """Note every function of ours that is entered in this thread meanwhile."""

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event == "call" and module.startswith(OURS) and not frame.f_code.co_name.startswith("<"):
            on.append(f"{module}.{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def from_add_to_sampling() -> list[str]:
    """Return the functions entered by lab.add and by the step up to the runner's sampling."""
    with Lab("simulated", num_blocks=16, block_size=4, record=False, check=False) as lab:
        runner, seen = lab.session.stepper.engine.runner, list[str]()
        sample: Callable[..., Any] = runner.sample

        def last(*arguments: Any) -> Any:
            sys.setprofile(None)
            return sample(*arguments)

        runner.sample = last  # type: ignore[method-assign]
        with entered(seen):
            lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=1)
            lab.step()
        return seen


def from_merge_to_message() -> list[str]:
    """Return the functions entered from the emit of a late merge to the message for a view, and captions on the way."""
    seen = list[str]()
    with Lab("simulated", num_blocks=16, block_size=2) as lab:
        feed = lab.feed
        for _ in range(2):
            lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=1)
        lab.hooks.subscribe(lambda event: seen.clear(), BlockMerged)  # the last one counts
        with entered(seen):
            lab.step()
            feed.tick()
        return seen


def main() -> None:
    """Print both."""
    for title, seen in (("lab.add to sampling", from_add_to_sampling()), ("merge to message", from_merge_to_message())):
        kinds = dict.fromkeys(seen)
        print(f"{title}: {len(seen)} calls of {len(kinds)} functions")
        for name in kinds:
            print(f"  {seen.count(name):4} {name}")


if __name__ == "__main__":
    main()
