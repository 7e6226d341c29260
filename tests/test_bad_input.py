"""Bad input: a clear word on what to do instead, and nothing changed by it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from labengine import ConfigError, GroupSpec, Parts
from labengine.core.prefix_cache import LateMerge
from labengine.engine.forward.native import NativeForward
from labengine.events import Event, RequestScheduled, StepEnded, StepRolledBack, TokenSampled
from labengine.lab import Lab

PROMPTS = ("Once upon a time there was a block that waited", "The capital of France is")


@pytest.fixture(autouse=True)
def sigint_is_heard() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which has its children ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Twelve blocks of four tokens, no weights, with one request running and one waiting."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=range(6), max_tokens=4)
        lab.step()
        lab.add(token_ids=range(9), max_tokens=4)
        yield lab


@contextmanager
def refused(lab: Lab, error: type[Exception], *words: str) -> Iterator[None]:
    """What is called inside raises `error`, says all the words, and leaves the lab as it was, ready to go on."""
    before, moment = lab.snapshot(), lab.timeline.end if lab.timeline else None
    with pytest.raises(error) as caught:
        yield
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert lab.snapshot() == before and lab.timeline is not None and lab.timeline.end == moment
    assert lab.check() == []


# -- making a lab ------------------------------------------------------------------------------------------------------


def test_an_unknown_model_is_told_the_nearest_and_what_else_works() -> None:
    with pytest.raises(ConfigError, match=r"no model 'smolm2', did you mean 'smollm2'\?.*local directory"):
        Lab("smolm2")


def test_an_unknown_edition_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown edition 'nano-vlm'.*'nano-vllm\+243'.*mean 'nano-vllm'\?"):
        Lab("simulated", edition="nano-vlm")


@pytest.mark.parametrize("size", [0, -4, 2.5, True, "16"])
def test_a_block_holds_at_least_one_token(size: Any) -> None:
    with pytest.raises(ConfigError, match="block_size must be"):
        Lab("simulated", block_size=size)


@pytest.mark.parametrize("name", ["num_blocks", "max_num_seqs", "max_num_batched_tokens"])
def test_sizes_start_at_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        Lab("simulated", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "meant"), [("num_block", "num_blocks"), ("blocksize", "block_size")])
def test_an_unknown_keyword_of_lab_is_told_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"Lab\(\) has no keyword '{given}'; did you mean '{meant}'\?"):
        Lab("simulated", **{given: 8})  # type: ignore[arg-type]


def test_a_keyword_that_is_like_none_is_told_all_there_are() -> None:
    with pytest.raises(TypeError, match=r"no keyword 'unknown'; it knows model, num_blocks, .*seed$"):
        Lab("simulated", unknown=1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"watermark": 1.5}, "watermark is a share of the pool, from 0 to below 1"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold must be at least 0"),
        ({"retention_interval": 6}, "retention_interval must be a multiple of 4 tokens, or 0"),
        ({"groups": []}, "at least one KV-cache group"),
        ({"groups": [4]}, "groups must be GroupSpecs"),
        ({"groups": [GroupSpec(4), GroupSpec(6)]}, "block_size 6 must be a multiple of 4"),
        ({"edition": "nano-vllm", "watermark": 0.5}, "this edition has no watermark"),
        ({"edition": "nano-vllm", "external": "host"}, "this edition has no external tier"),
        ({"edition": "nano-vllm", "groups": [GroupSpec(4, "sliding_window", 8)]}, "no sliding-window groups"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Lab("simulated", **{"num_blocks": 12, "block_size": 4, **settings})


def test_a_real_model_brings_its_own_groups() -> None:
    with pytest.raises(ConfigError, match="groups are for the simulated model"):
        Lab("smollm2", groups=[GroupSpec(4)])


# -- adding a request --------------------------------------------------------------------------------------------------


def test_a_prompt_longer_than_the_pool_is_told_how_many_blocks_it_needs(lab: Lab) -> None:
    with refused(lab, ConfigError, "a prompt of 50 tokens", "needs 14 blocks", "the pool has 12", "num_blocks=14"):
        lab.add(token_ids=range(50), max_tokens=4)
    with refused(lab, ConfigError, "needs 13 blocks"):
        lab.add(token_ids=range(2), max_tokens=48)
    assert lab.add(token_ids=range(2), max_tokens=47) == 2, "47 tokens fill the pool: the last one needs no slot"


def test_a_prompt_as_long_as_the_pool_runs_in_exactly_the_blocks_told() -> None:
    with Lab("simulated", num_blocks=14, block_size=4) as lab:
        lab.generate([list(range(50))], max_tokens=4)
        assert lab.stats().peak_used_blocks == 14


def test_a_prompt_beyond_the_models_positions_is_refused(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "8192 positions", "shorten the prompt or lower max_tokens"):
        smollm2.add("Hello", max_tokens=8192)


@pytest.mark.parametrize("empty", [{"prompt": ""}, {"token_ids": []}, {"token_ids": ()}])
def test_an_empty_prompt_is_refused(lab: Lab, empty: dict[str, Any]) -> None:
    with refused(lab, ConfigError, "the prompt is empty", "at least one token"):
        lab.add(**empty)


def test_an_empty_text_is_refused_by_the_real_model_too(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "the prompt is empty"):
        smollm2.add("")


@pytest.mark.parametrize("wrong", [{}, {"prompt": "a", "token_ids": [1]}])
def test_a_request_has_one_prompt(lab: Lab, wrong: dict[str, Any]) -> None:
    with refused(lab, ConfigError, "either a prompt or token_ids"):
        lab.add(**wrong)


def test_a_prompt_is_a_text(lab: Lab) -> None:
    with refused(lab, ConfigError, "a prompt is a text, got list", "token_ids=[...]"):
        lab.add([1, 2, 3])  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, 1.5, "a", None, True])
def test_token_ids_are_integers_from_0(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, f"token_ids[1] is {wrong!r}", "integers from 0"):
        lab.add(token_ids=[3, wrong])


@pytest.mark.parametrize(
    "wrong", [np.float64(1.0), np.True_, np.array([1]), torch.tensor(1.0), torch.tensor(True), 2**63]
)
def test_token_ids_of_numpy_and_torch_are_integers_too(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, f"token_ids[1] is {wrong!r}", "integers from 0"):
        lab.add(token_ids=[3, wrong])


@pytest.mark.parametrize("wrong", [5, "abc", b"abc"])
def test_token_ids_are_a_list(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "token_ids must be a list of integers"):
        lab.add(token_ids=wrong)


@pytest.mark.parametrize("ids", [np.arange(5), torch.arange(5), [np.int64(i) for i in range(5)], (i for i in range(5))])
def test_integers_of_numpy_and_torch_are_taken_and_become_plain_ones(lab: Lab, ids: Any) -> None:
    one = lab.add(token_ids=ids, max_tokens=np.int64(2), top_k=torch.tensor(3), temperature=np.float32(0.5))
    lab.run()
    state = lab.snapshot().requests[one]
    assert state.token_ids[:5] == (0, 1, 2, 3, 4) and len(state.token_ids) == 7
    assert {type(token) for token in state.token_ids} == {int}


@pytest.mark.parametrize("prompts", [np.arange(3), torch.arange(3), [np.int64(0), 1, 2], (0, 1, 2)])
def test_generate_takes_one_row_of_token_ids_of_any_kind(lab: Lab, prompts: Any) -> None:
    (output,) = lab.generate(prompts, max_tokens=2)
    assert lab.snapshot().requests[output.request_id].token_ids[:3] == (0, 1, 2)
    assert len(lab.generate(np.ones((2, 3), dtype=np.int64), max_tokens=2)) == 2


@pytest.mark.parametrize("wrong", [None, 5, b"ab"])
def test_generate_wants_prompts(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "prompts are texts or lists of token ids"):
        lab.generate(wrong)


@pytest.mark.parametrize("wrong", [None, "hi", [], {"role": "user", "content": "hi"}])
def test_a_conversation_is_a_list_of_messages(lab: Lab, wrong: Any) -> None:
    with refused(lab, ConfigError, "a conversation is a list of messages"):
        lab.chat(wrong)


@pytest.mark.parametrize("salt", [5, b"x", "\ud800"])
def test_a_salt_that_cannot_be_hashed_is_refused_before_it_stops_every_step(lab: Lab, salt: Any) -> None:
    for call in (lambda: lab.add("a b c d e", cache_salt=salt), lambda: lab.generate("a b c d e", cache_salt=salt)):
        with refused(lab, ConfigError, "cache_salt"):
            call()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([("adapter", "x")], "extra_keys must be a mapping of names to texts"),
        ({"adapter": 5}, "extra_keys['adapter'] must be a text, got 5"),
        ({5: "x"}, "a name in extra_keys must be a text, got 5"),
        ({"adapter": "\ud800"}, "half of a surrogate pair"),
        ({"cache_salt": "x"}, "give it as cache_salt="),
    ],
)
def test_extra_keys_that_cannot_be_hashed_are_refused(lab: Lab, keys: Any, words: str) -> None:
    with refused(lab, ConfigError, words):
        lab.add("a b c d e", extra_keys=keys)


def test_a_text_that_is_no_unicode_is_refused(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "half of a surrogate pair"):
        smollm2.add("a \ud800 b")


@pytest.mark.parametrize("wrong", [5, None, b"smollm2"])
def test_a_model_is_a_name_or_a_directory(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a model is a name or a directory"):
        Lab(wrong)


@pytest.mark.parametrize("wrong", [None, 0, -1, 1.5, "yes"])
def test_record_is_a_truth_or_a_number_of_events(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="record must be"):
        Lab("simulated", record=wrong)


def test_parts_are_classes() -> None:
    with pytest.raises(ConfigError, match="merge_policy must be a class"):
        Parts(merge_policy=LateMerge())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"parts must be a labengine.Parts"):
        Lab("simulated", parts="nano-vllm")  # type: ignore[arg-type]


def test_token_ids_lie_in_the_vocabulary(smollm2: Lab) -> None:
    with refused(smollm2, ConfigError, "token_ids[2] is 49152", "ends at 49151"):
        smollm2.add(token_ids=[1, 49151, 49152])


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"max_tokens": -1}, "max_tokens must be at least 1, got -1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 2.0}, "max_tokens must be an integer, got 2.0"),
        ({"temperature": float("nan")}, "temperature must be a finite number >= 0 (0 is greedy), got nan"),
        ({"temperature": float("inf")}, "temperature must be a finite number"),
        ({"temperature": -0.5}, "temperature must be a finite number >= 0"),
        ({"temperature": "warm"}, "got 'warm'"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must lie in (0, 1], got 0.0"),
        ({"top_p": float("nan")}, "top_p must lie in (0, 1]"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"temperature": 10**400}, "temperature must be a finite number"),
        ({"ignore_eos": "no"}, "ignore_eos must be True or False, got 'no'"),
    ],
)
def test_sampling_that_cannot_work_is_refused(lab: Lab, sampling: dict[str, Any], words: str) -> None:
    with refused(lab, ConfigError, words):
        lab.add("a b c", **sampling)
    with refused(lab, ConfigError, words):
        lab.generate(["a b c", "d e f"], **sampling)


def test_an_unknown_keyword_of_add_is_told_the_nearest(lab: Lab) -> None:
    with refused(lab, TypeError, "add() has no keyword 'max_token'; did you mean 'max_tokens'?"):
        lab.add("a b c", max_token=3)
    with refused(lab, TypeError, "add() has no keyword 'token_id'; did you mean 'token_ids'?"):
        lab.add(token_id=[1])
    with refused(lab, TypeError, "add() has no keyword 'sampling'; it knows max_tokens"):
        lab.add("a b c", sampling={})


def test_an_unknown_keyword_of_generate_is_told_the_nearest(lab: Lab) -> None:
    with refused(lab, TypeError, "generate() has no keyword 'temprature'; did you mean 'temperature'?"):
        lab.generate("a b c", temprature=0.5)


def test_generate_adds_all_or_nobody(lab: Lab) -> None:
    with refused(lab, ConfigError, "needs 14 blocks"):
        lab.generate([[1, 2, 3], list(range(50))], max_tokens=4)


def test_requests_that_do_not_exist(lab: Lab) -> None:
    with refused(lab, KeyError, "there is no request 7; known are 0 to 1"):
        lab.abort(7)
    with refused(lab, KeyError, "there is no request 7"):
        lab.output(7)
    with refused(lab, KeyError, "there is no request 7"):
        lab.stream(7)
    lab.reset()
    with refused(lab, KeyError, "there is no request 0; none was added yet"):
        lab.abort(0)


def test_adding_after_close_is_refused() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add("a b c", max_tokens=2)
    with refused(lab, RuntimeError, "this lab is closed; make a new one"):
        lab.add("a b c", max_tokens=2)
    with refused(lab, RuntimeError, "closed"):
        lab.generate("a b c", max_tokens=2)


# -- an interrupt in the middle of a forward of the real model ---------------------------------------------------------


def press_ctrl_c(*_: object) -> None:
    """A real SIGINT: what Jupyter's stop button sends."""
    signal.raise_signal(signal.SIGINT)


