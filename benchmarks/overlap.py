"""What scheduling ahead gains: decode steps of a full batch, on a stand-in for a device that computes by itself.

    python benchmarks/overlap.py [--batch 256] [--steps 200] [--forward-ms 0 1 2 4 8] [--eos-every 500] [--record]

The device takes so many milliseconds for a forward pass while the host is free; tokens are the simulated model's. Two
engines decode the same requests in turns of 20 steps, one waiting for each step's tokens before it schedules the next,
one scheduling ahead. Printed are a step's time in the turn at the lower quartile, which a busy machine disturbs least,
and the throughput that it means; and in the host's own processor time (means) the gap in which the device has nothing
to do, from its tokens to the next launch, and all that the host does for a step. With --eos-every N a request ends by
eos after about N tokens, which nobody can foresee: such a step's end is done twice.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from time import perf_counter, sleep, thread_time

from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition
from labengine.core.step_plan import StepPlan
from labengine.engine.ahead import OverlappedEngine
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner, default_next_token
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

EOS = 50021
STEPS_PER_ROUND = 20


class StandInDevice(SimulatedRunner):
    """forward() launches and returns; sample() waits until the device is done. A clock does: a thread would need the
    interpreter to start with, which the host is using.
    """

    is_asynchronous = True

    def __init__(self, forward_s: float, eos_every: int) -> None:
        super().__init__(lambda request_id, position: _next_token(request_id, position, eos_every))
        self._forward_s = forward_s
        self._done_at = 0.0
        self._sampled_at = thread_time()
        self.gap_s = 0.0

    def forward(self, plan: StepPlan) -> None:
        """The device is busy from now on."""
        self.gap_s += thread_time() - self._sampled_at
        self._done_at = perf_counter() + self._forward_s

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """The simulated tokens, in their time."""
        tokens = super().sample(plan, logits)
        sleep(max(0.0, self._done_at - perf_counter()))
        self._sampled_at = thread_time()
        return tokens


def _next_token(request_id: int, position: int, eos_every: int) -> int:
    ends = eos_every and default_next_token(request_id + 1, position * position) % eos_every == 0
    return EOS if ends else default_next_token(request_id, position)


@dataclass
class Decoder:
    """An engine kept at a full batch of decodes."""

    engine: Engine
    batch: int
    step_s: list[float] = field(default_factory=list)
    host_s: list[float] = field(default_factory=list)
    """Processor time of the host's thread."""
    gap_s: list[float] = field(default_factory=list)

    @property
    def device(self) -> StandInDevice:
        """What it runs on."""
        assert isinstance(self.engine.runner, StandInDevice)
        return self.engine.runner

    def refill(self) -> None:
        """As many requests as have ended."""
        scheduler = self.engine.scheduler
        for _ in range(self.batch - len(scheduler.running) - len(scheduler.waiting)):
            prompt = [len(self.engine.requests) * 31 + i for i in range(100)]
            self.engine.add(prompt, SamplingParams(max_tokens=1000))

    def take_round(self) -> None:
        """So many steps, timed; their mean."""
        self.refill()
        self.engine.step()  # the prompts of the new ones
        self.device.gap_s = 0.0
        before, host_before = perf_counter(), thread_time()
        for _ in range(STEPS_PER_ROUND):
            self.engine.step()
        self.step_s.append((perf_counter() - before) / STEPS_PER_ROUND)
        self.host_s.append((thread_time() - host_before) / STEPS_PER_ROUND)
        self.gap_s.append(self.device.gap_s / STEPS_PER_ROUND)


def decoder(engine_class: type[Engine], batch: int, forward_s: float, eos_every: int, *, record: bool) -> Decoder:
    """An engine with room for the whole batch, its prompts computed."""
    hooks = Hooks()
    if record:
        hooks.subscribe(Timeline().record)
    config = EngineConfig(
        batch * 80, (GroupSpec(16),), batch, max_num_batched_tokens=101 * batch, eos_token_ids=frozenset({EOS})
    )
    return Decoder(engine_class(config, StandInDevice(forward_s, eos_every), edition("labengine"), hooks), batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--forward-ms", type=float, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--eos-every", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    selected = parser.parse_args()
    print(
        f"batch {selected.batch}, eos every {selected.eos_every or 'never'}, "
        f"{'' if selected.record else 'not '}recorded"
    )
    print("forward |   step, ms      |  tokens/s              ratio | gap, ms         | host, ms")
    print("     ms | waiting   ahead |  waiting      ahead          | waiting   ahead | waiting   ahead")
    for milliseconds in selected.forward_ms:
        sides = [
            decoder(kind, selected.batch, milliseconds / 1e3, selected.eos_every, record=selected.record)
            for kind in (Engine, OverlappedEngine)
        ]
        for round_number in range(max(1, selected.steps // STEPS_PER_ROUND)):
            for side in sides if round_number % 2 else reversed(sides):
                side.take_round()
        steps = [quantiles(side.step_s)[0] for side in sides]
        rates = [selected.batch / step for step in steps]
        gaps = [fmean(side.gap_s) for side in sides]
        hosts = [fmean(side.host_s) for side in sides]
        print(
            f"{milliseconds:7g} | {_ms(steps)} | {rates[0]:8,.0f}   {rates[1]:8,.0f}   {rates[1] / rates[0]:7.3f}",
            end="",
        )
        print(f"  | {_ms(gaps)} | {_ms(hosts)}", flush=True)


def _ms(seconds: list[float]) -> str:
    return " ".join(f"{value * 1e3:7.2f}" for value in seconds)


if __name__ == "__main__":
    main()
