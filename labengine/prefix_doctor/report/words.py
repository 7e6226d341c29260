"""Words and numbers of a report, for the terminal and for HTML alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labengine.prefix_doctor.causes.finding import Cure, Finding, Price
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.report.report import Curve, Report
from labengine.record.wording import counted

CURVE_TITLES = {
    "pool": "Blocks in the pool",
    "block_size": "Block size",
    "max_num_batched_tokens": "Most tokens in a step (max_num_batched_tokens)",
    "state_interval": "Tokens between two cached states",
}


def percent(share: float) -> str:
    """Return a share as '12.3 %'."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def duration(seconds: float | None) -> str:
    """Return a time with about two digits: '640 ms', '1.3 s', '12 min', '3.2 h'; a dash for None."""
    if seconds is None:
        return "-"
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    for size, name in ((1, "s"), (60, "min")):
        if seconds < 90 * size:
            return f"{seconds / size:.{int(0 < seconds < 9.95 * size)}f} {name}"
    return f"{seconds / 3600:,.1f} h"


def capitalized(text: str) -> str:
    """Return a text with its first letter in upper case and the others as they are."""
    return text[:1].upper() + text[1:]


def answer(report: Report) -> list[str]:
    """Return the report's first sentences: the hit rate, and whether nothing is to be mended."""
    figures = report.figures
    return [
        *([f"Interrupted: this covers the first {counted(figures.num_prompts, 'prompt')}."] * report.is_partial),
        f"Hit rate {percent(figures.hit_rate)}: {figures.num_hit:,} of {counted(figures.num_tokens, 'prompt token')} "
        "were found in the cache.",
        *filter(None, [report.no_fault]),
    ]


def costliest(report: Report) -> Iterator[str]:
    """Yield sentences on the costliest cause: what it costs, and what its cure saves."""
    for finding in report.findings[:1]:
        yield f"Costliest cause: {finding.title}. {cost(finding, report)}."
        if finding.cure is not None:
            yield f"Cure: {cure_words(finding.cure)}. {capitalized(effect(finding.cure))}."


def cure_words(cure: Cure) -> str:
    """Return the change without a full stop."""
    return cure.words.rstrip(".")


def effect(cure: Cure) -> str:
    """Return what a cure changes in one phrase."""
    before, after = cure.before, cure.after
    share = f", {percent(abs(cure.num_saved) / before.num_computed)}" if before.num_computed else ""
    tokens = f"{counted(abs(cure.num_saved), 'token')} {'fewer' if cure.num_saved > 0 else 'more'} to compute{share}"
    ttft = "" if after.ttft_p95 is None else f"; p95 TTFT {duration(before.ttft_p95)} → {duration(after.ttft_p95)}"
    rates = f"hit rate {percent(before.hit_rate)} → {percent(after.hit_rate)}"
    return f"{rates}; {tokens if cure.num_saved else 'as many tokens to compute'}{ttft}"


def cost(finding: Finding, report: Report) -> str:
    """Return what a finding costs in one phrase."""
    share = percent(finding.num_lost / max(1, report.sums.num_tokens))
    tokens = f"{counted(finding.num_lost, 'token')} computed again ({share})"
    return ", ".join([tokens, *price_parts(finding.price, report.currency)])


def price_parts(price: Price | None, currency: str) -> Iterator[str]:
    """Yield a price as phrases: '61 s of prefill', '17.3 GiB of KV', '3.20 EUR'."""
    if price is None:
        return
    if price.seconds is not None:
        yield f"{duration(price.seconds)} of prefill"
    if price.gib is not None:
        yield f"{price.gib:,.1f} GiB of KV" if price.gib >= 0.1 else f"{1024 * price.gib:,.1f} MiB of KV"
    if price.money is not None:
        yield f"{price.money:,.2f} {currency}".rstrip()


def figure_rows(*runs: Figures) -> Iterator[tuple[str, ...]]:
    """Yield rows of figures of several runs: a label, and one cell for each run."""
    yield "hit rate", *(percent(one.hit_rate) for one in runs)
    for label, name in (
        ("computed tokens", "num_computed"),
        ("steps", "num_steps"),
        ("evicted blocks", "num_evicted_blocks"),
        ("most blocks in use", "peak_blocks"),
        ("preemptions", "num_preemptions"),
    ):
        yield label, *(f"{getattr(one, name):,}" for one in runs)
    for label, name in (
        ("TTFT p50", "ttft_p50"),
        ("of it waiting", "wait_p50"),
        ("TTFT p95", "ttft_p95"),
        ("of it waiting", "wait_p95"),
        ("total time", "seconds"),
    ):
        if any(getattr(one, name) is not None for one in runs):
            yield label, *(duration(getattr(one, name)) for one in runs)


