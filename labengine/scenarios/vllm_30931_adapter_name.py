"""vLLM issue 30931: two LoRA adapters of the same name with other weights share KV blocks.

Up to 0.11.0 vLLM hashed an adapter's id. Ids depend on the order of loading, so that engines did not agree on hashes:
pull request 27211 took the name instead, in 0.11.1. Since 0.31.0 the path is hashed as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.events import BlockCached, PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class NameOnly(HashChain):
    """Hashes an adapter's name, as vLLM 0.11.1 to 0.30.0."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but the adapter's path and id."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] not in ("lora_path", "lora_int_id")))


class IdOnly(HashChain):
    """Hashes an adapter's id, as vLLM before pull request 27211."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but the adapter's name and path."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] not in ("lora", "lora_path")))


BROKEN = Column(
    "as 0.30",
    Parts(name="vllm, as 0.30: adapter's name", hash_chain=NameOnly).overriding(VLLM),
    "Hashes the adapter's name, as vLLM 0.11.1 to 0.30.0: two adapters of one name share blocks.",
)
FIXED = Column(
    "name and path", "vllm", "Hashes name and path, as vLLM since 0.31.0: adapters from two folders share nothing."
)
ID = Column(
    "id",
    Parts(name="vllm, as 0.11.0: adapter's id", hash_chain=IdOnly).overriding(VLLM),
    "Hashes the id, as vLLM up to 0.11.0: another engine numbers its adapters in another order.",
)


SAME, OTHER = "tokens found of the same adapter", "tokens found of another adapter"


def adapter(name: str, path: str, number: int) -> dict[str, str]:
    """Return the extra keys of a request with an adapter."""
    return {"lora": name, "lora_path": path, "lora_int_id": str(number)}


class SharedTier(Experiment):
    """Two engines that number their adapters in opposite order. The pool stands for a cache that both use."""

    question = "Two engines load the adapters 'sql' and 'poem' in opposite order, and share a cache: who finds what?"
    columns = (BROKEN, FIXED, ID)
    settings = settings(num_blocks=12, block_size=4)
    num_first = 2
    """Requests of the first engine."""

    def play(self, lab: Lab) -> None:
        """Run one prompt with each adapter under the first engine's ids, then under the second one's."""
        for adapters in (("sql", "poem"), ("poem", "sql")):
            for number, name in enumerate(adapters, 1):
                lab.add(token_ids=range(1, 6), extra_keys=adapter(name, f"/{name}", number), max_tokens=1)
                lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that the second engine finds, by the adapter that they were computed with."""
        source = {event.block_id: event.request_id for event in events_of(lab, BlockCached)}
        found = {SAME: 0, OTHER: 0}
        for hit in events_of(lab, PrefixHit)[self.num_first :]:
            other = 2 * self.num_first - 1 - hit.request_id
            for block_id in hit.block_ids[0]:
                found[SAME if source[block_id] == other else OTHER] += lab.config.groups[0].block_size
        return found

    def answer(self, table: Table) -> str:
        """State why the id was taken out of the hash."""
        name, both, by_id = (table[column.name] for column in self.columns)
        return (
            f"An id depends on the order in which an engine loads its adapters (the reason for pull request 27211). "
            f"Two engines that share a cache find here {by_id[OTHER]} tokens of the wrong adapter if the id alone is "
            f"hashed. With the name they find {name[SAME]} of the right one, and as many with name and path "
            f"({both[SAME]}), if both load it from the same path."
        )


class AdapterName(Scenario):
    """One prompt with adapter "sql" from one folder, and then with adapter "sql" from another: other weights."""

    id = "vllm-30931"
    title = "Two adapters of one name read each other's KV"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="30931",
        title="[Bug]: Prefix Cache Corruption with LoRA with the same name but different id",
        state="open",
        as_of="2026-09-11",
        seen_in="0.11.1, where pull request 27211 put the name in place of the id, to 0.30.0",
        mended_in="0.31.0, which hashes name and path (by which pull request is not known here)",
        needs=("--enable-lora", "prefix caching", "two adapters that are loaded under one name"),
    )
    claim = (
        "LoRA requests with the same lora_name and different lora_int_id share KV blocks, though their weights differ."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.11.1 to 0.30.0 the name is all that the hash has of an adapter. Since 0.31.0 two adapters of one "
            "name share blocks only if their path is the same, too: files that are replaced in place."
        ),
        passages=(
            CodePassage(
                version="vllm 0.11.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=514,
                text="return [request.lora_request.lora_int_id]",
                says="The id is hashed.",
            ),
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=571,
                text="return [request.lora_request.lora_name]",
                says="The name is hashed, and neither id nor path.",
            ),
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=584,
                text='return [("lora", lora_request.lora_name, lora_request.lora_path)]',
                says="Name and path are hashed.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 48352",
                says=(
                    "An adapter that is loaded anew in place keeps name and id while its weights change; this pull "
                    "request (open as of 2026-09-11) would hash the content of local files."
                ),
            ),
        ),
    )
    kind = "extra keys"
    breaks = "An adapter answers from KV that was computed with the weights of another one."
    wrong_figure = "requests that misread"
    seen_by = ("scope", "read")
    question = "The same tokens with adapter 'sql' of id 1 and of id 2, from two folders: what does the second find?"
    columns = (BROKEN, FIXED, ID)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("the bug: the name alone, as 0.30", "the fix: name and path, as 0.31")
    guide = (
        GuideStop("A's prompt is computed with adapter 'sql', id 1, from /one.", RequestAdded),
        GuideStop("A has ended; its two full blocks are cached.", RequestFinished),
        GuideStop(
            "B has the same tokens and adapter 'sql', id 2, from /two: other weights under the same name.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B finds both blocks of the first adapter. Right, none: the paths differ.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, B has answered from KV of other weights.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"shared tier": SharedTier()}

    def play(self, lab: Lab) -> None:
        """Run A; then B, with another adapter of the same name."""
        for number, path in enumerate(("/one", "/two"), 1):
            lab.add(token_ids=range(1, 10), extra_keys=adapter("sql", path, number), max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def answer(self, table: Table) -> str:
        """State what is found."""
        wrong, right = (table[column.name] for column in (BROKEN, FIXED))
        return (
            f"B finds {wrong['tokens that B finds']} tokens of the other adapter; with the path in the hash "
            f"{right['tokens that B finds']}."
        )


SCENARIO = AdapterName()
