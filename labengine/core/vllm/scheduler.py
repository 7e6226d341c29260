"""vLLM's synchronous scheduler (0.32): speculation as it has it, and no forks."""

from __future__ import annotations

from labengine.config import ConfigError
from labengine.core.request import Request
from labengine.core.vllm.speculation import VllmSpeculation


class VllmScheduler(VllmSpeculation):
    """vLLM v1 knows no forks: its n answers to a prompt are n requests, which share what the prefix cache has."""

    def refuse_forks(self, num_answers: int = 1) -> None:
        """Refuse none: they need not run together."""

    def refuse_beams(self, num_beams: int) -> None:
        """Raise ConfigError: vLLM's scheduler knows no beams."""
        raise ConfigError(
            "edition 'vllm' has no beam search: vLLM's is a front end, which asks its scheduler for one token of each "
            "beam at a time, as separate requests; use edition 'labengine'"
        )

    def join(self, request: Request, leader: Request) -> None:
        """Queue the request as any other: it hits the full blocks of the prompt, and computes its tail again."""
        request.arrival = leader.arrival
        self.add(request)

    def branch(self, request: Request, parent: Request) -> None:
        """Queue the request as any other."""
        self.add(request)
