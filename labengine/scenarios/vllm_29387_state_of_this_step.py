"""vLLM pull request 29387: a request goes on from a state that its own step has yet to compute.

A block's hash is registered when the block is allocated. Of attention that is no harm: the KV of a whole batch is
written before any of it is read (scenario vllm-38715). A state is copied before the forward pass, so a request that
hits one of this very step gets what the block held before. The mended scheduler has it wait a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.config import GroupSpec
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.state_group import StateGroup
from labengine.core.vllm_states import VllmStateGroup
from labengine.events import (
    BlockCached,
    PrefixHit,
    RequestScheduled,
    StateAdvanced,
    StateCopied,
    StepEnded,
    StepStarted,
)
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class HitsStatesOfThisStep(VllmStateGroup):
    """Counts a hit on a state that this step computes as any other hit."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        """Return the blocks that the request takes, whenever the state that it hits is computed."""
        return StateGroup.num_blocks_to_admit(self, hit, num_computed_tokens, num_blocks)


def first_steps(lab: Lab) -> dict[int, int]:
    """Return the step in which each request is first scheduled, by request id."""
    assert lab.timeline is not None
    steps, step = dict[int, int](), 0
    for event in lab.timeline.events():
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, RequestScheduled):
            steps.setdefault(event.request_id, step)
    return steps


class TogetherAdded(Experiment):
    """Prompts that are added at once, and run to their ends."""

    columns = (
        Column(
            "same step",
            Parts(name="vllm, hits states of this step", state_group=HitsStatesOfThisStep).overriding(VLLM),
            "Admits a request that hits a state of this very step, as vLLM 0.16.0.",
        ),
        Column("next step", "vllm", "Has it wait for the next step, and all behind it, as vLLM since 0.17.0."),
        Column(
            "registered after compute",
            "labengine",
            "Registers a state when it is computed: B hits nothing, does not wait, and computes its own.",
        ),
    )
    settings = settings(num_blocks=32, groups=(GroupSpec(1), GroupSpec(1, "state")))
    prompts: tuple[tuple[int, ...], ...] = ((1, 2, 3, 4), (1, 2, 3, 5))

    def play(self, lab: Lab) -> None:
        """Add the prompts, then run them."""
        for prompt in self.prompts:
            lab.add(token_ids=prompt, max_tokens=2)
        lab.run()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count misread states, hits and the work."""
        return {
            "states misread": num_misread_blocks(lab),
            "requests in the first step": sum(step == 1 for step in first_steps(lab).values()),
            "hit of B": num_hit_tokens(lab, 1),
            "tokens computed": num_computed_tokens(lab),
        }


class WaitsBehind(TogetherAdded):
    """A third prompt, which shares nothing."""

    question = "C shares nothing, and stands behind B: in which step does it start?"
    prompts = (*TogetherAdded.prompts, (7, 8, 9, 10))

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the step in which each request starts."""
        return {f"first step of {name}": step for name, step in zip("ABC", first_steps(lab).values(), strict=True)}

    def answer(self, table: Table) -> str:
        """State when C starts."""
        waits, own = table["next step"]["first step of C"], table["registered after compute"]["first step of C"]
        return (
            f"Behind a request that has to wait no other is admitted: C starts in step {waits}, although it hits "
            f"nothing. Where states are registered after compute, it starts in step {own}."
        )


class StateOfThisStep(TogetherAdded, Scenario):
    """The example of the pull request: blocks of one token, and two prompts that share three of four."""

    id = "vllm-29387"
    title = "A hit on a state that this step computes"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="29387",
        title="[BugFix] Avoid prefix cache hit in the same schedule step for mamba layers",
        state="merged",
        as_of="2026-02-11",
        seen_in="0.15.0 and 0.16.0, as their code reads",
        mended_in="0.17.0",
        needs=(
            "a model with state-space layers, and prefix caching of their states",
            "prompts that share a prefix and are scheduled in the same step",
        ),
    )
    kind = "hit in flight"
    breaks = "A request goes on from a block that holds no state yet."
    wrong_figure = "states misread"
    seen_by = ("write", "read")
    claim = (
        "A request that shares a prefix with another one of the same step counts the prefix as computed. But its state "
        "is not there yet when the request needs it."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.16.0 a state is registered when its block is allocated, and nothing keeps a later request of the "
            "step from hitting it; in mode align states are copied before the forward pass. In 0.17.0 such a request "
            "is told that it needs more blocks than there are. That stops all behind it too, which the pull request "
            "says of itself."
        ),
        passages=(
            CodePassage(
                version="vllm 0.16.0",
                file="vllm/v1/core/kv_cache_manager.py",
                line=374,
                text="self.coordinator.cache_blocks(request, num_tokens_to_cache)",
                says="Hashes are registered by the call that allocates a step's blocks.",
            ),
            CodePassage(
                version="vllm 0.16.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=0,
                text="cached_blocks_this_step",
                says="No group notes which hashes are of this step.",
            ),
            CodePassage(
                version="vllm 0.16.0",
                file="vllm/v1/worker/gpu_model_runner.py",
                line=3454,
                text="mamba_utils.preprocess_mamba(",
                says="States that a request goes on from are copied before the model runs.",
            ),
            CodePassage(
                version="vllm 0.17.0",
                file="vllm/v1/core/single_type_kv_cache_manager.py",
                line=868,
                text="return self.block_pool.num_gpu_blocks + 1",
                says="A request that hits a state of this step is said to need more blocks than there are.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 56525",
                says=(
                    "A pull request, open in September 2026: the note of a step's hashes is cleared when the next step "
                    "is scheduled. With steps in flight, or after an abort, such a state may still be hit before it is "
                    "there."
                ),
            ),
        ),
    )
    question = "A and B share three of four tokens, and come at once: what does B go on from?"
    roles = ("the bug: hit in the same step", "the fix: hit in the next one")
    guide = (
        GuideStop(
            "A's first chunk is three tokens, the most that an equal prompt could hit. Its state will be in this "
            "block. The hash is registered already, before a token is computed.",
            BlockCached,
            lambda event: event.group == 1,
        ),
        GuideStop(
            "Left, in the same step, B hits three tokens: three blocks of attention, and that state.",
            PrefixHit,
            lambda event: event.request_id == 1 and event.num_tokens > 0,
        ),
        GuideStop(
            "Left, the state is copied to where B goes on, before the forward pass: what is copied is no state.",
            StateCopied,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A's state is computed, after it was copied.",
            StateAdvanced,
            lambda event: event.request_id == 0,
        ),
        GuideStop("Right, B has waited for it. It hits the same three tokens in the next step.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"behind": WaitsBehind()}

    def answer(self, table: Table) -> str:
        """State what B goes on from, and what the columns compute."""
        wrong, right, own = (table[column.name] for column in self.columns)
        return (
            f"B hits {wrong['hit of B']} tokens either way. In the same step it goes on from no state "
            f"({wrong['states misread']} misread); in the next one from A's. Registered after compute, B hits "
            f"{own['hit of B']} and computes {own['tokens computed'] - right['tokens computed']} tokens more."
        )


SCENARIO = StateOfThisStep()