def answers(lab: Lab) -> list[tuple[int, ...]]:
    """Both prompts to the end: the tokens, computed with nobody disturbing."""
    return [output.token_ids for output in lab.generate(PROMPTS, max_tokens=6)]


@pytest.fixture(scope="module")
def loaded_module_by_module() -> Iterator[Lab]:
    lab = Lab("smollm2", num_blocks=64, block_size=4, attention="torch")
    yield lab
    lab.close()


@pytest.fixture(params=["one native program", "module by module"])
def smollm2(request: pytest.FixtureRequest) -> Lab:
    """The real model with an empty pool, on both ways to compute a step on a CPU."""
    is_native = request.param == "one native program"
    lab: Lab = request.getfixturevalue("loaded_smollm2" if is_native else "loaded_module_by_module")
    lab.reset()
    return lab


class PressedDuring:
    """A native program in which Ctrl-C is pressed: Python sees it when the program is over, and all KV is written."""

    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, step: Any) -> Any:
        self.forward(step)
        press_ctrl_c()
        raise AssertionError("the interrupt did not arrive")


@contextmanager
def ctrl_c_at(lab: Lab, layer: int) -> Iterator[None]:
    """Ctrl-C is pressed as the forward reaches a layer."""
    runner: Any = lab._model.runner
    forward = runner._forward
    hook = runner.model.layers[layer].register_forward_pre_hook(press_ctrl_c)
    if isinstance(forward, NativeForward):
        runner._forward = PressedDuring(forward)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        hook.remove()
        runner._forward = forward


