"""A tap on one scheduler: observers around its methods, and a stream of what they saw."""

from __future__ import annotations

import atexit
import os
import secrets
from collections import Counter, deque
from pathlib import Path
from time import monotonic, time
from typing import Any

from labengine_vllm import VARIABLE, logger
from labengine_vllm.broadcast import Broadcast
from labengine_vllm.contents import ContentObserver
from labengine_vllm.engine import Engine
from labengine_vllm.files import FileWriter
from labengine_vllm.header import header
from labengine_vllm.outbox import Outbox, Sender
from labengine_vllm.places import tcp_place, unix_place
from labengine_vllm.recorder import Recorder
from labengine_vllm.requests import RequestObserver
from labengine_vllm.state import Keyframe
from labengine_vllm.tables import watch_tables
from labengine_vllm.tokens import TokenIds
from labengine_vllm.wrapping import Entries, Wrapping

SECONDS_BETWEEN_KEYFRAMES = 1.0
"""The least interval, because a keyframe takes time of the engine's thread."""

SECONDS_BETWEEN_CHECKS = 30.0
"""The greatest interval while steps are taken, because a reader checks its fold against each keyframe."""


class Tap:
    """Observes one scheduler and sends its events to an outbox. Any exception of the tap itself detaches it.

    A step of the stream is one call of schedule and the following update of an earlier step's output: with asynchronous
    scheduling, step k + 1 is scheduled before step k's tokens are known.

    While the outbox has no audience, only the methods by which vLLM enters the scheduler are wrapped, and nothing is
    recorded. tokens: reads token ids, or leaves them out.
    """

    def __init__(self, engine: Engine, outbox: Sender, tokens: TokenIds | None = None) -> None:
        self.engine, self.outbox = engine, outbox
        self.recorder = recorder = Recorder(tokens or TokenIds())
        self._entries = Entries(recorder, self.detach)
        self._observers = Wrapping(recorder, self.detach)
        self._requests = RequestObserver(engine, recorder)
        self._is_observing = False
        self._num_sent = self._num_dropped = 0
        self._num_unseen_steps = 0
        """Number of steps scheduled while the state was unknown."""
        self._in_flight: deque[tuple[int, Any]] = deque()
        """Observed steps without an output yet, oldest first: number and plan."""
        self._keyframe_step = 0
        """The newest step before the newest keyframe."""
        self._next_keyframe = self._next_check = 0.0
        self._num_entered = -1
        self.is_attached = True
        self._enter()
        if outbox.has_audience:
            self._send_keyframe()
        atexit.register(self.close)

    @classmethod
    def attached(cls, scheduler: Any, address: str) -> Tap:
        """Attach to a scheduler. address: file:DIR, unix:DIR or tcp:127.0.0.1:PORT.

        Raises UnknownEngineError, ValueError or OSError.
        """
        engine, tokens = Engine.of(scheduler), TokenIds.by_environment()
        first = header(engine, f"{os.getpid()}-{secrets.token_hex(3)}", has_tokens=tokens.are_sent)
        kind, _, place = address.partition(":")
        if kind == "file" and place:
            what = "every prompt and every token" if tokens.are_sent else "every decision, without token ids,"
            logger.info("labengine: rank %s writes %s into %s", first["rank"], what, Path(place).resolve())
            return cls(engine, Outbox(FileWriter(place, first)), tokens)
        if kind == "unix" and place:
            listening = unix_place(place, f"rank{first['rank']}-{first['stream']}")
        elif kind == "tcp" and place:
            listening = tcp_place(place, first)
        else:
            raise ValueError(f"{VARIABLE} must be unix:DIR, tcp:127.0.0.1:PORT or file:DIR, got {address!r}")
        logger.info("labengine: rank %s can be attached at %s", first["rank"], listening.described)
        broadcast = Broadcast(listening, first)
        tap = cls(engine, broadcast, tokens)
        broadcast.on_waiting = tap.send_idle_keyframe
        return tap

    def detach(self, where: str, error: Exception) -> None:
        """Remove all wrappers after an error of the tap; the engine continues. The log and the stream say so."""
        if not self.is_attached:
            return
        self._take_off()
        sentence = f"the tap detached after an error in its observer of {where} ({type(error).__name__}: {error})"
        logger.warning("labengine: %s; the engine continues, and nothing more is recorded", sentence)
        self._send({"end": sentence}, 1)
        self.outbox.close(0)

    def close(self) -> None:
        """Send the remaining rows and a last keyframe, and remove the wrappers. Twice is harmless."""
        if not self.is_attached:
            return
        try:
            with self._entries.gate:
                self._finish_step()
                if self.recorder.is_listening:
                    self._send_keyframe()
                self._send({"end": "the engine was shut down", **self._loss()}, 1)
        except Exception as error:
            return self.detach("shutdown", error)
        self._take_off()
        self.outbox.close()

    def _take_off(self) -> None:
        self.is_attached = self.recorder.is_listening = False
        self._observers.remove()
        self._entries.remove()
        atexit.unregister(self.close)

    # -- wrappers ------------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Wrap the methods by which vLLM enters the scheduler. The others are wrapped while there is an audience."""
        scheduler, entries = self.engine.scheduler, self._entries
        entries.enter(scheduler, "schedule", None, self._after_schedule, self._before_schedule)
        entries.enter(scheduler, "update_from_output", self._before_update, self._after_update)
        self._requests.enter(entries)
        for name in ("finish_requests", "reset_prefix_cache"):
            entries.enter(scheduler, name)
        shutdown = scheduler.shutdown

        def shutting_down(*args: Any, **kwargs: Any) -> Any:
            self.close()
            return shutdown(*args, **kwargs)

        entries.replace(scheduler, "shutdown", shutting_down)

    def _observe(self) -> None:
        if self._is_observing:
            return
        self._is_observing = True
        self._requests.watch(self._observers)
        watch_tables(self._observers, self.engine, self.recorder)
        ContentObserver(self.engine, self.recorder).watch(self._observers)

    def _stop_observing(self) -> None:
        self._is_observing = False
        self._in_flight.clear()
        self._observers.remove()
        self.recorder.stop_listening()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _before_schedule(self, *_: Any, throttle_prefills: bool = False, **__: Any) -> None:
        if not self.is_attached:
            return
        if self.outbox.error is not None:
            raise self.outbox.error
        if self.outbox.has_audience:
            self._finish_step()
            if self._is_keyframe_due():
                self._send_keyframe()
        elif self._is_observing:
            self._stop_observing()
        if self.recorder.is_listening:
            self.recorder.open_step()
            if why := _unusual_step(self.engine.scheduler, throttle_prefills):
                self.recorder.note("unusual", why)
            self.recorder.note("schedule")
        else:
            self.recorder.step += 1
            self._num_unseen_steps += 1

    def _after_schedule(self, found: None, output: Any, *_: Any, **__: Any) -> None:
        self._requests.report_forward(output)
        self._in_flight.append((self.recorder.step, output))
        self._flush()

    def _before_update(self, scheduler_output: Any, *_: Any, **__: Any) -> None:
        if not self.recorder.has_open_step:
            self.recorder.open_step()
        step = self._step_of(scheduler_output)
        if step is None or step <= self._keyframe_step:
            ids, scheduled = self.recorder.ids, scheduler_output.num_scheduled_tokens.items()
            self.recorder.note("earlier", step, [(ids[name], number) for name, number in scheduled if name in ids])
        self.recorder.note("update")
        self._requests.begin_booking(scheduler_output)

    def _step_of(self, output: Any) -> int | None:
        """Return the step of an output; None for a step scheduled while there was no audience."""
        for place, (step, plan) in enumerate(self._in_flight):
            if plan is output:
                del self._in_flight[place]
                if place:
                    self.recorder.note("unusual", "an output arrived that is not the oldest step's")
                return step
        return None

    def _after_update(self, *_: Any, **__: Any) -> None:
        self._requests.report_computed()
        self._finish_step()

    def _finish_step(self) -> None:
        if self.recorder.is_listening:
            self.recorder.close_step()
        self._flush()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send_idle_keyframe(self) -> None:
        """Send a keyframe if vLLM has not entered its scheduler since the last call. Called on the outbox's thread.

        Otherwise a viewer of an engine without requests would wait for the next request.
        """
        num_entered, self._num_entered = self._num_entered, self._entries.num_entered
        if self._entries.num_entered != num_entered or not self._entries.gate.acquire(blocking=False):
            return
        try:
            if self.is_attached and not self.recorder.has_open_step and self._is_keyframe_due():
                self._flush()
                self._send_keyframe()
        except Exception as error:
            self.detach("an idle engine", error)
        finally:
            self._entries.gate.release()

    def send_state(self) -> None:
        """Send the rows up to now, and a keyframe unless a step is open. Called between two calls of the scheduler."""
        self._flush()
        if self.is_attached and not self.recorder.has_open_step:
            self._send_keyframe()

    def _flush(self) -> None:
        rows, inputs, names = self.recorder.take()
        if not (rows or inputs):
            return
        message: dict[str, Any] = {"e": rows, "inputs": inputs}
        if not self.engine.scheduler.requests and not self._in_flight and not self.recorder.has_open_step:
            message["idle"] = True  # vLLM may be killed at its exit, and a reader can judge up to here
        if not self._send(message | {"names": names} if names else message, len(rows)):
            self._num_dropped += len(rows)
            self.recorder.lose("the queue to the writer was full")

    def _is_keyframe_due(self) -> bool:
        now = monotonic()
        if now < self._next_keyframe or not self.outbox.has_room():
            return False
        return not self.recorder.is_listening or now >= self._next_check or self.outbox.wants_keyframe

    def _send_keyframe(self) -> None:
        """Send the engine's state with the loss since the last rows, and listen from now on."""
        self._observe()
        recorder = self.recorder
        if recorder.lost:
            self._in_flight.clear()
        recorder.keep_ids(self.engine.scheduler.requests)
        is_new = not recorder.is_listening
        if is_new:
            self._requests.transfers.forget()
        keyframe = Keyframe(self.engine, recorder)
        if is_new:
            recorder.pins = keyframe.pins() if self.engine.may_pin() else Counter()
        message: dict[str, Any] = {"k": keyframe, "names": recorder.new_names}
        message |= self._loss()
        if not self._send(message, len(self.engine.pool.blocks)):
            return
        recorder.new_names = {}
        recorder.asked.clear()
        self._keyframe_step = recorder.step
        self._num_dropped = self._num_unseen_steps = 0
        self._next_keyframe = monotonic() + SECONDS_BETWEEN_KEYFRAMES
        self._next_check = monotonic() + SECONDS_BETWEEN_CHECKS
        recorder.start_again()

    def _loss(self) -> dict[str, Any]:
        """Return a message's fields on missing rows since the last ones sent; empty if none are missing."""
        recorder = self.recorder
        if recorder.lost is None:
            return {}
        counts = {"num_events": self._num_dropped, "num_steps": self._num_unseen_steps}
        return {"lost": {"why": recorder.lost, "by": recorder.lost_by, "request": recorder.lost_in, **counts}}

    def _send(self, message: dict[str, Any], num_events: int) -> bool:
        if not self.outbox.put({"n": self._num_sent, "t": round(time(), 6), **message}, num_events):
            return False
        self._num_sent += 1
        return True


def _unusual_step(scheduler: Any, throttle_prefills: bool) -> str | None:
    """Return the condition that affects this step besides queues and limits, or None."""
    if throttle_prefills:
        return "prefills are held back for other data-parallel ranks"
    state = getattr(getattr(scheduler, "_pause_state", None), "name", "UNPAUSED")
    return None if state == "UNPAUSED" else f"the scheduler is paused ({state})"
