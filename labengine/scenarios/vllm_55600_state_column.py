"""vLLM issue 55600: where a request goes on after a hit, its state's column is counted in another group's blocks.

vLLM 0.31.0's worker finds the state that a prefix hit goes on from by its column in the block table of the state
group: (computed tokens - 1) // cache_config.block_size. By then that is the smallest block size of the groups that take
part in prefix caching, and a column of the table is as long as the state group's blocks. With blocks of 4 and 16 a hit
of 32 tokens asks for column 7 and not for 1. A row of the worker's table begins with zeros, so the null block stands
there, or what an earlier request has left in the row; beyond the row's end the copy reads other memory. 0.32.0 counts
in mamba_block_size.
"""

from __future__ import annotations

from labengine.config import GroupSpec
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.core.vllm_states import VllmStateGroup
from labengine.events import PrefixHit, StateAdvanced, StateCopied
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class CountsInSmallestBlocks(VllmStateGroup):
    """Finds the state of a hit by a column that is counted in blocks of the smallest group."""

    def state_entry(self, request: Request) -> int:
        """Return that column; where the table has none, a null entry."""
        if request.status is RequestStatus.RUNNING:
            return super().state_entry(request)
        table, num_tokens = request.block_tables[self.index], request.num_computed_tokens
        column = (num_tokens - 1) // min(group.block_size for group in self._config.groups)
        return column if column < len(table) else table.index(self._pool.null_block)


BROKEN = Parts(name="vllm, counts in the smallest blocks", state_group=CountsInSmallestBlocks).overriding(VLLM)


class StateColumn(Scenario):
    """Two equal prompts of 33 tokens, one after the other; blocks of 4 for attention and of 16 for states."""

    id = "vllm-55600"
    title = "A hit goes on from a block that is not its state's"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="55600",
        title=(
            "[Bug] Hybrid mamba prefix-cache hit reads out of bounds: add_request seeds the state index with "
            "cache_config.block_size after it was lowered below mamba_block_size (Xid 31 / illegal memory access)"
        ),
        state="open",
        as_of="2026-09-06",
        seen_in="0.27.1 (53142), and code of 0.31.0",
        mended_in="0.32.0",
        needs=(
            "the second GPU model runner (vllm/v1/worker/gpu)",
            "a hybrid model with Mamba or linear-attention states, in mamba_cache_mode align",
            "a group whose block size is smaller than the states'",
            "a prefix hit",
        ),
    )
    claim = (
        "The state's column is computed from cache_config.block_size, which has become the smallest block size of the "
        "groups. Long hits fault; shorter ones silently restore the state of an unrelated block."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.31.0 the divisor is cache_config.block_size, and the engine core has set that to the minimum over "
            "the groups. In 0.32.0 it is mamba_block_size."
        ),
        passages=(
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/worker/gpu/model_states/mamba_hybrid.py",
                line=118,
                text="(new_req_data.num_computed_tokens - 1) // self.cache_config.block_size",
                says="The column of the state that a hit goes on from.",
            ),
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/engine/core.py",
                line=346,
                text="vllm_config.cache_config.block_size = min(",
                says="The block size is by then the smallest of the groups that take part in prefix caching.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/worker/gpu/model_states/mamba_hybrid.py",
                line=124,
                text="(new_req_data.num_computed_tokens - 1) // mamba_block_size",
                says="The column is counted in the states' own blocks.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 53142",
                says=(
                    "The same line in 0.27.1: a hit of 100,096 tokens asks for column 781 in place of 45, and crashes."
                ),
            ),
        ),
    )
    kind = "state"
    breaks = "A request goes on from a state that is not that of its tokens."
    wrong_figure = "states misread"
    seen_by = ("read",)
    question = "B hits 32 tokens of A's prompt: whose state does it go on from?"
    roles = ("the bug: columns of 4 tokens", "the fix: columns of 16 tokens")
    columns = (
        Column(
            "smallest", BROKEN, "Counts the column in blocks of 4 tokens, the smallest of both groups, as vLLM 0.31.0."
        ),
        Column("own", "vllm", "Counts the column in the states' own blocks of 16 tokens, as vLLM since 0.32.0."),
    )
    settings = settings(num_blocks=32, groups=(GroupSpec(4), GroupSpec(16, "state")))
    guide = (
        GuideStop(
            "A has finished. B has the same prompt, and hits 32 tokens: 8 blocks of attention, and the one state that "
            "stands for them.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "The state is copied to where B goes on. Right, from column 31 // 16 = 1, the state after 32 tokens. Left, "
            "from column 31 // 4 = 7, which B's table does not have: there the null block stands.",
            StateCopied,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "B's last token of the prompt is computed on it. Left, the state has seen none of the 32 tokens, and no "
            "error is raised.",
            StateAdvanced,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B with the same prompt."""
        for _ in range(2):
            lab.add(token_ids=range(1, 34), max_tokens=3)
            lab.run()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the misread states, and the tokens that B has hit."""
        return {"states misread": num_misread_blocks(lab), "tokens hit by B": num_hit_tokens(lab, 1)}

    def answer(self, table: Table) -> str:
        """State that the hit is the same, and what it goes on from."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"Both hit {right['tokens hit by B']} tokens. Counted in the smallest blocks, B goes on from a state of no "
            f"token ({wrong['states misread']} misread); in its own, from that of its prompt."
        )


SCENARIO = StateColumn()
