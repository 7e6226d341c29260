"""A part and a store that do not end while a switch is on."""

from __future__ import annotations

from typing import Any

from labengine import HostStore
from labengine.core.block_pool import BlockPool


class Switch:
    """Makes code endless, when it is on."""

    is_on = False
    is_inside = False

    def loop(self) -> None:
        """Count on, to a number that is reached only when a test has failed already."""
        number = 0
        self.is_inside = self.is_on
        while self.is_on and number < 300_000_000:
            number += 1


switch = Switch()


class EndlessTouch(BlockPool):
    """A hit is touched for ever."""

    def touch(self, *arguments: Any, **settings: Any) -> Any:
        switch.loop()
        return super().touch(*arguments, **settings)


class EndlessStore(HostStore):
    """A tier that looks for ever."""

    def has(self, *arguments: Any) -> Any:
        switch.loop()
        return super().has(*arguments)
