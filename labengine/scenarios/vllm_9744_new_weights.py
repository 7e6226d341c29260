"""vLLM issue 9744: the weights are replaced, but the prefix cache serves KV of the old ones.

A block's hash does not cover the weights, and vLLM leaves it to the caller to reset the cache. Here a request names its
weights in an extra key, which is labengine's own solution; vLLM 0.32 does not have it.
"""

from __future__ import annotations

from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys
from labengine.events import PrefixCacheReset
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Experiment, Scenario


class IgnoresWeights(HashChain):
    """A hash over tokens, adapters and salts only."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys except the version of the weights."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] != "weights"))


class WithReset(Experiment):
    """The cache is reset between the two requests, as upstream asks of the caller; A has ended or still runs."""

    columns = (Column("vllm", IgnoresWeights), Column("vllm"))
    num_tokens_of_first = 1
    is_reset = True
    figures = {
        "resets done": lambda lab: len(events_of(lab, PrefixCacheReset)),
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A on the old weights, reset the cache if the experiment does so, and run B on the new weights."""
        lab.add(token_ids=range(1, 10), extra_keys={"weights": "1"}, max_tokens=self.num_tokens_of_first)
        lab.step()
        if self.is_reset:
            lab.reset_prefix_cache()
        lab.add(token_ids=range(1, 10), extra_keys={"weights": "2"}, max_tokens=1)
        lab.step()


class WhileRunning(WithReset):
    """The update arrives while A runs: a reset is refused while a block is in use.

    vLLM's reset_running_requests=True preempts the running requests and then resets; labengine has no such reset.
    """

    num_tokens_of_first = 8


class NewWeights(WithReset, Scenario):
    """One prompt before and after an update of the weights, without a reset."""

    is_reset = False
    experiments = {"reset": WithReset(), "reset while running": WhileRunning()}