def curve_rows(curve: Curve) -> list[tuple[str, ...]]:
    """Return a curve as a table, its heads first; the current value is marked."""
    points = curve.points
    has_bound = any(one.bound_hit_rate is not None for one in points)
    has_times = any(one.figures.ttft_p95 is not None for one in points)
    bound, times = ("best possible",) * has_bound, ("TTFT p50", "TTFT p95") * has_times
    rows = [(curve.unit, "hit rate", *bound, "computed tokens", *times)]
    for one in points:
        best = ("-" if one.bound_hit_rate is None else percent(one.bound_hit_rate),) * has_bound
        waits = (duration(one.figures.ttft_p50), duration(one.figures.ttft_p95)) * has_times
        computed = f"{one.figures.num_computed:,}"
        rows.append((value_words(curve, one.value), percent(one.figures.hit_rate), *best, computed, *waits))
    return rows


def curve_title(curve: Curve) -> str:
    """Return a curve's title, with a word on the bound if it has one."""
    has_bound = any(one.bound_hit_rate is not None for one in curve.points)
    return CURVE_TITLES[curve.name] + "; best possible: Belady's bound, which knows the future" * has_bound


def is_flat(curve: Curve) -> bool:
    """Return True if no value of the setting changes the hits or, by more than a tenth, the time to the first token."""
    runs = [one.figures for one in curve.points]
    waits = [one.ttft_p95 or 0.0 for one in runs]
    return len({one.num_hit for one in runs}) == 1 and max(waits) <= 1.1 * min(waits)


def flat_sentence(curve: Curve) -> str:
    """Return the one sentence that a flat curve needs."""
    values = f"from {curve.points[0].value:,} to {curve.points[-1].value:,} {curve.unit}"
    return f"{CURVE_TITLES[curve.name]}: {values}, the hit rate stays the same."


def value_words(curve: Curve, value: int) -> str:
    """Return a point's value, with a mark at the current one."""
    return f"now {value:,}" if value == curve.current else f"{value:,}"


def tenant_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a table of the tenants, its heads first, then those that lost the most tokens."""
    most = sorted(report.by_tenant, key=lambda one: -one.num_lost)
    rows = [
        (
            one.tenant or "(none)",
            f"{one.num_lost:,}",
            f"{one.num_tokens:,}",
            percent(one.num_hit / max(1, one.num_tokens)),
        )
        for one in most
    ]
    return [("tenant", "tokens lost", "prompt tokens", "hit rate"), *rows]


def settings_line(report: Report) -> str:
    """Return the settings in one line, without those in the title or in the note on the clock."""
    told = report.title, report.clock_note
    return " · ".join(part for part in _settings(report.settings) if not any(part in one for one in told))


def _settings(settings: Mapping[str, Any]) -> Iterator[str]:
    known = {name: value for name, value in settings.items() if value is not None}
    if "edition" in known:
        yield f"edition {known['edition']}"
    if "num_blocks" in known and "block_size" in known:
        yield f"{counted(known['num_blocks'], 'block')} of {known['block_size']}"
    if len(groups := known.get("groups", ())) > 1:
        yield f"groups: {', '.join(groups)}"
    if "max_num_seqs" in known:
        yield f"at most {counted(known['max_num_seqs'], 'request')} in a step"
    if "max_num_batched_tokens" in known:
        yield f"at most {counted(known['max_num_batched_tokens'], 'token')} in a step"
    if known.get("num_replicas", 1) > 1:
        yield f"{counted(known['num_replicas'], 'replica')}, routing {known.get('routing', 'unknown')}"
    if "clock" in known:
        yield str(known["clock"])


def again(report: Report) -> str:
    """Return a sentence on requests that were readmitted; empty without any."""
    one = report.sums_again
    if not one.num_look_ups:
        return ""
    return (
        f"After preemptions {counted(one.num_look_ups, 'look-up')} of {counted(one.num_tokens, 'token')} "
        f"hit {one.num_hit:,}; they are not included above."
    )


def rest(report: Report) -> list[str]:
    """Return the closing sentences: where a hit may end, the prices' basis, and what the data lacks."""
    per_token = "" if report.bytes_per_token is None else f"A token's KV takes {report.bytes_per_token:,} bytes."
    unit = f"A hit ends after a multiple of {counted(report.unit, 'token')}."
    return [one for one in (unit, again(report), report.clock_note, per_token, *capacity(report), *report.notes) if one]


def capacity(report: Report) -> Iterator[str]:
    """Yield sentences on what the pool holds of a model."""
    one = report.capacity
    if one is None:
        return
    yield f"A block takes {one.bytes_per_block:,} bytes."
    if one.num_tokens is None or one.request_tokens is None:
        yield "The model's config.json does not say how long a request may be (max_position_embeddings)."
    else:
        is_enough = one.num_tokens >= one.request_tokens
        which = "if each request has" if is_enough else "too few for the longest request:"
        yield f"The pool holds {counted(one.num_tokens, 'token')}, {which} {one.request_tokens:,}."


def how_to_show(report: Report, number: int) -> str:
    """Return what opens finding `number` (from 1) as a lab: a command, or an expression in Python."""
    return f"{report.command} --show {number}" if report.command else f"diagnosis.lab({number})"
