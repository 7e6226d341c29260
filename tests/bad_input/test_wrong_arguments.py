"""Each argument of each public call, of a wrong type: an error that names it, and nothing has changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.lab import Lab
from labengine.session.compare.comparing import compare
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.trace import Trace
from labengine.session.stepper import LabClosedError
from labengine_widgets.why import WhyError

WRONG = (None, 5, -1, "x", [], {}, object(), True, 1.5, float("nan"), b"x", "\ud800", "a\0b", "x" * 5_000, 10**30)
"""One of each kind. Where one of them is right, TAKES says so."""

OURS = (ConfigError, WhyError, LabClosedError, KeyError, IndexError)
"""What a refusal may be: the last two for a number of something that is not there."""

INTS = (5, 10**30)
TEXTS = ("x", "a\0b", "x" * 5_000)
WORKLOAD = {"num_blocks": 8, "block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 64, "requests": []}

GOOD: dict[str, Any] = {
    "request_id": 0,
    "text": "x",
    "step": 1,
    "token_id": 1,
    "block_id": 0,
    "layer": 0,
    "call": lambda: 1,
    "messages": [{"role": "user", "content": "x"}],
    "prompts": "a",
    "other": None,
    "workload": WORKLOAD,
    "left": "labengine",
    "right": "vllm",
    "id": "nano-vllm-71",
    "block_size": 4,
    "path": "page.html",
}
"""What the other arguments are meanwhile, where they must be given."""

TAKES: dict[str, tuple[object, ...]] = {
    "token": (None, *INTS),
    **dict.fromkeys(("at", "until", "edition", "parts", "step", "next_token", "hooks", "top_p", "overlap"), (None,)),
    **dict.fromkeys(
        ("groups", "external", "speculation", "attention", "window", "kind", "next_victim", "runner"), (None,)
    ),
    **dict.fromkeys(
        ("max_blocks", "seed", "top_k", "retention_interval", "max_model_len", "checkpoint_alignment"), (None, *INTS)
    ),
    **dict.fromkeys(("num_steps", "max_tokens", "beams", "max_num_seqs", "max_num_batched_tokens", "block_size"), INTS),
    **dict.fromkeys(("long_prefill_token_threshold", "block", "layer", "block_id"), INTS),
    **dict.fromkeys(("cuda_graphs", "check", "ignore_eos", "skip_reading_prefix_cache"), (True,)),
    **dict.fromkeys(("event", "moment"), (None, 5)),
    **dict.fromkeys(("text", "right", "left", "intro", "appendix"), TEXTS),
    "trust": (True,),
    "max_bytes": (None, *INTS),
    "max_seconds": (5, 1.5),
    "temperature": (5, 1.5, 10**30),
    "keep_finished": (None, *INTS),
    "keep_inputs": (None, *INTS),
    "num_blocks": (5,),
    "record": (*INTS, True),
    "token_id": (-1, *INTS),
    "title": (None, *TEXTS),
    "path": ("x",),
    "prompt": TEXTS,
    "priority": (-1, *INTS),
    "prompts": ([], *TEXTS),
    "cache_salt": (None, *TEXTS),
    "extra_keys": (None, {}),
    "images": (None, {}),
    "selection": (None,),
    "dtype": (None, *TEXTS, "\ud800"),
    "device": (None, *TEXTS, "\ud800"),
    "next_victim": (True,),
    "kind": ("full",),
}
"""What each argument takes of the wrong ones: documented, or refused for another reason than what it is."""

NAMED: dict[str, tuple[str, ...]] = {
    "asserting": ("asserting", "production classes"),
    "num_steps": ("step",),
    "request_id": ("request",),
    "names": ("view",),
    "selected": ("question", "selection"),
    "path": ("path", "cannot be written", "cannot be read"),
    "prompts": ("prompt",),
    "token_ids": ("token_ids", "prompt"),
    "messages": ("conversation", "message"),
    "at": ("at", "step"),
    "other": ("side", "the lab that"),
    "left": ("edition", "compare"),
    "right": ("edition", "compare"),
    "id": ("scenario",),
    "name": ("model",),
    "text": ("prompt", "text"),
    "kind": ("kind", "wait for"),
    "block_id": ("block",),
    "layer": ("layer", "has no KV"),
    "step": ("step", "comparison.left"),
    "event": ("event", "comparison.left"),
    "hash": ("hash", "content"),
}
"""Words by which a message names an argument, where it is not the name itself."""

KEYWORDS: dict[str, tuple[str, ...]] = {
    "add": ("max_tokens", "temperature", "top_k", "top_p", "seed", "ignore_eos"),
    "why": ("block", "request", "hash", "event", "next_victim"),
    "break_on": ("block_id", "token_id"),
    "fork": ("num_blocks", "overlap", "check", "record", "cuda_graphs", "groups", "external", "seed"),
}
"""Those that a signature calls **sampling, **subject and the like."""


def busy_lab() -> Lab:
    """One request that runs and one that waits."""
    lab = Lab("simulated", num_blocks=12, block_size=4)
    lab.add(token_ids=range(6), max_tokens=4)
    lab.step()
    lab.add(token_ids=range(9), max_tokens=4)
    return lab


def busy_pair() -> Comparison:
    both = compare("labengine", "vllm", num_blocks=12, block_size=4)
    both.add(token_ids=range(6), max_tokens=4)
    both.step()
    return both


def arguments_of(call: Callable[..., object], name: str) -> list[str]:
    """All that a call takes, but `self` and unknown keywords."""
    parameters = inspect.signature(call).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD] + [*KEYWORDS.get(name, ())]


def call_with(call: Callable[..., Any], argument: str, value: object) -> None:
    """Call with good values for what must be given, and this one."""
    positional: list[object] = []
    keywords: dict[str, object] = {argument: value}
    known = inspect.signature(call).parameters
    if "token_ids" in known and argument not in ("prompt", "token_ids"):
        keywords["token_ids"] = [1, 2]
    for parameter in known.values():
        if parameter.kind is parameter.VAR_POSITIONAL and parameter.name == argument:
            positional, keywords = [value], {}
        elif parameter.default is parameter.empty and parameter.name in GOOD and parameter.name != argument:
            keywords[parameter.name] = GOOD[parameter.name]
    result = call(*positional, **keywords)
    if inspect.isgenerator(result):
        result.close()
    if isinstance(result, (Lab, Comparison, Trace)):
        result.close()


def is_taken(argument: str, value: object) -> bool:
    return any(value is taken or (type(value) is type(taken) and value == taken) for taken in TAKES.get(argument, ()))


def assert_refused_or_taken(call: Callable[..., Any], argument: str, value: object) -> bool:
    """Call; True if it was refused, by an error of ours that names the argument."""
    try:
        call_with(call, argument, value)
    except OURS as error:
        words = NAMED.get(argument, (argument,))
        message = str(error)
        assert is_taken(argument, value) or any(word in message for word in words), f"{argument}={value!r}: {message}"
        return True
    assert is_taken(argument, value), f"{argument}={value!r} was taken"
    return False


def values_for(method: str, argument: str) -> list[object]:
    """All of them; a page is not written for those that are right."""
    return [value for value in WRONG if method != "export_html" or not is_taken(argument, value)]


def methods_of(kind: type) -> list[str]:
    """Public methods that take something."""
    names = [name for name in dir(kind) if not name.startswith("_") and callable(inspect.getattr_static(kind, name))]
    return [name for name in names if len(inspect.signature(getattr(kind, name)).parameters) > 1]


def settable(kind: type) -> list[str]:
    attributes = ((name, inspect.getattr_static(kind, name)) for name in dir(kind))
    return [name for name, value in attributes if isinstance(value, property) and value.fset is not None]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is taken is written there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "run.lab"
    with busy_lab() as lab:
        lab.save(path)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", methods_of(Lab))
def test_methods_of_a_lab(method: str) -> None:
    for argument in arguments_of(getattr(Lab, method), method)[1:]:
        lab = busy_lab()
        for value in values_for(method, argument):
            before, end = lab.snapshot(), lab.timeline.end if lab.timeline else 0
            if assert_refused_or_taken(getattr(lab, method), argument, value):
                assert (lab.snapshot(), lab.timeline and lab.timeline.end) == (before, end), f"{argument}={value!r}"
                assert lab.check() == [] and lab.breakpoints == () and not lab.is_running
            else:
                lab.close()
                lab = busy_lab()
        lab.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", methods_of(Comparison))
def test_methods_of_a_comparison(method: str) -> None:
    for argument in arguments_of(getattr(Comparison, method), method)[1:]:
        both = busy_pair()
        for value in values_for(method, argument):
            before = both.snapshots
            if assert_refused_or_taken(getattr(both, method), argument, value):
                assert both.snapshots == before, f"{argument}={value!r}"
                assert both.breakpoints == () == both.left.breakpoints == both.right.breakpoints  # type: ignore[attr-defined]
            else:
                both.close()
                both = busy_pair()
        both.close()


@pytest.mark.parametrize("method", methods_of(Trace))
def test_methods_of_an_opened_trace(saved: Path, method: str) -> None:
    with labengine.open(saved) as trace:
        before = trace.snapshot()
        for argument in arguments_of(getattr(Trace, method), method)[1:]:
            for value in values_for(method, argument):
                assert_refused_or_taken(getattr(trace, method), argument, value)
        assert trace.snapshot() == before


@pytest.fixture(params=["a lab", "a comparison", "a trace"])
def anything(request: pytest.FixtureRequest, saved: Path) -> Iterator[Any]:
    makers: dict[str, Callable[[], Any]] = {
        "a lab": busy_lab,
        "a comparison": busy_pair,
        "a trace": lambda: labengine.open(saved),
    }
    with makers[request.param]() as made:
        yield made


def test_what_can_be_set(anything: Any) -> None:
    for name in settable(type(anything)):
        for value in WRONG:
            with suppress(ConfigError):
                setattr(anything, name, value)
                assert is_taken(name, value), f"{name} = {value!r} was taken"
            setattr(anything, name, None)


@pytest.mark.parametrize("argument", [name for name in inspect.signature(Lab).parameters if name != "unknown"])
def test_making_a_lab(argument: str) -> None:
    def make(**keywords: Any) -> Lab:
        return Lab(**{"model": "simulated", "num_blocks": 12, "block_size": 4} | keywords)  # type: ignore[arg-type]

    for value in WRONG:
        assert_refused_or_taken(make, argument, value)


@pytest.mark.parametrize(
    "name",
    ["DiskStore", "GroupSpec", "HostStore", "SamplingParams", "bug", "compare", "model_path", "open", "simulate"],
)
def test_functions_of_the_package(name: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = getattr(labengine, name)
    monkeypatch.setitem(GOOD, "path", saved if name == "open" else saved.parent / "kv")
    for argument in arguments_of(call, name):
        for value in WRONG:
            assert_refused_or_taken(call, argument, value)


@pytest.mark.parametrize("value", [value for value in WRONG if not is_taken("layer", value)])
def test_kv_of_the_real_model(loaded_smollm2: Lab, value: Any) -> None:
    for arguments, name in (((value, 0), "block"), ((0, value), "layer")):
        with pytest.raises((ConfigError, IndexError), match=name):
            loaded_smollm2.kv(*arguments)


@pytest.mark.parametrize("name", ["dtype", "device"])
@pytest.mark.parametrize("value", WRONG[1:])
def test_a_real_model_is_refused_before_it_is_loaded(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Lab("smollm2", **{name: value})


def test_what_a_function_is_called_with() -> None:
    with busy_lab() as lab:
        for call, name in ((lab.run, "until"), (lab.break_on, "kind")):
            with pytest.raises(ConfigError, match=rf"{name} must be a function of \((lab|event)\)"):
                call(lambda: True)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"call must be a function of \(\)"):
            lab.post(lambda one: one)  # type: ignore[misc, arg-type]
        lab.run(until=print)
