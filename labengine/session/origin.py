"""The origin of a lab whose first state its inputs do not tell, because its external tier was filled by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.core.parts import Parts


@dataclass(frozen=True, slots=True)
class Origin:
    """The calls that make and play a lab, to repeat it on other parts.

    make: returns an empty lab on these parts, with a separate tier. play: fills the tier, adds the requests and takes
    the steps. num_inputs, num_steps: the first lab's numbers after that; its inputs record the rest.
    """

    make: Callable[[Parts], Any]
    play: Callable[[Any], object]
    num_inputs: int
    num_steps: int
