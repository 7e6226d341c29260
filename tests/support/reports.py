"""Made reports with every field filled, drawn from a seed; hostile ones have markup, controls and bidi marks inside."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from labengine.prefix_doctor.causes.finding import Cure, Example, Finding, Price
from labengine.prefix_doctor.look_ups.content import LostContent
from labengine.prefix_doctor.look_ups.look_up import Cause, LookUp, MissedTokens
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.report.report import Ages, Curve, Point, Report, Span, TenantTokens

HOSTILE = "</script><img src=//evil.example/x onerror=alert(1)>'\"&\u202egnp\x1b[31m 漢字漢字 \U0001f600 e\u0301\n"
"""Markup, a quote of each kind, a bidi override, an escape sequence, wide and combining characters, a line end."""

RULES = "You are a helpful assistant of the city library. Answer in one sentence, and name the shelf. "
NUM_PROMPTS, NUM_TOKENS = 2_000, 1_204_331


def made_report(seed: int = 0, hostile: str = "", num_look_ups: int = 6, command: str = "") -> Report:
    """Return a report of 2,000 prompts. hostile: inserted into every text that comes from prompts."""
    draw = Random(seed)
    base = _figures(draw, 0.123)
    others: dict[Cause, int] = {"evicted": 180_000, "short_of_a_block": 22_000, "tail": 70_000}
    return Report(
        title=f"prompts.jsonl{hostile}",
        settings={
            "edition": "vllm",
            "num_blocks": 2_000,
            "block_size": 16,
            "groups": ("full", "window of 1,024"),
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8_192,
            "num_replicas": 2,
            "routing": "round_robin",
            "clock": "a step takes 4.1 ms + 61 µs per token + 0.9 µs per attended kilotoken",
        },
        unit=16,
        figures=base,
        sums=Sums(
            NUM_PROMPTS,
            NUM_TOKENS,
            base.num_hit,
            40_000,
            {**others, "new": NUM_TOKENS - base.num_hit - 40_000 - sum(others.values())},
        ),
        sums_again=Sums(12, 9_000, 7_000, 0, {"new": 2_000}),
        findings=_findings(draw, base, hostile),
        curves=_curves(draw),
        by_tenant=tuple(
            TenantTokens(f"{name}{hostile}", tokens, tokens // 8, tokens // share)
            for name, tokens, share in (("acme", 700_000, 2), ("blue", 400_000, 3), ("", 104_331, 9))
        ),
        over_time=tuple(Span(30.0 * i, 30.0 * i + 30, 40_000, draw.randrange(9_000), 15_000) for i in range(24)),
        over_time_unit="seconds",
        ages=Ages("blocks", _histogram(draw, 3), _histogram(draw, 7)),
        look_ups=tuple(_look_up(number, hostile) for number in range(num_look_ups)),
        notes=(f"3 lines were left out: the longest is line 17, {hostile}.",),
        clock_note="The clock was fitted to 812 steps; half of its residuals are below 3 %, 95 % below 11 %.",
        bytes_per_token=36_864,
        currency="EUR",
        command=command,
    )


def faultless_report() -> Report:
    """Return a report without a finding, a curve, a tenant or a price, as of a small recording."""
    figures = Figures(3, 96, 64, 40, 9, 0, 0, 8)
    sums = Sums(3, 96, 64, 0, {"tail": 32})
    none = Sums(0, 0, 0, 0, {})
    no_fault = "Nothing to mend: every prefix that was cached before was found again."
    settings = {"edition": "vllm", "num_blocks": 22, "block_size": 8}
    return Report("smollm2 · edition vllm", settings, 8, figures, sums, none, no_fault=no_fault)


def _figures(draw: Random, hit_rate: float) -> Figures:
    hit = int(NUM_TOKENS * hit_rate)
    wait = (1 - hit_rate) * draw.uniform(0.9, 1.1)
    computed = NUM_TOKENS - hit + 40_000
    evicted = computed // 16 - 2_000
    return Figures(
        NUM_PROMPTS, NUM_TOKENS, hit, computed, 812, 3, evicted, 1_990, 71.0 * (1.2 - hit_rate), 0.6 * wait, 2.1 * wait
    )


def _findings(draw: Random, base: Figures, hostile: str) -> tuple[Finding, ...]:
    example = Example(
        f"req-17{hostile}",
        "req-3",
        7,
        262,
        f"{hostile}Today is Sunday. It is 12:00:0",
        f"1. {hostile}",
        "0. ",
        RULES * 3 + hostile,
    )
    clock = Finding(
        "clock",
        f"a clock before the rules{hostile}",
        f"1,980 prompts begin with a time, and the same 262 tokens follow it: “{RULES}{hostile}”.",
        1_980,
        518_000,
        f"token 7, in the system message{hostile}",
        (example, replace(example, name="req-18", mine="", its="a much longer text than the other one has here")),
        (3, 17),
        Price(61.2, 17.8, 3.2),
        Cure(f"Put the time behind the rules{hostile}", base, _figures(draw, 0.554)),
    )
    evicted = Finding(
        "evicted",
        "evicted before the next use",
        "The rules of 3 tenants were evicted, 410 blocks after their last use, by prompts that never came again.",
        420,
        180_000,
        "tenant “blue”",
        (),
        (40, 41, 90),
        Price(21.0, 0.05),
        Cure("A pool of 4,000 blocks", base, _figures(draw, 0.262)),
    )
    short = Finding("short_prompt", "prompts shorter than a block", "Prompts of 9 tokens fill no block of 16.", 40, 360)
    worse = replace(evicted, kind="same_time", title="equal prompts at the same time", num_lost=90, cure=None)
    return clock, evicted, short, worse


def _curves(draw: Random) -> tuple[Curve, ...]:
    def points(values: tuple[int, ...], start: float, rise: float, bound: float | None) -> tuple[Point, ...]:
        rates = [start + rise * number for number in range(len(values))]
        best = [None if bound is None else min(0.9, rate + bound) for rate in rates]
        return tuple(
            Point(value, _figures(draw, rate), one) for value, rate, one in zip(values, rates, best, strict=True)
        )

    return (
        Curve("pool", "blocks", points((1_000, 2_000, 4_000, 8_000, 16_000), 0.02, 0.1, 0.08), 2_000),
        Curve("block_size", "tokens", points((8, 16, 32, 64), 0.14, -0.02, None), 16),
        Curve("max_num_batched_tokens", "tokens", points((2_048, 8_192, 32_768), 0.1, 0.01, None), 8_192),
        Curve("state_interval", "tokens", points((256, 512, 1_024), 0.2, -0.05, None), 512),
    )


def _histogram(draw: Random, peak: int) -> tuple[tuple[float, int], ...]:
    bounds = [float(2**power) for power in range(4, 14)]
    return tuple((bound, draw.randrange(50) + 400 // (1 + abs(place - peak))) for place, bound in enumerate(bounds))


def _look_up(number: int, hostile: str) -> LookUp:
    loss = LostContent("reused", 4, 60, 2, True)
    misses = MissedTokens("evicted", 24, 30, 2, None, loss), MissedTokens("new", 30, 38), MissedTokens("tail", 38, 40)
    sentence = f"hit 24 of 40 tokens: diverged from B at token 30: after “{hostile}” it has “2 now”, B has “1 now”"
    return LookUp(number, f"req-{number}{hostile}", 1, 3 + number, 90, 40, 24, 0, 30, 1, misses, sentence)
