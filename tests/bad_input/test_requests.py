"""Prompts, salts, keys, sampling parameters and keywords of `add`, and ids of requests that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from bad_input.refusal import refused
from labengine import ConfigError
from labengine.lab import Lab


@pytest.mark.parametrize("salt", [5, b"x", "\ud800"])
def test_a_salt_that_cannot_be_hashed_is_refused_before_it_stops_every_step(lab: Lab, salt: Any) -> None:
    for call in (lambda: lab.add("a b c d e", cache_salt=salt), lambda: lab.generate("a b c d e", cache_salt=salt)):
        with refused(lab, ConfigError, "cache_salt"):
            call()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([("adapter", "x")], "extra_keys must be a mapping"),
        ({"adapter": 5}, "extra_keys['adapter'] must be a string, got 5"),
        ({5: "x"}, "a name in extra_keys must be a string, got 5"),
        ({"adapter": "\ud800"}, "half a surrogate pair"),
        ({"cache_salt": "x"}, "pass it as cache_salt="),
    ],
)
def test_extra_keys_that_cannot_be_hashed_are_refused(lab: Lab, keys: Any, words: str) -> None:
    with refused(lab, ConfigError, words):
        lab.add("a b c d e", extra_keys=keys)


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
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": float("nan")}, "top_p must be above 0 and at most 1, got nan"),
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


def test_an_unknown_keyword_of_add_names_the_nearest(lab: Lab) -> None:
    with refused(lab, TypeError, "add() has no keyword 'max_token'; did you mean 'max_tokens'?"):
        lab.add("a b c", max_token=3)
    with refused(lab, TypeError, "add() has no keyword 'token_id'; did you mean 'token_ids'?"):
        lab.add(token_id=[1])
    with refused(lab, TypeError, "add() has no keyword 'sampling'; it knows max_tokens"):
        lab.add("a b c", sampling={})


def test_an_unknown_keyword_of_generate_names_the_nearest(lab: Lab) -> None:
    with refused(lab, TypeError, "generate() has no keyword 'temprature'; did you mean 'temperature'?"):
        lab.generate("a b c", temprature=0.5)


def test_generate_adds_all_or_nobody(lab: Lab) -> None:
    with refused(lab, ConfigError, "needs 14 blocks"):
        lab.generate([[1, 2, 3], list(range(50))], max_tokens=4)


def test_requests_that_do_not_exist(lab: Lab) -> None:
    with refused(lab, KeyError, "no request 7: the lab has requests 0 to 1"):
        lab.abort(7)
    with refused(lab, KeyError, "no request 7"):
        lab.output(7)
    with refused(lab, KeyError, "no request 7"):
        lab.stream(7)
    lab.reset()
    with refused(lab, KeyError, "no request 0: none has been added"):
        lab.abort(0)


def test_letters_name_requests_and_words_do_not(lab: Lab) -> None:
    assert lab.output("A") == lab.output(0) and "".join(lab.stream("b")) == lab.output(1).text
    for wrong in ("C", "ABC", "request", "0", ""):
        for ask in (lab.output, lab.abort, lab.stream):
            with refused(lab, KeyError, f"no request {wrong!r}"):
                ask(wrong)
    lab.add("a b c", max_tokens=9)
    assert lab.abort("C") and type(lab.inputs[-1].request_id) is int  # type: ignore[attr-defined]


def test_adding_after_close_is_refused() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add("a b c", max_tokens=2)
    with refused(lab, RuntimeError, "this lab is closed; make a new one"):
        lab.add("a b c", max_tokens=2)
    with refused(lab, RuntimeError, "closed"):
        lab.generate("a b c", max_tokens=2)
