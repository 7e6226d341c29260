"""Changes to the scheduler."""

from __future__ import annotations

from mutants.table.mutant import Mutant

SCHEDULER = "core/scheduler.py"
BUDGET = "core/token_budget.py"
REQUESTS = "core/request_queues.py"

MUTANTS = (
    Mutant(
        "computed tokens are not told",
        "stream",
        REQUESTS,
        "        if TokensComputed in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "computed tokens are counted one short",
        "state",
        REQUESTS,
        "        request.num_computed_tokens = num_tokens\n        if TokensComputed",
        "        request.num_computed_tokens = num_tokens - 1\n        if TokensComputed",
    ),
    Mutant(
        "a sampled token is not told",
        "stream",
        REQUESTS,
        "        if TokenSampled in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a sampled token is appended twice",
        "state",
        REQUESTS,
        "        request.token_ids.append(token_id)\n",
        "        request.token_ids.extend((token_id, token_id))\n",
    ),
    Mutant(
        "a preempted request keeps its computed tokens",
        "state",
        REQUESTS,
        '        self.manager.free(victim, "preempted")\n        self._set(victim, "num_computed_tokens", 0)',
        '        self.manager.free(victim, "preempted")',
    ),
    Mutant(
        "a preemption is not told",
        "stream",
        REQUESTS,
        "        if RequestPreempted in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a preempted request keeps its blocks",
        "state",
        REQUESTS,
        '        self.manager.free(victim, "preempted")\n',
        "",
    ),
    Mutant(
        "a finished request keeps its blocks",
        "state",
        REQUESTS,
        '        self.manager.free(request, "aborted" if reason == "abort" else "finished")\n',
        "",
    ),
    Mutant(
        "an end is not told",
        "stream",
        REQUESTS,
        "        if RequestFinished in self._hooks:",
        "        if not self._hooks:",
    ),
    Mutant(
        "a request ends one token late",
        "policy",
        REQUESTS,
        "num_generated == request.sampling.max_tokens",
        "num_generated == request.sampling.max_tokens + 1",
        missed="max_tokens is what was asked for, and no rule of the cache",
    ),
    Mutant(
        "what a broken forward wrote is trusted",
        "reads",
        SCHEDULER,
        '        self.manager.pool.evict_cached(sorted(written), "distrusted")\n',
        "",
    ),
    Mutant(
        "the oldest request is preempted",
        "policy",
        "core/waiting_queue.py",
        "        return running[-1]",
        "        return running[0]",
    ),
    Mutant(
        "a step ignores its budget by one",
        "policy",
        BUDGET,
        "            budget -= num_tokens + self.drafts.num_inputs\n            place += 1",
        "            budget -= num_tokens - 1\n            place += 1",
    ),
)
