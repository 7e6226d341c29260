"""Changes to drafts and their acceptance."""

from __future__ import annotations

from mutants.table.mutant import Mutant

DRAFTS = "core/drafts.py"
SCHEDULER = "core/scheduler.py"
QUEUES = "core/request_queues.py"
BUDGET = "core/token_budget.py"

MUTANTS = (
    Mutant(
        "one draft too many is accepted",
        "reads",
        DRAFTS,
        "return next((index for index, (draft, token) in enumerate(pairs) if draft != token), len(drafts))",
        "return next((index + 1 for index, (draft, token) in enumerate(pairs) if draft != token), len(drafts))",
    ),
    Mutant(
        "the newest token counts as computed",
        "state",
        DRAFTS,
        "        self.book_accepted(request, request.num_tokens - 1)",
        "        self.book_accepted(request, request.num_tokens)",
    ),
    Mutant(
        "drafts stay when they are judged",
        "state",
        DRAFTS,
        '        self._set(request, "drafts", ())\n        if DraftsJudged',
        "        if DraftsJudged",
    ),
    Mutant(
        "drafts are not told",
        "stream",
        DRAFTS,
        "            self._hooks.emit(TokensDrafted(request.request_id, drafts))",
        "            pass",
    ),
    Mutant(
        "an accepted draft's successor is left out",
        "policy",
        DRAFTS,
        "        for token_id in sampled[: num_accepted + 1]:",
        "        for token_id in sampled[:num_accepted] or sampled[:1]:",
    ),
    Mutant(
        "drafts outlive a preemption",
        "state",
        QUEUES,
        '        self._set(victim, "num_computed_tokens", 0)\n        self._set(victim, "drafts", ())\n',
        '        self._set(victim, "num_computed_tokens", 0)\n',
    ),
    Mutant(
        "a judged step's tokens are counted one too few",
        "state",
        SCHEDULER,
        "list(islice(tokens, 1 + scheduled.num_drafts))",
        "list(islice(tokens, scheduled.num_drafts))",
    ),
    Mutant(
        "drafts are planned that have no blocks",
        "state",
        BUDGET,
        "        return num_known + self.drafts.num_affordable(request) if request.drafts else num_known",
        "        return num_known + len(request.drafts) + 1 if request.drafts else num_known",
    ),
    Mutant(
        "drafts preempt for their blocks",
        "policy",
        DRAFTS,
        "        return next((num for num in range(len(request.drafts), 0, -1) if fits(request, num_known + num)), 0)",
        "        return len(request.drafts) if fits else num_known",
    ),
)