@contextmanager
def interrupted(lab: Lab, layer: int = 7) -> Iterator[None]:
    """Ctrl-C is pressed as the forward reaches a layer; the step inside the block has to be taken back."""
    before = lab.snapshot()
    with ctrl_c_at(lab, layer):
        yield
    after = lab.snapshot()
    assert after.step == before.step and after.requests == before.requests
    assert after.free_queue == before.free_queue
    assert [block.ref_count for block in after.blocks] == [block.ref_count for block in before.blocks]
    assert lab.check() == [] and lab.timeline is not None
    assert isinstance(lab.timeline.events()[-1], Event) and lab.timeline.of_kind(StepRolledBack)
    assert lab.timeline.state().snapshot() == after


def test_an_interrupted_prefill_never_happened(smollm2: Lab) -> None:
    expected = answers(smollm2)
    smollm2.reset()
    for prompt in PROMPTS:
        smollm2.add(prompt, max_tokens=6)
    with interrupted(smollm2):
        smollm2.step()
    smollm2.run()
    assert [smollm2.output(i).token_ids for i in range(2)] == expected
    assert smollm2.check() == []


def test_an_interrupted_decode_never_happened(smollm2: Lab) -> None:
    expected = answers(smollm2)
    smollm2.reset()
    for prompt in PROMPTS:
        smollm2.add(prompt, max_tokens=6)
    for _ in range(3):
        smollm2.step()
    assert [len(smollm2.output(i).token_ids) for i in range(2)] == [3, 3]
    with interrupted(smollm2):
        smollm2.step()
    with interrupted(smollm2, layer=29):
        smollm2.run()
    smollm2.run()
    assert [smollm2.output(i).token_ids for i in range(2)] == expected
    assert smollm2.check() == []


