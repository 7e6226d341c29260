"""Single wrong changes to the core, its journal, its events and the external tier: one line of the source each.

kind says what a change breaks: "state" (the core holds something wrong), "stream" (the events do), "journal" (a step is
not rolled back as it was), "reads" (KV of other tokens is read, or may be), "tier" (what is loaded or saved is not what
it is taken for), or "policy": all rules hold, the engine only decides otherwise, and only a comparison of editions detects it.
"""

from __future__ import annotations

from mutants.table import (
    block_tables,
    drafts,
    forks,
    journal,
    look_up,
    pictures,
    pool,
    registering,
    scheduling,
    states,
    tier,
    tree,
    urgency,
)
from mutants.table.mutant import Kind as Kind
from mutants.table.mutant import Mutant as Mutant

_MODULES = (
    pool,
    block_tables,
    registering,
    look_up,
    scheduling,
    journal,
    tier,
    forks,
    drafts,
    states,
    urgency,
    pictures,
    tree,
)
MUTANTS = tuple(mutant for module in _MODULES for mutant in module.MUTANTS)
