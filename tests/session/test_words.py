"""Text in, text out: generate, stream, chat, and seeded sampling."""

from __future__ import annotations

from typing import Any

from labengine.lab import Lab


def test_generate_one_text_and_several(smollm2: Lab) -> None:
    (one,) = smollm2.generate("The capital of France is", max_tokens=4)
    assert "Paris" in one.text and one.finish_reason == "length" and len(one.token_ids) == 4
    several = smollm2.generate(["The capital of France is", "One, two, three,"], max_tokens=4)
    assert several[0].token_ids == one.token_ids and "four" in several[1].text
    assert [output.request_id for output in several] == [1, 2]
    (by_ids,) = smollm2.generate([smollm2.encode("The capital of France is")], max_tokens=4)
    assert by_ids.token_ids == one.token_ids


def test_generate_takes_token_ids_of_one_prompt_too(lab: Lab) -> None:
    (output,) = lab.generate([1, 2, 3], max_tokens=2)
    assert len(output.token_ids) == 2 and lab.generate([]) == []


def test_generate_returns_when_its_own_are_done(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=20)
    lab.generate([[7, 8, 9]], max_tokens=2)
    assert lab.snapshot().requests[0].status == "running"


def test_generate_takes_all_that_add_takes() -> None:
    settings: dict[str, Any] = {"num_blocks": 40, "block_size": 4, "policy": "priority"}
    asked = {"cache_salt": "a", "extra_keys": {"lora": "x"}, "images": {1: ("cat", 2)}, "max_tokens": 3, "seed": 4}
    with Lab("simulated", **settings) as lab, Lab("simulated", **settings) as other:
        lab.add(token_ids=[9] * 5, max_tokens=9, priority=1)
        outputs = lab.generate([range(6), range(7)], n=2, priority=-1, **asked)  # type: ignore[arg-type]
        other.add(token_ids=[9] * 5, max_tokens=9, priority=1)
        for length in (6, 7):
            other.add(token_ids=range(length), n=2, priority=-1, **asked)
        assert lab.inputs == other.inputs
        assert [output.request_id for output in outputs] == [1, 2, 3, 4]
        assert lab.snapshot().requests[1].priority == -1 and lab.snapshot().requests[0].status == "running"


def test_generate_gives_a_search_its_best_text_alone() -> None:
    with Lab("simulated", num_blocks=40, block_size=4) as lab:
        (output,) = lab.generate([range(6)], beams=3, max_tokens=3)  # type: ignore[list-item]
        assert output.request_id == 0


def test_stream_yields_the_text_piece_by_piece(smollm2: Lab) -> None:
    (expected,) = smollm2.generate("The capital of France is", max_tokens=8)
    pieces = list(smollm2.stream(smollm2.add("The capital of France is", max_tokens=8)))
    assert len(pieces) > 2 and "".join(pieces) == expected.text


def test_stream_holds_back_half_a_character(smollm2: Lab) -> None:
    request_id = smollm2.add("I love pizza 🍕🍕🍕🍕🍕🍕🍕🍕", max_tokens=12, ignore_eos=True)
    pieces = list(smollm2.stream(request_id))
    assert "".join(pieces) == smollm2.output(request_id).text
    assert "�" not in "".join(pieces[:-1])


def test_stream_follows_the_background(lab: Lab) -> None:
    request_id = lab.add(token_ids=range(6), max_tokens=30)
    lab.start()
    assert "".join(lab.stream(request_id)) == lab.output(request_id).text
    assert lab.output(request_id).finish_reason == "length"


def test_stream_ends_when_a_reset_sweeps_its_request_away(lab: Lab) -> None:
    stream = lab.stream(lab.add(token_ids=range(6), max_tokens=30))
    next(stream)
    lab.reset()
    lab.add(token_ids=range(6), max_tokens=30)
    assert list(stream) == [] and lab.snapshot().step == 0


def test_chat_goes_through_the_template(smollm2: Lab) -> None:
    request_id = smollm2.chat([{"role": "user", "content": "What is the capital of France?"}], max_tokens=8)
    prompt = smollm2.snapshot().requests[request_id].token_ids
    text = "".join(map(smollm2.token_text, prompt))
    assert "<|im_start|>user" in text and text.rstrip().endswith("<|im_start|>assistant")
    smollm2.run()
    assert "Paris" in smollm2.output(request_id).text


def test_seeded_sampling_repeats_and_seeds_differ(smollm2: Lab) -> None:
    def say(seed: int) -> tuple[int, ...]:
        return smollm2.generate("The best thing about", max_tokens=5, temperature=1.0, seed=seed)[0].token_ids

    assert say(1) == say(1)
    assert len({say(seed) for seed in range(3)}) > 1
