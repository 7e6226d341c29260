"""Changes to loads and saves."""

from __future__ import annotations

from mutants.table.mutant import Mutant

MANAGER = "core/kv_cache_manager.py"
BUDGET = "core/token_budget.py"
LOADS = "core/external_loads.py"
TRANSFERS = "engine/transfers.py"
CONNECTOR = "core/connector.py"

MUTANTS = (
    Mutant(
        "loads are told of and never done",
        "tier",
        TRANSFERS,
        "            self._connector.start_load_kv(plan.loads, self._runner)",
        "            pass",
    ),
    Mutant(
        "the tier is asked one block too far",
        "tier",
        CONNECTOR,
        "        end = (request.num_tokens - 1) // alignment * alignment",
        "        end = request.num_tokens // alignment * alignment",
    ),
    Mutant(
        "saves come from the neighbour's hash",
        "tier",
        MANAGER,
        "enumerate(group.tier_hashes(request, first, last), first)",
        "enumerate(group.tier_hashes(request, max(0, first - 1), last), first)",
    ),
    Mutant(
        "a load goes to the block before",
        "tier",
        LOADS,
        "        loads = self.connector.update_state_after_alloc(request, transfers, hits)",
        "        loads = self.connector.update_state_after_alloc(request, transfers[:-1], hits)",
    ),
    Mutant(
        "external tokens are counted and not loaded",
        "tier",
        BUDGET,
        "        if num_external:\n            self.external.load(request, hit.num_tokens, num_computed)",
        "        if num_external < 0:\n            self.external.load(request, hit.num_tokens, num_computed)",
    ),
)