def test_an_interrupt_where_a_warm_block_was_overwritten_is_noticed(smollm2: Lab) -> None:
    """The interrupted step took cached blocks and wrote half of its KV over them: they must not be served again."""
    (expected,) = smollm2.generate(PROMPTS[0], max_tokens=1)
    smollm2.add(token_ids=[5] * 255, max_tokens=1)  # the whole pool of 64 blocks
    with interrupted_loosely(smollm2):
        smollm2.step()
    (again,) = smollm2.generate([smollm2.encode(PROMPTS[0])], max_tokens=1)
    assert again.token_ids == expected.token_ids
    assert smollm2.check() == []


@contextmanager
def interrupted_loosely(lab: Lab, layer: int = 7) -> Iterator[None]:
    """As above, and the cached content that was overwritten is gone from the map."""
    cached = set(lab.snapshot().prefix_map)
    assert cached, "nothing is cached: the test would show nothing"
    with ctrl_c_at(lab, layer):
        yield
    assert lab.snapshot().prefix_map == {}


def test_an_interrupt_while_the_core_changes_waits_and_then_takes_the_step_back(lab: Lab) -> None:
    """Ctrl-C inside schedule and inside update is held back until the core is whole again."""
    for kind in (RequestScheduled, TokenSampled):
        before = lab.snapshot()
        with lab.hooks.subscribe(press_ctrl_c, kind), pytest.raises(KeyboardInterrupt):
            lab.step()
        assert lab.snapshot() == before and lab.check() == []
    assert lab.step() and lab.hooks.failures == []


