"""Upstream bugs, reproduced: one file per report, named for the engine, the number and the defect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, TextIO

from labengine.config import ConfigError, shown
from labengine.scenarios.bug_list import BugList
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.words import refuse_unused
from labengine.system.code_roles import Role, plays

plays(__name__, Role.USERS)

if TYPE_CHECKING:
    from labengine.scenarios.scenario import Scenario

SCENARIOS: dict[str, str] = {
    "atlas-1193": "labengine.scenarios.atlas_1193_shared_tail",
    "diffulex-44": "labengine.scenarios.diffulex_44_stale_slots",
    "dingocache-377": "labengine.scenarios.dingocache_377_save_reads_late",
    "ferrox-61": "labengine.scenarios.ferrox_61_window_kept",
    "imp-963": "labengine.scenarios.imp_963_window_rounded_up",
    "inference-sim-704": "labengine.scenarios.inference_sim_704_head_first",
    "lmcache-3322": "labengine.scenarios.lmcache_3322_full_external_hit",
    "lmcache-5095": "labengine.scenarios.lmcache_5095_unpinned_twice",
    "mini-sglang-111": "labengine.scenarios.mini_sglang_111_aborted_and_finished",
    "mini-sglang-142": "labengine.scenarios.mini_sglang_142_no_remap",
    "minivllm-75": "labengine.scenarios.minivllm_75_needless_preemption",
    "nano-vllm-114": "labengine.scenarios.nano_vllm_114_full_hit",
    "nano-vllm-190": "labengine.scenarios.nano_vllm_190_graph_table",
    "nano-vllm-207": "labengine.scenarios.nano_vllm_207_stale_count",
    "nano-vllm-208": "labengine.scenarios.nano_vllm_208_hit_in_flight",
    "nano-vllm-219": "labengine.scenarios.nano_vllm_219_duplicate_blocks",
    "nano-vllm-243": "labengine.scenarios.nano_vllm_243_own_tokens",
    "nano-vllm-71": "labengine.scenarios.nano_vllm_71_off_by_one",
    "nano-vllm-f64d821": "labengine.scenarios.nano_vllm_f64d821_chain_restart",
    "openvino-genai-4190": "labengine.scenarios.openvino_genai_4190_rejected_late",
    "openvino-genai-4332": "labengine.scenarios.openvino_genai_4332_beam_without_blocks",
    "pegaflow-450": "labengine.scenarios.pegaflow_450_hash_granularity",
    "rapid-mlx-196": "labengine.scenarios.rapid_mlx_196_copied_by_reference",
    "sglang-20182": "labengine.scenarios.sglang_20182_waiting_holds_blocks",
    "sglang-21125": "labengine.scenarios.sglang_21125_drafter_left_out",
    "sglang-27444": "labengine.scenarios.sglang_27444_load_source_evicted",
    "sglang-27779": "labengine.scenarios.sglang_27779_stale_mapping",
    "sglang-28282": "labengine.scenarios.sglang_28282_prompt_not_counted",
    "sglang-29860": "labengine.scenarios.sglang_29860_last_leaf_dropped",
    "sglang-32477": "labengine.scenarios.sglang_32477_reserved_page",
    "sglang-jax-1618": "labengine.scenarios.sglang_jax_1618_adopted_then_freed",
    "sglang-jax-994": "labengine.scenarios.sglang_jax_994_two_release_paths",
    "tokenspeed-976": "labengine.scenarios.tokenspeed_976_late_chain",
    "transformers-46117": "labengine.scenarios.transformers_46117_fork_without_room",
    "vllm-12621": "labengine.scenarios.vllm_12621_predictable_hash",
    "vllm-29387": "labengine.scenarios.vllm_29387_state_of_this_step",
    "vllm-30931": "labengine.scenarios.vllm_30931_adapter_name",
    "vllm-32255": "labengine.scenarios.vllm_32255_abort_during_load",
    "vllm-38715": "labengine.scenarios.vllm_38715_same_step_hit",
    "vllm-39702": "labengine.scenarios.vllm_39702_unpinned_hit",
    "vllm-39734": "labengine.scenarios.vllm_39734_never_admitted",
    "vllm-42656": "labengine.scenarios.vllm_42656_partial_blocks",
    "vllm-43569": "labengine.scenarios.vllm_43569_uncommitted_hash",
    "vllm-43810": "labengine.scenarios.vllm_43810_padding_slot",
    "vllm-44151": "labengine.scenarios.vllm_44151_lookahead_sent",
    "vllm-44409": "labengine.scenarios.vllm_44409_two_phase_allocation",
    "vllm-44701": "labengine.scenarios.vllm_44701_untagged_keys",
    "vllm-45238": "labengine.scenarios.vllm_45238_last_state_alone",
    "vllm-45357": "labengine.scenarios.vllm_45357_freed_in_flight",
    "vllm-45704": "labengine.scenarios.vllm_45704_stored_before_written",
    "vllm-47235": "labengine.scenarios.vllm_47235_stored_once",
    "vllm-47728": "labengine.scenarios.vllm_47728_window_in_flight",
    "vllm-48481": "labengine.scenarios.vllm_48481_zeroed_after_load",
    "vllm-49097": "labengine.scenarios.vllm_49097_skipped_request",
    "vllm-49674": "labengine.scenarios.vllm_49674_preemption_cascade",
    "vllm-50438": "labengine.scenarios.vllm_50438_next_token",
    "vllm-55600": "labengine.scenarios.vllm_55600_state_column",
    "vllm-57104": "labengine.scenarios.vllm_57104_loads_fill_the_pool",
    "vllm-57610": "labengine.scenarios.vllm_57610_sparse_retention",
    "vllm-57841": "labengine.scenarios.vllm_57841_stranded_loads",
    "vllm-7018": "labengine.scenarios.vllm_7018_tables_of_misses",
    "vllm-9744": "labengine.scenarios.vllm_9744_new_weights",
    "vllm-ascend-16270": "labengine.scenarios.vllm_ascend_16270_alignment",
    "vllm-ascend-16662": "labengine.scenarios.vllm_ascend_16662_completion_filtered",
}
"""Per scenario id the module that holds it as `SCENARIO`; imported on first use."""


def bug(id: str) -> Scenario:
    """Return the scenario with this id. Raises ConfigError, naming the nearest match and all ids."""
    if not isinstance(id, str) or id not in SCENARIOS:
        near = [known for known in SCENARIOS if str(id) and known.endswith(f"-{id}")]
        near = near or get_close_matches(str(id), SCENARIOS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no scenario {shown(id)}; there are {', '.join(map(repr, SCENARIOS))}.{hint}")
    module = import_module(SCENARIOS[id])
    refuse_unused(module)
    scenario: Scenario = module.SCENARIO
    return scenario


def bugs(engine: str | None = None, kind: str | None = None) -> BugList:
    """Return the scenarios, a list that prints as a table; only those of an engine, or of a kind of bug.

    engine: the beginning of an id, "vllm". kind: a key of KINDS, "full hit". Letter case does not matter. Raises
    ConfigError for an unknown one, naming all that are known.
    """
    wanted_engine, wanted_kind = _known("engine", engine, engines()), _known("kind", kind, KINDS)
    return BugList(
        scenario
        for scenario in map(bug, sorted(SCENARIOS, key=_engine_and_number))
        if wanted_engine in (None, scenario.engine) and wanted_kind in (None, scenario.kind)
    )


def bugs_named(words: Sequence[str]) -> BugList:
    """Return the scenarios that words select: an engine, a kind of bug, or both in this order; all without words."""
    engine, kind_words = (words[0], words[1:]) if words and words[0].lower() in engines() else (None, words)
    kind = " ".join(kind_words) or None
    if engine is None and kind is not None and kind.lower() not in map(str.lower, KINDS):
        known = f"no engine ({', '.join(engines())}) and no kind of bug ({', '.join(KINDS)})"
        raise ConfigError(f"{shown(kind)} is {known}")
    return bugs(engine, kind)


def engines() -> list[str]:
    """Return the engines that the scenarios are about, in alphabetical order."""
    return sorted({id.rpartition("-")[0] for id in SCENARIOS})


def _engine_and_number(id: str) -> tuple[str, int, str]:
    engine, _, number = id.rpartition("-")
    return engine, int(number) if number.isdecimal() else 0, id


def _known(what: str, name: object, known: Iterable[str]) -> str | None:
    """Return the known name that equals `name` but for letter case; None for None. ConfigError for another one."""
    by_name = {one.lower(): one for one in known}
    if name is None:
        return None
    if not isinstance(name, str) or name.lower() not in by_name:
        near = get_close_matches(str(name).lower(), by_name, n=1)
        hint = f" Did you mean {by_name[near[0]]!r}?" if near else ""
        names = ", ".join(map(repr, by_name.values()))
        raise ConfigError(f"there is no {what} {shown(name)}; there are {names}.{hint}")
    return by_name[name.lower()]


def print_story(id: str | None, out: TextIO) -> None:
    """Print the verdict on one report; without an id, the list of scenarios."""
    print(listing() if id is None else story(bug(id)), file=out)


def story(scenario: Scenario) -> str:
    """Return the verdict, the further experiments' tables, and the facts of the report with its URL."""
    verdict = scenario.verdict()
    tables = [str(experiment.table()) for experiment in scenario.experiments.values()]
    facts = [] if scenario.report is None else [*scenario.report.facts(), *verdict.conclusion.facts()]
    listed = "\n".join(fill(f"{label}: {text}", 100, subsequent_indent="  ") for label, text in facts)
    url = "" if scenario.report is None else scenario.report.url
    return "\n\n".join(filter(None, [str(verdict), *tables, listed, url]))


def listing() -> str:
    """Return the scenarios, one per line."""
    width = max(map(len, SCENARIOS))
    return "\n".join(f"{id.ljust(width)}  {bug(id).title}" for id in SCENARIOS)
