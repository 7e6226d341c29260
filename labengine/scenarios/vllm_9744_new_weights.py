"""vLLM issue 9744: the weights are replaced, and the prefix cache serves KV of the old ones.

A block's hash says nothing about the weights, and vLLM leaves it to the caller to reset the cache. Here a request names
its weights as an extra key: labengine's own way, which vLLM 0.32 does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.events import PrefixCacheReset, PrefixHit, RequestAdded, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class IgnoresWeights(HashChain):
    """A hash over tokens, adapters and salts."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but the version of the weights."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] != "weights"))


BROKEN = Column(
    "no version",
    Parts(name="vllm, no version", hash_chain=IgnoresWeights).overriding(VLLM),
    "Hashes no version of the weights, as vLLM: their blocks have to be forgotten at each update.",
)
FIXED = Column(
    "version in the hash",
    "vllm",
    "labengine's way, by an extra key: hashes the version of the weights, and blocks of another one do not match.",
)


class WithReset(Experiment):
    """The cache is reset between the two requests, as upstream asks of the caller; A has ended, or still runs."""

    question = "A reset of the prefix cache at the update, while the engine is idle"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=12, block_size=4)
    num_tokens_of_first = 1
    is_reset = True

    def play(self, lab: Lab) -> None:
        """Run A on the old weights, reset the cache if this experiment does, and run B on the new ones."""
        lab.add(token_ids=range(1, 10), extra_keys={"weights": "1"}, max_tokens=self.num_tokens_of_first)
        lab.step()
        if self.is_reset:
            lab.reset_prefix_cache()
        lab.add(token_ids=range(1, 10), extra_keys={"weights": "2"}, max_tokens=1)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count resets that were done, the tokens that B finds, and misreads."""
        return {
            "resets done": len(events_of(lab, PrefixCacheReset)),
            "tokens that B finds": num_hit_tokens(lab, 1),
            "requests that misread": num_misread_requests(lab),
        }

    def answer(self, table: Table) -> str:
        """State what a reset does when the engine is idle."""
        found = table[BROKEN.name]["tokens that B finds"]
        return f"A reset at the update is enough while the engine is idle: B finds {found} tokens."


class WhileRunning(WithReset):
    """The update comes while A runs: a reset is refused while a block is in use.

    vLLM's reset_running_requests=True preempts what runs, and resets then; labengine has no such reset.
    """

    question = "The same while a request runs: a plain reset is refused"
    num_tokens_of_first = 8

    def answer(self, table: Table) -> str:
        """State what a reset does while a request runs."""
        wrong, right = table[BROKEN.name], table[FIXED.name]
        return (
            f"While a request holds blocks {wrong['resets done']} resets are done (reset_prefix_cache returns False, "
            "as in vLLM unless reset_running_requests=True preempts what runs, since 28827), and B finds "
            f"{wrong['tokens that B finds']} tokens of the old weights. With the version in the hash it finds "
            f"{right['tokens that B finds']}, reset or not."
        )


class NewWeights(WithReset, Scenario):
    """One prompt before and after an update of the weights, without a reset."""

    id = "vllm-9744"
    title = "After an update of the weights the cache serves KV of the old ones"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="9744",
        title="[Feature]: Support a `flush_cache` API to clean the kvcache after `load_weights`",
        state="closed",
        as_of="2026-07-15",
        seen_in="vLLM of 2024-10-28 (V0), and code of 0.32.0: it is left to the caller",
        mended_in="0.7.0, by a call for the caller to make: reset_prefix_cache (12284)",
        needs=("prefix caching", "an update of the weights under a running engine, without a reset of the cache"),
    )
    claim = "The cached prefix is not invalidated by load_weights: the new model runs on KV of the old one."
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "No version of the weights is hashed, and an update resets nothing: without a reset by the caller the new "
            "weights run on KV of the old ones. It is a feature request, and the call that it asks for exists since "
            "0.7.0."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/worker/gpu_worker.py",
                line=631,
                text="self.model_runner.reload_weights",
                says="New weights are loaded, and no cache is reset.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=2841,
                text="reset_running_requests: bool = False",
                says="A caller can have running requests preempted, so that the reset is done at once.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 46125",
                says=(
                    "An automatic reset at each update (45093) was taken back: whether to reset is the user's decision."
                ),
            ),
        ),
    )
    kind = "extra keys"
    breaks = "A request on new weights reads KV that was computed with the old ones."
    wrong_figure = "requests that misread"
    seen_by = ("scope", "read")
    question = "One prompt before and after the weights are replaced: what does the second request find?"
    is_reset = False
    roles = ("as vLLM, without a reset", "labengine's way: the version is in the hash")
    guide = (
        GuideStop("A's prompt is computed with the first version of the weights.", RequestAdded),
        GuideStop("A has ended; its two full blocks are cached. Now the weights are replaced.", StepEnded),
        GuideStop(
            "B has the same prompt, for the new weights. Left, it finds both blocks. Right, none: the version is part "
            "of the hash.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, B's answer is neither the old model's nor the new one's.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"reset": WithReset(), "reset while running": WhileRunning()}

    def answer(self, table: Table) -> str:
        """State what is found without a reset."""
        wrong, right = (table[column.name]["tokens that B finds"] for column in self.columns)
        return (
            f"Without a reset B finds {wrong} tokens of the old weights, and {right} with a version in the hash. vLLM "
            "0.32 has no such key and leaves the reset to the caller (46125 took an automatic one back)."
        )


SCENARIO = NewWeights()
