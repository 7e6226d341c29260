"""A lab's calls in the words of driver.py: settings and requests; and its errors as exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labengine.config import TUNING, ConfigError, EngineConfig, GroupSpec, shown
from labengine.core.request import Request
from labengine.driven.driven import Patch
from labengine.driven.process import EngineLostError
from labengine.engine.failure import RecordedFailureError
from labengine.engine.request_options import RequestOptions
from labengine.events import StepFailed
from labengine.record.wording import readable

MAX_LINES = 16
"""Most lines of the engine's traceback that are shown."""


class EngineRaisedError(RecordedFailureError):
    """Raised when a driven engine raises, hangs or dies in a call; the lab is where it was before that call."""

    def __init__(self, failed: StepFailed, trace: str = "") -> None:
        super().__init__(failed)
        if trace:
            self.add_note(trace)

    def __str__(self) -> str:
        return f"{self.failed.error} in {self.failed.method}: {self.failed.message}"


def raised_in(step: int, error: Sequence[str]) -> EngineRaisedError:
    """Return the exception for an error in driver.py's answer."""
    name, message, trace, _, method = error
    if name == "EndlessWorkloadError":
        message = f"the call takes too much processor time or waits forever, at {message}"
    failed = StepFailed(step, readable(name), readable(message, 1000), readable(method))
    return EngineRaisedError(failed, last_frames(trace))


def last_frames(trace: str) -> str:
    """Return the last whole frames of the engine's traceback, without control characters."""
    lines = trace.strip().splitlines()[-MAX_LINES:]
    first = next((number for number, line in enumerate(lines) if line.startswith('  File "')), 0)
    return "\n".join(readable(line, 200) for line in lines[first:])


def lost_in(step: int, lost: EngineLostError, patches: Sequence[Patch]) -> EngineRaisedError:
    """Return the exception for an engine whose process has ended or does not answer. It cannot tell in which method."""
    place = " and ".join(["the engine", *(f"your {patch.method}" for patch in patches)])
    return EngineRaisedError(StepFailed(step, "EngineLost", readable(str(lost), 1000), place))


def is_answer(answer: dict[str, Any]) -> bool:
    """Return whether a driver has written this answer, as far as its shape tells."""
    return is_error(answer.get("error", 0)) and isinstance(answer.get("messages"), list)


def is_error(told: object) -> bool:
    """Return whether a driver tells an error, or None for no error, as far as the shape tells."""
    return told is None or (isinstance(told, list) and len(told) == 5 and all(type(one) is str for one in told))


def wire_settings(config: EngineConfig, policy: str) -> dict[str, Any]:
    """Return the settings of a new engine."""
    same = "num_blocks", "max_num_seqs", "max_num_batched_tokens", *TUNING
    smallest = min(group.block_size for group in config.groups)
    more: dict[str, Any] = {"max_model_len": config.max_model_len} if config.max_model_len else {}
    if config.num_drafts:
        more["speculation"] = [config.num_drafts, config.drafter]
    return {
        **{name: getattr(config, name) for name in same},
        "hash_block_size": config.hash_block_size or smallest,
        "groups": [_wire_group(group) for group in config.groups],
        "is_async": False,
        "transfers": None,
        "policy": policy,
        **more,
    }


def workload_of(settings: Mapping[str, Any], calls: Sequence[Sequence[Any]], *, caches_all: bool) -> dict[str, Any]:
    """Return a lab's calls as a workload of a script, whose settings have the seeds of all requests."""
    operations, seeds = list[list[Any]](), list[int]()
    for what, *values in calls:
        if what == "add":
            options = dict(values.pop())
            seeds.append(options.pop("seed", len(seeds)))
            values += [options] if options else []
            while values[-1] is None:
                values.pop()
        operations.append([what, *values])
    return {"settings": {**settings, "caches_all": caches_all, "seeds": seeds}, "operations": operations}


def _wire_group(group: GroupSpec) -> list[Any]:
    of_states = ["state", group.checkpoint_alignment] if group.kind == "state" else []
    return [group.block_size, group.window, *of_states]


def add_operation(request: Request, known: Sequence[str]) -> list[Any]:
    """Return the operation that queues a request. known: options that the engine has.

    Raises ConfigError for an option that it lacks.
    """
    options = RequestOptions.of(request)
    given = {
        "priority": request.priority or None,
        "adapter": options.other_keys or None,
        "images": [list(image) for image in request.images] or None,
        "unread": request.sampling.skip_reading_prefix_cache or None,
        "salt": options.cache_salt,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    for name in asked:
        if name not in known:
            raise ConfigError(f"this engine's requests have no {WORDS[name]}: omit it")
    if options.other_keys:
        asked["adapter"] = _adapter(options.other_keys)
    if "arrival" in known and request.arrival != request.request_id:
        asked["arrival"] = request.arrival
    if request.sampling.seed is not None:
        asked["seed"] = request.sampling.seed
    salt = asked.pop("salt", None)
    return ["add", list(request.token_ids), request.sampling.max_tokens, salt, asked]


def _adapter(keys: Mapping[str, str]) -> list[Any]:
    """Return an adapter's name, number and path. Raises ConfigError for keys that are not an adapter's."""
    number = keys.get("lora_int_id", "1")
    is_whole = all(keys.get(name) for name in ("lora", "lora_path")) and number.isdecimal() and int(number) > 0
    if not is_whole or set(keys) - {"lora", "lora_path", "lora_int_id"}:
        raise ConfigError(
            "extra_keys of this engine name an adapter: use {'lora': name, 'lora_path': path}, and for its number, if "
            f"any, 'lora_int_id'; got {shown(dict(keys))}"
        )
    return [keys["lora"], int(number), keys["lora_path"]]


WORDS = {
    "priority": "priority",
    "adapter": "extra_keys",
    "images": "images",
    "unread": "skip_reading_prefix_cache",
    "salt": "cache_salt",
}
"""Options of `Lab.add` by their names in an operation."""
