"""A request's options are one record, from Lab.add to the engine and in the inputs that repeat it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labengine import Lab, SamplingParams
from labengine.core.request import Image
from labengine.engine.request_options import RequestOptions
from labengine.session.history.inputs import AddInput


def test_one_record_goes_all_the_way() -> None:
    asked = RequestOptions(
        SamplingParams(max_tokens=3, temperature=0.5, seed=7),
        (("lora", "sql"), ("cache_salt", "tenant")),
        priority=-2,
        images=(Image(1, 2, "cat"),),
    )
    with Lab("simulated", policy="priority", num_blocks=16, block_size=4) as lab:
        lab.add(
            token_ids=range(9), max_tokens=3, temperature=0.5, seed=7, cache_salt="tenant", extra_keys={"lora": "sql"},
            priority=-2, images={1: ("cat", 2)}, n=2,
        )  # fmt: skip
        second = replace(asked, sampling=replace(asked.sampling, seed=8))
        inputs = [done for done in lab.session.inputs.done if isinstance(done, AddInput)]
        assert [done.options for done in inputs] == [asked, second]
        assert [RequestOptions.of(one) for one in lab.session.stepper.engine.requests.values()] == [asked, second]
        with lab.fork() as fork:
            assert [done.options for done in fork.session.inputs.done if isinstance(done, AddInput)] == [asked, second]
    assert (asked.cache_salt, asked.other_keys) == ("tenant", {"lora": "sql"})


def test_an_unknown_keyword_names_the_method_that_was_called() -> None:
    import labengine

    with labengine.compare("labengine", "vllm") as both:
        with pytest.raises(TypeError, match=r"add\(\) has no keyword 'temprature'; did you mean 'temperature'"):
            both.add("a b", temprature=1.0)
        with pytest.raises(TypeError, match=r"chat\(\) has no keyword 'extra_keys'"):
            both.chat([{"role": "user", "content": "a"}], extra_keys={})