# -- listeners ---------------------------------------------------------------------------------------------------------


def test_a_listener_that_raises_is_dropped_kept_and_hurts_nobody(lab: Lab) -> None:
    undisturbed = Lab("simulated", num_blocks=12, block_size=4)
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise ValueError("cannot draw this")

    lab.hooks.subscribe(fail, RequestScheduled, StepEnded)
    lab.hooks.subscribe(heard.append, StepEnded)
    lab.run()
    (failure,) = lab.hooks.failures
    assert failure.listener is fail and isinstance(failure.event, RequestScheduled)
    assert str(failure.error) == "cannot draw this"
    assert len(heard) > 1, "who listens after it still hears everything"
    with undisturbed:
        undisturbed.add(token_ids=range(6), max_tokens=4)
        undisturbed.step()
        undisturbed.add(token_ids=range(9), max_tokens=4)
        undisturbed.run()
        assert undisturbed.snapshot() == lab.snapshot()


@pytest.mark.parametrize("call", ["step", "add", "abort", "reset", "run", "start", "close"])
def test_a_listener_that_steers_is_dropped_with_a_reason(lab: Lab, call: str) -> None:
    calls: dict[str, Any] = {
        "step": lab.step,
        "add": lambda: lab.add("a b c", max_tokens=2),
        "abort": lambda: lab.abort(0),
        "reset": lab.reset,
        "run": lab.run,
        "start": lab.start,
        "close": lab.close,
    }
    lab.hooks.subscribe(lambda event: calls[call](), RequestScheduled)
    report = lab.step()
    assert report and report.step == 2 and len(lab.snapshot().requests) == 2
    assert lab.snapshot().requests[0].status == "running" and lab.check() == []
    assert "listeners look and never steer" in str(lab.hooks.failures[0].error)


# -- text of unknown origin --------------------------------------------------------------------------------------------

NASTY = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> </text></svg> ]]> &amp; \"quoted' "
    "<b>bold</b> \x1b[31mred\x1b[0m \u202eright to left"
)


@pytest.mark.parametrize("model", ["simulated", "smollm2"])
def test_a_prompt_of_html_and_script_stays_plain_text(model: str, smollm2: Lab) -> None:
    lab = smollm2 if model == "smollm2" else Lab("simulated", num_blocks=64, block_size=4)
    request_id = lab.add(NASTY, max_tokens=2)
    ids = lab.snapshot().requests[request_id].token_ids
    assert "<script>alert(1)</script>" in "".join(map(lab.token_text, ids))
    lab.run(until=lambda lab: lab.snapshot().step == 1)
    assert_harmless(lab)
    lab.run()
    assert lab.check() == []
    if model == "simulated":
        lab.close()


def assert_harmless(lab: Lab) -> None:
    """Every output of a lab that a browser or a terminal shows."""
    from xml.etree import ElementTree

    bundle = lab._repr_mimebundle_()[0]
    svg = bundle["image/svg+xml"]
    elements = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert not elements & {"script", "img", "b", "foreignObject"} and "alert" in svg
    for text in (bundle["text/plain"], repr(lab), svg):
        assert "<script" not in text and "<img" not in text
        assert "\x1b" not in text and "\u202e" not in text
    assert not any(name.startswith(("text/html", "application/javascript")) for name in bundle)
