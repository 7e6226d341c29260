"""A lab that speculates: its figures, its forks and rewinds, and the session as a script and as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine import DraftModel, FixedDrafts, Lab, NGram
from labengine import events as ev
from labengine.config import ConfigError
from labengine.engine.simulated import default_next_token
from labengine.session.step_text import report_line

PROMPT = [1, 2, 3, 4, 5, 6]


def text(*wrong: int) -> tuple[int, ...]:
    """The tokens of request 0 on the simulated model, others at the wrong positions."""
    tokens = [*PROMPT, *(default_next_token(0, position) for position in range(6, 40))]
    return tuple(50 if position in wrong else token for position, token in enumerate(tokens))


def speculating(*wrong: int, **settings: Any) -> Lab:
    lab = Lab("simulated", num_blocks=16, block_size=4, speculation=FixedDrafts(text(*wrong), 4), **settings)
    lab.add(token_ids=PROMPT, max_tokens=20)
    return lab


def test_stats_tell_acceptance_and_tokens_a_step() -> None:
    with speculating(9) as lab:
        lab.step(3)
        stats = lab.stats()
        assert (stats.acceptance, stats.mean_acceptance) == ({0: 6 / 8}, 6 / 8)
        assert (stats.num_sampled_tokens, stats.tokens_per_step) == (9, 3.0)
    with Lab("simulated") as plain:
        plain.add(token_ids=PROMPT, max_tokens=4)
        plain.run()
        assert (plain.stats().acceptance, plain.stats().mean_acceptance, plain.stats().tokens_per_step) == (
            {},
            0.0,
            1.0,
        )


def test_a_step_s_line_names_every_token_that_a_request_got() -> None:
    with speculating(9) as lab:
        lab.step()
        report = lab.step()
        assert report.sampled == {0: text()[7:10]} and report.accepted == {0: 2}
        sampled = " ".join(map(str, text()[7:10]))
        assert f"; sampled A {sampled}; drafts A 2 of 4 accepted; " in report_line(report)


def test_a_step_that_is_taken_back_counts_no_draft() -> None:
    with speculating(9) as lab:
        lab.step(2)
        before = lab.stats()
        lab.next_phase()
        lab.next_phase()
        lab.rewind(2)
        assert lab.stats().acceptance == before.acceptance


def test_forks_and_rewinds_have_the_drafts() -> None:
    with speculating(9, 13) as lab:
        lab.step(2)
        drafts = lab.snapshot().requests[0].drafts
        assert len(drafts) == 4
        with lab.fork() as other:
            assert other.snapshot().requests[0].drafts == drafts
            other.run()
            lab.run()
            assert other.snapshot().requests == lab.snapshot().requests
        lab.rewind(2)
        assert lab.snapshot().requests[0].drafts == drafts


def test_to_code_makes_the_proposer(capsys: pytest.CaptureFixture[str]) -> None:
    with Lab("simulated", num_blocks=16, block_size=4, speculation=NGram(3, 1, 2)) as lab:
        lab.add(token_ids=[7, 8, 7, 8, 7], max_tokens=8)
        lab.run()
        code = lab.to_code()
        assert "speculation=labengine.NGram(num_drafts=3, min_ngram=1, max_ngram=2)" in code
        names: dict[str, Any] = {}
        exec(code, names)
        assert names["lab"].snapshot().requests == lab.snapshot().requests
    with speculating() as lab:
        exec(lab.to_code(), names)
        assert names["lab"].settings.speculation == lab.settings.speculation


@dataclass(frozen=True)
class Mine:
    """A user's proposer."""

    num_drafts: int = 2
    drafter: str = "lookup"

    def propose(self, token_ids: Any, num_tokens: int) -> list[int]:
        return [1] * num_tokens


def test_a_proposer_of_ones_own_is_named_in_the_script() -> None:
    with Lab("simulated", speculation=Mine()) as lab:
        lab.add(token_ids=PROMPT, max_tokens=4)
        lab.run()
        assert "# speculation=...: made by" in lab.to_code() and "Mine" in lab.to_code()


def test_a_saved_recording_has_the_drafts(tmp_path: Path) -> None:
    with speculating(9) as lab:
        lab.step(2)
        lab.save(tmp_path / "run.lab")
        opened = labengine.open(tmp_path / "run.lab")
        kinds = [type(event) for event in opened.timeline.events()]  # type: ignore[union-attr]
        assert ev.TokensDrafted in kinds and ev.DraftsJudged in kinds
        assert opened.snapshot().requests[0].drafts == lab.snapshot().requests[0].drafts


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_a_run_is_judged_step_by_step(edition: str) -> None:
    with speculating(9, 13, edition=edition) as lab:
        lab.run()
        assert lab.check() == [] and lab.snapshot().requests[0].token_ids == text()[:26]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edition": "nano-vllm"}, "no speculation"),
        ({"edition": "vllm", "long_prefill_token_threshold": 3}, "fail an assertion"),
        ({"overlap": True}, "overlap=True is not possible"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        speculating(**settings)


def test_a_draft_model_needs_weights() -> None:
    with pytest.raises(ConfigError, match="simulated has no weights"):
        Lab("simulated", speculation=DraftModel(num_layers=2))
    with pytest.raises(ConfigError, match="num_layers"):
        DraftModel()
