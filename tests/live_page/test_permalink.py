"""Permalinks: written, read again, and refused where no session of the page can be meant."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from labengine.config import ConfigError
from labengine.engine.wasm.bpe_tokenizer import chat_text, question_in
from labengine.live_page.permalink import AbortAct, Permalink, PromptAct, SessionAct, StepsAct, permalink_of

TEXTS = ("Once upon a time", "<b>&amp;</b>=#?+%20 ", "日本語 ü\n\tx", "a,b;c/d'\"")


def random_act(random: Random) -> SessionAct:
    kind = random.randrange(4)
    if kind < 2:
        act = PromptAct(random.choice(TEXTS), random.randint(1, 8), random.randint(1, 2_000))
        others = ({"n": random.randint(2, 16)}, {"beams": random.randint(2, 16)}, {"priority": random.randint(-9, 9)})
        return replace(act, **random.choice(others)) if random.randrange(2) else act
    return StepsAct(random.randint(1, 9)) if kind == 2 else AbortAct(random.randrange(9))


def test_what_is_written_is_read() -> None:
    random = Random(7)
    for number in range(200):
        acts = tuple(random_act(random) for _ in range(random.randrange(8)))
        links = (
            Permalink(bug="nano-vllm-219", follow_up=bool(number % 2), acts=acts),
            Permalink(editions=("nano-vllm+243",), num_blocks=random.randint(1, 512), acts=acts),
            Permalink(editions=("vllm", "nano-vllm"), block_size=random.randint(1, 64), acts=acts),
            Permalink(policy="priority", num_drafts=random.randint(1, 16), state_size=random.randint(1, 64), acts=acts),
            Permalink(model="smollm2", editions=("vllm",), num_blocks=random.randint(1, 512), acts=acts),
        )
        for link in links:
            assert permalink_of(link.query()) == link
            assert permalink_of(f"?utm_source=x&{link.query()}&fbclid=1") == link, "others' words are left out"


def test_a_question_goes_through_the_chat_template_of_a_model_that_has_one() -> None:
    real = permalink_of("chat=And+now%3F&copies=2&model=smollm2")
    assert real.acts == (PromptAct("And now?", 2, is_chat=True),) and permalink_of(real.query()) == real
    assert permalink_of("chat=And+now%3F&copies=2").acts == (PromptAct("And now?", 2),)
    text = chat_text([{"role": "user", "content": "And now?"}])
    assert question_in(text) == "And now?"
    more = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert [question_in(other) for other in ("And now?", text[1:], text + "!", chat_text(more))] == [None] * 4


def test_a_link_written_by_hand() -> None:
    link = permalink_of("?edition=vllm&prompt=Once+upon&copies=2&step=1&prompt=again")
    assert link == Permalink(editions=("vllm",), acts=(PromptAct("Once upon", 2), StepsAct(1), PromptAct("again")))
    assert permalink_of("") == Permalink()
    assert permalink_of("edition=vllm&step=1&moment=7") == permalink_of("edition=vllm&step=1"), (
        "page.ts shows the moment"
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("prompt=", "empty"),
        ("copies=2&prompt=a", "copies"),
        ("prompt=a&copies=65", "from 1 to 64, got '65'"),
        ("prompt=a&max_tokens=1e3", "max_tokens"),
        ("blocks=99999999999", "from 1 to 512"),
        ("block_size=-1", "block_size"),
        ("step=٣", "step"),
        ("prompt=a&n=17", "from 1 to 16, got '17'"),
        ("prompt=a&priority=--1", "from -1000 to 1000"),
        ("policy=lottery", "fcfs, priority, got 'lottery'"),
        ("drafts=-4", "from 1 to 16"),
        ("model=smollm2&states=8", "states"),
        ("step=2000&step=1", "2,000 steps"),
        ("model=smollm2&step=501", "500 steps"),
        ("model=gpt5", "simulated, smollm2, got 'gpt5'"),
        ("bug=nano-vllm-219&model=smollm2", "bug or model"),
        ("policy=priority&drafts=4&bug=x&states=8", "bug or policy, drafts and states"),
        ("edition=vllm&bug=x", "bug or edition"),
        ("compare=vllm,labengine&bug=x", "bug or compare"),
        ("bug=nano-vllm-219&follow_up=1&blocks=9", "follow_up"),
        ("edition=vllm&follow_up=1", "follow_up"),
        ("&".join(["prompt=a&copies=64&n=16"] * 150), "1,024 requests with 1,280,000 characters"),
        ("prompt=a&copies=64&beams=16&prompt=b", "1,025 with 65"),
        (f"prompt={'a' * 20_000}&copies=64&prompt=b", "65 with 1,280,001"),
        ("&".join(["abort=0"] * 201), "200 actions"),
        ("compare=vllm,vllm,vllm", "two editions"),
        (f"prompt={'a' * 20_001}", "20,001"),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        permalink_of(query)
    assert message in str(refusal.value)


@pytest.mark.parametrize("name", ["bug", "model", "edition", "compare", "prompt", "step", "blocks"])
def test_a_long_value_is_not_echoed(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        permalink_of(f"?{name}={'9' * 30_000}")
    assert len(str(raised.value)) < 500
