"""A plugin for vLLM: write what a scheduler and its KV cache do as labengine's events.

LABENGINE_TAP=file:DIR switches it on, for every scheduler that this process makes; without it nothing happens.
It needs the standard library alone; the names and fields of the events travel in each stream's header.
"""

from __future__ import annotations

import logging
import os
from typing import Any

__version__ = "0.1.0"
VARIABLE = "LABENGINE_TAP"

logger = logging.getLogger("vllm.labengine")
"""Below vLLM's own logger, so that a sentence of the tap's is found where vLLM's are."""


def register() -> None:
    """Entry point of vllm.general_plugins: attach a tap to each scheduler once it is made."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    from vllm.v1.core.sched.scheduler import Scheduler

    attach_to_new(Scheduler, address)


def attach_to_new(scheduler_class: Any, address: str) -> None:
    """Have each new instance of a scheduler's class tapped. Twice is harmless: vLLM may load plugins again."""
    make = scheduler_class.__init__
    if getattr(make, "is_tapped", False):
        return

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        attach(self, address)

    vars(init)["is_tapped"] = True
    scheduler_class.__init__ = init


def attach(scheduler: Any, address: str) -> Any:
    """Attach a tap to a scheduler, and return it. None, with a sentence in the log, when that is not possible."""
    try:
        from labengine_vllm.tap import Tap

        return Tap.attached(scheduler, address)
    except Exception as error:
        logger.warning("labengine: this scheduler is not tapped: %s", error)
        return None
