"""A recorded engine's settings from its file, for repeating its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from labengine import events as ev
from labengine.config import ConfigError, EngineConfig, GroupKind, GroupSpec
from labengine.core.editions import LABENGINE, edition
from labengine.core.request import ExtraKeys
from labengine.engine.request_options import salted
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine, Repeatable
from labengine.vllm.conformance.edition_run import arrivals_of
from labengine.vllm.conformance.recorded import Recorded
from labengine.vllm.conformance.settings import (
    LIMITS,
    CannotJudgeError,
    config_of,
    edition_for,
    longest_of,
    refuse_what_no_edition_has,
)

HAS_STATES = "the file does not say whether the model's layers leave states inside chunks"

HAS_TIER = "the engine has an external tier, whose content was not recorded"


def salts_in(facts: Mapping[str, Any]) -> dict[int, ExtraKeys] | None:
    """Return the extra keys of a saved lab's requests; None if the file does not tell them."""
    try:
        adds = [one for one in facts["inputs"] if one["do"] in ("add", "branch")]
        found: dict[int, ExtraKeys] = {}
        for number, one in enumerate(adds):
            keys = tuple((str(name), str(text)) for name, text in one["extra_keys"].items())
            found[number] = salted(keys, str(one["cache_salt"] or ""))
        return found
    except (LookupError, TypeError, AttributeError):
        return None


def with_settings_of(
    recording: RecordedEngine, facts: Mapping[str, Any], salts: Mapping[int, ExtraKeys]
) -> RecordedEngine:
    """Add a saved lab's settings. Its code is not run, so a file with custom classes is not repeatable."""
    if facts.get("parts") is not None:
        why = "the file has custom classes, which are not run: rerun(trust=True) makes a lab from it"
        return replace(recording, why_not_repeatable=why)
    try:
        settings = facts["settings"]
        if settings.get("external") is not None:
            return replace(recording, why_not_repeatable=HAS_TIER)
        parts = edition(settings.get("edition", LABENGINE.name), settings.get("policy", "fcfs"))
        config = _config(recording, {name: settings[name] for name in LIMITS if name in settings})
        has_states = any(group.kind == "state" for group in config.groups)
        if has_states and parts.state_group.has_checkpoints:
            if settings.get("groups") is None:
                return replace(recording, why_not_repeatable=HAS_STATES)
            config = replace(config, groups=tuple(GroupSpec(**group) for group in settings["groups"]))
        return replace(recording, repeatable=Repeatable(config, parts, salts))
    except (LookupError, TypeError, AttributeError, ConfigError) as error:
        return replace(recording, why_not_repeatable=f"the file's settings cannot be used ({error})")


def _config(recording: RecordedEngine, limits: Mapping[str, Any]) -> EngineConfig:
    started = recording.events[0]
    if not isinstance(started, ev.EngineStarted):
        raise ConfigError(recording.why_late)
    groups = tuple(GroupSpec(size, cast(GroupKind, kind), window) for kind, size, window in started.groups)
    return EngineConfig(num_blocks=started.num_blocks, groups=groups, **limits)


def with_settings_of_stream(
    recording: RecordedEngine, stream: Recorded, salts: Mapping[int, ExtraKeys]
) -> RecordedEngine:
    """Add the scheduler's settings from a stream's header, and the edition that decides like it."""
    try:
        refuse_what_no_edition_has(stream.header)
        config, longest = config_of(stream.header, stream.piece), longest_of(stream.header)
    except CannotJudgeError as error:
        return replace(recording, why_not_repeatable=str(error))
    places = arrivals_of(stream.piece)
    return replace(recording, repeatable=Repeatable(config, edition_for(stream.header), salts, longest, places))
