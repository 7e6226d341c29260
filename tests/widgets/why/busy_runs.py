"""Small pools in which everything is reused again and again, and what really happened there, folded event by event."""

from __future__ import annotations

from random import Random

from driving import small_engine
from labengine import events as ev
from labengine.config import SamplingParams
from labengine.record.fold import Fold
from labengine.record.fold_state import Key
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

BLOCK_SIZE = 4


class BusyRun:
    """A few prompts that begin alike come back all the time, where there is room for two or three of them."""

    def __init__(self, edition: str, seed: int, *, record: int | None = None, num_steps: int = 60) -> None:
        rng, hooks = Random(seed), Hooks(strict=True)
        self.complete, self.timeline = Timeline(), Timeline(record or 100_000)
        hooks.subscribe(self.complete.record)
        hooks.subscribe(self.timeline.record)
        threshold = rng.choice((0, 0, 3)) if edition in ("labengine", "vllm") else 0
        self.engine = small_engine(
            max(rng.randint(7, 10), 9 if edition == "sglang" else 0),  # it keeps a block and a slot free
            BLOCK_SIZE,
            edition,
            hooks=hooks,
            budget=rng.choice((1000, 24)),
            long_prefill_token_threshold=threshold,
        )
        self._run(rng, num_steps)

    def _run(self, rng: Random, num_steps: int) -> None:
        for _ in range(num_steps):
            while rng.random() < 0.4:
                self.engine.add(_prompt(rng), SamplingParams(max_tokens=rng.randint(1, 9), ignore_eos=True))
            luck = rng.random()
            if luck < 0.03 and self.engine.requests:
                self.engine.abort(rng.choice(list(self.engine.requests)))
            elif luck < 0.05:
                self.engine.reset_prefix_cache()
            elif luck < 0.1:
                self._break_off(rng.randint(1, 3))
            self.engine.step()

    def _break_off(self, num_phases: int) -> None:
        phases = self.engine.phases()
        for _ in zip(phases, range(num_phases), strict=False):
            pass
        phases.close()  # type: ignore[attr-defined]


def _prompt(rng: Random) -> list[int]:
    common, own = rng.choice((100, 200)), rng.choice((300, 400, 500))
    num_common, num_own = rng.randint(1, 10), rng.randint(1, 7)
    return [*range(common, common + num_common), *range(own, own + num_own)]


class Truth:
    """The prefix map after each event, and the key of every prefix: without the code that answers questions."""

    def __init__(self, timeline: Timeline) -> None:
        self.events = timeline.events()
        self.maps: list[dict[Key, tuple[int, ...]]] = [{}]
        """By moment."""
        state = at_start = Fold()
        for event in self.events:
            if isinstance(event, ev.StepStarted):
                at_start = state.copy()
            if isinstance(event, ev.StepRolledBack):
                state = at_start
            state.apply(event)
            self.maps.append(dict(state.prefix_map))
        self.keys = {self._prefix(state, event): (event.group, event.block_hash) for event in self._cached()}

    def _cached(self) -> list[ev.BlockCached]:
        return [event for event in self.events if isinstance(event, ev.BlockCached) and event.is_full]

    def _prefix(self, final: Fold, event: ev.BlockCached) -> tuple[int, ...]:
        return tuple(final.requests[event.request_id].token_ids[: (event.index + 1) * BLOCK_SIZE])

    def left_at(self, key: Key, moment: int) -> int | None:
        """The number of the last event, before a moment at which the map lacks the key, that took it out."""
        assert key not in self.maps[moment]
        number = moment - 1
        while number >= 0:
            if isinstance(self.events[number], ev.StepRolledBack):  # what was in that step was never there
                number = self._before_step(number)
            elif key in self.maps[number]:
                return number
            else:
                number -= 1
        return None

    def _before_step(self, rollback: int) -> int:
        """The number of the event before a broken-off step."""
        return next(n for n in range(rollback, -1, -1) if isinstance(self.events[n], ev.StepStarted)) - 1
