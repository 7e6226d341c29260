"""A Prometheus endpoint of running vLLMs: hits, misses by cause and tenant, evictions by evictor, and the pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from time import monotonic
from typing import Any, cast

from labengine.config import ConfigError, checked_int
from labengine.prefix_doctor.report.following import Following
from labengine.prefix_doctor.report.metric_sums import MetricSums
from labengine.prefix_doctor.report.pool import PoolCounts
from labengine.system.closing import Closing
from labengine.system.extras import require_extra
from labengine.vllm.stream.live import LiveStream

HOST = "127.0.0.1"
PERIOD = 1.0
"""Seconds between two looks at the streams."""

MAX_KEPT = 200_000
"""Events to keep of each stream, for `attach`: the doctor examines all of them each time, for about 3 seconds."""


class PrometheusEndpoint(Closing):
    """Serves sums over the engines of one place, on this machine only. They grow while `follow` is called.

    port: 0 for any free one. Raises ConfigError if it cannot be served, or the extra `exports` is missing.
    """

    def __init__(self, streams: Sequence[LiveStream], port: int) -> None:
        require_extra("exports", "a Prometheus endpoint", "prometheus_client")
        from prometheus_client import CollectorRegistry, start_http_server

        port = checked_int("port", port, 0, 65535)
        self._streams, self._sums, self._due = streams, MetricSums(), 0.0
        self._following = [Following(one.reader, one.held_still, self._sums) for one in streams]
        self._shown = deepcopy(self._sums)
        registry = CollectorRegistry()
        registry.register(cast(Any, self))
        try:
            self._server, self._thread = start_http_server(port, HOST, registry)
        except OSError as error:
            raise ConfigError(f"port {port} cannot be served ({error.strerror}): choose another one") from None

    @property
    def address(self) -> str:
        """The URL to scrape."""
        return f"http://{HOST}:{self._server.server_port}/metrics"

    def follow(self, period: float) -> bool:
        """Wait `period` seconds for the streams' end, and add what has come; return True once all have ended."""
        is_over = all(stream.wait(period) for stream in self._streams)
        if is_over or monotonic() >= self._due:
            for stream, following in zip(self._streams, self._following, strict=True):
                following.follow(is_over=not stream.is_connected)
            self._shown = deepcopy(self._sums)
            self._due = monotonic() + PERIOD
        return is_over

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, as a collector of prometheus_client does."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, labels, sums in _counters(self._shown):
            yield _filled(CounterMetricFamily(name, text, labels=labels), sums)
        pool = Counter[str]()
        for stream in self._streams:
            pool.update(PoolCounts(stream.fold()).counts)
        gauge = GaugeMetricFamily("labengine_pool_blocks", "Blocks of the KV cache, by state.", labels=["state"])
        yield _filled(gauge, {(state,): number for state, number in pool.items()})

    def close(self) -> None:
        """Stop serving. Twice is harmless."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


Sums = Mapping[tuple[str, ...], int]


def _counters(sums: MetricSums) -> Iterator[tuple[str, str, Sequence[str], Sums]]:
    """Yield name, help, labels, and the sum for each set of label values."""
    prompts = sums.prompts.sums
    yield "labengine_prompts", "Prompts whose look-up in the prefix cache was judged.", (), {(): prompts.num_look_ups}
    yield "labengine_prompt_tokens", "Tokens of these prompts.", (), {(): prompts.num_tokens}
    yield "labengine_hit_tokens", "Of these, tokens found in the prefix cache.", (), {(): prompts.num_hit}
    yield "labengine_external_hit_tokens", "Of these, found in an external tier.", (), {(): prompts.num_external}
    text = "Of these, tokens that had to be computed, by cause and by tenant (the digest of a cache salt)."
    yield "labengine_missed_tokens", text, ("cause", "tenant"), sums.missed.sums
    text = "Cached blocks that lost their content: to a prefill, to a decode, or for another reason."
    yield "labengine_evicted_blocks", text, ("by",), sums.evicted.sums
    text = "Stretches of events that were lost, or came too fast to be judged."
    yield "labengine_stream_gaps", text, (), {(): sums.num_gaps}


def _filled(family: Any, sums: Sums) -> Any:
    for values, number in sums.items():
        family.add_metric(values, number)
    return family
