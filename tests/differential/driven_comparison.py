"""A lab that drives vLLM and one on edition vllm, side by side: equal after each call, and equal to vLLM's own state.

vLLM's state comes as a keyframe after each call. A difference to the fold of the events is a violation "said"; the
rules and the oracle find no other.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from differential.driven_workloads import DrivenWorkload
from labengine import Lab
from labengine import events as ev
from labengine.config import ConfigError
from labengine.driven.driven import Driven
from labengine.driven.model import DrivenModel, EngineHost
from labengine.record.snapshot import Snapshot
from labengine.session.session import Session
from labengine.session.settings import LabSettings

MAX_STEPS = 2000

REPORTED = ("step", "scheduled", "preempted", "finished", "sampled", "drafted", "accepted")
"""Fields of a step's report that both labs have."""

MET_BY = {
    ev.BlockEvicted: "eviction",
    ev.StateCopied: "copied state",
    ev.BlockCopied: "copied block",
    ev.HashesMoved: "moved hash",
}


class UnlikeError(Exception):
    """The two labs differ, or vLLM's state differs from its events."""


class Beside:
    """Runs workloads in one process with vLLM. met: what happened in how many; num_steps: steps, equal after each."""

    def __init__(self, driven: Driven) -> None:
        self._host = EngineHost(driven)
        self._keeper = self._model(LabSettings(driven))  # the process ends with its last user
        self.name = self._host.name
        self.met = Counter[str]()
        self.num_steps = self.num_calls = 0

    def close(self) -> None:
        """End the process."""
        self._keeper.release()

    def run(self, workload: DrivenWorkload) -> None:
        """Compare one workload. Raises UnlikeError."""
        common: dict[str, Any] = {**workload.settings, "record": False}
        settings = LabSettings(self._host.driven, **common)
        theirs = Lab._of(Session(settings, self._model(settings)))
        try:
            _Pair(theirs, Lab("simulated", edition="vllm", check=False, **common), self).run(workload)
        finally:
            theirs.close()

    def _model(self, settings: LabSettings) -> DrivenModel:
        return DrivenModel(self._host, settings.engine_config(), settings.max_model_len)


class _Pair:
    """The two labs of one workload."""

    def __init__(self, theirs: Lab, ours: Lab, beside: Beside) -> None:
        self._theirs, self._ours, self._beside = theirs, ours, beside
        self._met: set[str] = set()
        self._kinds, self._said = Counter[type[ev.Event]](), list[str]()
        theirs.hooks.subscribe(self._hear)

    def _hear(self, event: ev.Event) -> None:
        self._kinds[type(event)] += 1
        if isinstance(event, ev.ViolationFound):
            self._said.append(event.message)
        if isinstance(event, ev.PrefixHit) and event.num_tokens:
            self._met.add("hit")

    def run(self, workload: DrivenWorkload) -> None:
        self._note_settings(workload.settings)
        for name, arguments in workload.calls:
            if name != "abort" or arguments["request_id"] in self._ours.session.stepper.engine.requests:
                self._do(name, arguments)
        for _ in range(MAX_STEPS):
            if self._ours.session.stepper.engine.scheduler.is_idle:
                break
            self._do("step", {})
        else:
            raise UnlikeError("the requests do not end")
        self._met |= {word for kind, word in MET_BY.items() if self._kinds[kind]}
        self._beside.met.update(self._met)

    def _do(self, name: str, arguments: dict[str, Any]) -> None:
        self._beside.num_calls += 1
        theirs, ours = (_done(lab, name, arguments) for lab in (self._theirs, self._ours))
        where = f"after call {name} at step {self._ours.session.stepper.engine.step_number}"
        if self._said:
            raise UnlikeError(f"{where}: {self._said[0]}")
        pairs = {"result": (theirs, ours)} if name != "step" else {}
        if name == "step":
            self._beside.num_steps += 1
            pairs |= {one: (getattr(theirs, one), getattr(ours, one)) for one in REPORTED}
            self._note_step(ours)
        else:
            self._note_call(name, arguments, ours)
        expected, found = _facts(self._theirs), _facts(self._ours)
        pairs |= {key: (expected[key], found[key]) for key in expected}
        for what, (one, other) in pairs.items():
            if one != other:
                raise UnlikeError(f"{where}: {what} is {one} in vLLM, {other} in edition vllm")

    def _note_settings(self, settings: dict[str, Any]) -> None:
        groups = settings["groups"]
        happened = {
            "states": any(group.kind == "state" for group in groups),
            "checkpoints": any(group.checkpoint_alignment for group in groups),
            "windows": any(group.kind == "sliding_window" for group in groups),
            "several groups": len(groups) > 1,
            "priorities": settings.get("policy") == "priority",
            **{name: bool(settings.get(name)) for name in ("watermark", "long_prefill_token_threshold")},
            **{name: settings.get(name) is not None for name in ("retention_interval", "max_model_len")},
        }
        if "speculation" in settings:
            happened[f"drafter {settings['speculation'].drafter}"] = True
        self._met |= {name for name, did in happened.items() if did}

    def _note_call(self, name: str, arguments: dict[str, Any], result: Any) -> None:
        words = {"cache_salt": "salt", "extra_keys": "adapter", "images": "image", "n": "answers"}
        words |= {"skip_reading_prefix_cache": "unread"}
        if name == "add":
            self._met |= {word for key, word in words.items() if arguments.get(key)}
        if isinstance(result, ConfigError):
            self._met.add("refusal")
        elif name != "add" and result:
            self._met.add({"abort": "abort", "reset_prefix_cache": "reset"}[name])

    def _note_step(self, report: Any) -> None:
        policy = self._ours.settings.policy
        happened = {
            "preemption": bool(report.preempted),
            "preemption by priority": bool(report.preempted) and policy == "priority",
            "draft accepted": any(report.accepted.values()),
            "draft rejected": any(report.accepted[one] < num for one, num in report.drafted.items()),
        }
        self._met |= {name for name, did in happened.items() if did}


def _done(lab: Lab, name: str, arguments: dict[str, Any]) -> Any:
    try:
        return getattr(lab, name)(**arguments)
    except ConfigError as error:
        return _Refusal(str(error))


class _Refusal(ConfigError):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Refusal)

    __hash__ = None  # type: ignore[assignment]


def _facts(lab: Lab) -> dict[str, Any]:
    """Return a lab's state without hashes, which differ: blocks of one key are told by their place in the map."""
    snapshot: Snapshot = lab.session.stepper.engine.snapshot()
    return {
        "requests": snapshot.requests,
        "ref counts": [block.ref_count for block in snapshot.blocks],
        "owners": [block.owners for block in snapshot.blocks],
        "hashes": [len(block.grouped_hashes) for block in snapshot.blocks],
        "contents": [block.token_ids for block in snapshot.blocks],
        "free queue": snapshot.free_queue,
        "prefix map": sorted((key.partition(":")[0], ids) for key, ids in snapshot.prefix_map.items()),
        "pins": snapshot.pins,
    }
