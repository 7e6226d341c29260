"""How a lab came to its first moment, where its inputs alone do not tell: its external tier was filled by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.core.parts import Parts


@dataclass(frozen=True, slots=True)
class Origin:
    """A lab that is made and played, so that it can be made and played again on other parts.

    make: returns an empty lab on these parts, with a tier of its own. play: fills the tier, adds the requests and takes
    the steps. num_inputs, num_steps: how many the first lab had then; what it had since is known from its inputs.
    """

    make: Callable[[Parts], Any]
    play: Callable[[Any], object]
    num_inputs: int
    num_steps: int
