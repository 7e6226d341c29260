"""How a request ends, by abort, eos or length, and how a lab does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labengine.lab import Lab


def test_abort_while_running_frees_at_once(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.add(token_ids=range(50, 60), max_tokens=3)
    lab.step()
    assert lab.abort(0) is True
    assert lab.snapshot().requests[0].status == "finished" and lab.snapshot().requests[0].block_tables == ((),)
    assert lab.output(0).finish_reason == "abort" and len(lab.output(0).token_ids) == 1
    assert lab.abort(0) is False
    assert lab.check() == []
    lab.run()
    assert lab.output(1).finish_reason == "length"


def test_abort_while_waiting(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=3)
    assert lab.abort(0) and not lab.step()


def test_eos_stops_and_is_kept_unless_ignored(smollm2: Lab) -> None:
    prompt = [{"role": "user", "content": "2+2=?"}]
    stops, goes_on = smollm2.chat(prompt, max_tokens=12), smollm2.chat(prompt, max_tokens=12, ignore_eos=True)
    smollm2.run()
    output, longer = smollm2.output(stops), smollm2.output(goes_on)
    assert output.finish_reason == "stop" and output.token_ids[-1] in smollm2.config.eos_token_ids
    assert output.text and "<|" not in output.text
    assert longer.finish_reason == "length" and len(longer.token_ids) == 12
    assert longer.token_ids[: len(output.token_ids)] == output.token_ids


def test_close_stops_everything_and_looking_still_works() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=range(6), max_tokens=10)
        lab.step()
        before = lab.snapshot()
        lab.start()
        lab.pause()
    lab.close()
    assert lab.snapshot().step >= before.step and lab.check() == [] and lab.status()["state"] == "closed"
    assert lab.output(0).finish_reason in (None, "length") and "12 blocks" in repr(lab)
    closed: list[Callable[[], object]] = [lab.step, lab.next_phase, lab.start, lab.reset, lambda: lab.abort(0)]
    for call in closed:
        with pytest.raises(RuntimeError, match="closed; make a new one"):
            call()
    thread = lab.session.runs.background._thread
    assert thread is not None and not thread.is_alive()
