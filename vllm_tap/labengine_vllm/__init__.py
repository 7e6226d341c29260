"""A plugin for vLLM: write the work of a scheduler and its KV cache as labengine's events.

LABENGINE_TAP=file:DIR enables it for every scheduler of this process; without it the plugin does nothing.
It needs only the standard library; the names and fields of the events are in each stream's header.
"""

from __future__ import annotations

import logging
import os
from typing import Any

__version__ = "0.1.0"
VARIABLE = "LABENGINE_TAP"

logger = logging.getLogger("vllm.labengine")
"""A child of vLLM's logger, so that the tap's messages appear beside vLLM's."""


def register() -> None:
    """Entry point of vllm.general_plugins: attach a tap to each scheduler once it is made."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    from vllm.v1.core.sched.scheduler import Scheduler

    attach_to_new(Scheduler, address)


def attach_to_new(scheduler_class: Any, address: str) -> None:
    """Tap each new instance of a scheduler's class. Twice is harmless, because vLLM may load plugins again."""
    make = scheduler_class.__init__
    if getattr(make, "is_tapped", False):
        return

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        attach(self, address)

    vars(init)["is_tapped"] = True
    scheduler_class.__init__ = init


def attach(scheduler: Any, address: str) -> Any:
    """Attach a tap to a scheduler, and return it. None, with a sentence in the log, if that is not possible."""
    try:
        from labengine_vllm.tap import Tap

        return Tap.attached(scheduler, address)
    except Exception as error:
        logger.warning("labengine: this scheduler is not tapped: %s", error)
        return None
