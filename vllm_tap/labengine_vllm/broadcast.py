"""From the engine's thread to viewers on sockets: each gets a header, a keyframe, and the events from there on."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from threading import Thread, current_thread
from time import monotonic
from typing import Any

from labengine_vllm.encoding import encoded, line_of
from labengine_vllm.outbox import MAX_QUEUED_EVENTS, Message, Sender
from labengine_vllm.places import Place
from labengine_vllm.viewer import Viewer, ViewerGone

MAX_VIEWERS = 8
"""Most viewers attached at once. A further one gets a refusal, and is closed."""

MAX_STRANGERS = 8
"""Most connections that have not sent their secret yet; a further one replaces the oldest. They do not count as
viewers."""

POLL_SECONDS = 0.1
"""Seconds between two checks while a viewer waits for its secret, or for a keyframe of an idle engine."""

MAX_MESSAGES_AT_ONCE = 100
"""Messages passed on between two checks of the sockets."""


class Broadcast(Sender):
    """Sends one stream to all viewers of a place, on a separate thread; the engine never waits for a viewer.

    on_waiting: called on that thread, now and then, while a viewer waits for a keyframe.
    """

    def __init__(self, place: Place, header: dict[str, Any], max_events: int = MAX_QUEUED_EVENTS) -> None:
        super().__init__(max_events)
        self.place = place
        self.on_waiting: Callable[[], None] = lambda: None
        self._header = encoded({**header, "file": 1})
        self._viewers: dict[socket.socket, Viewer] = {}
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._is_rung = False
        self._close_by: float | None = None
        """The time to stop sending waiting messages; None before the end."""
        self._linger = 0.0
        self._thread = Thread(target=self._run, name="labengine-tap", daemon=True)
        self._thread.start()

    # -- the engine's thread -------------------------------------------------------------------------------------------

    def put(self, message: Message, num_events: int) -> bool:
        """Queue a message. Returns False, and does nothing, if too many events wait."""
        is_queued = super().put(message, num_events)
        self._wake()
        return is_queued

    def close(self, seconds: float = 2.0) -> None:
        """Send everything, waiting for at most `seconds`, and remove the socket."""
        self._linger = seconds
        self._queue.put(None)
        self._wake()
        if self._thread is not current_thread():
            self._thread.join(seconds + POLL_SECONDS)

    def _wake(self) -> None:
        if not self._is_rung:
            self._is_rung = True
            with suppress(OSError):
                self._ring.send(b"\0")

    # -- the viewers' thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                self._selector = selector
                selector.register(self.place.listener, selectors.EVENT_READ)
                selector.register(self._bell, selectors.EVENT_READ)
                self._serve()
        except Exception as error:
            self.error = error
        self.has_audience = self.wants_keyframe = False
        self.place.close()
        for sock in (*self._viewers, self._bell, self._ring):
            sock.close()

    def _serve(self) -> None:
        while not self._is_done():
            is_called = False
            for key, mask in self._selector.select(self._patience()):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._bell:
                    self._answer_bell()
                elif sock is self.place.listener:
                    is_called = True
                elif mask & selectors.EVENT_READ:
                    self._receive(self._viewers.get(sock))
            if is_called:  # after the received secrets are read
                self._accept()
            self._hand_on()
            for viewer in list(self._viewers.values()):
                self._look_after(viewer)
            self.has_audience = any(viewer.is_admitted for viewer in self._viewers.values())
            self.wants_keyframe = any(viewer.wants_keyframe for viewer in self._viewers.values())
            if self.wants_keyframe and self._close_by is None:
                self.on_waiting()

    def _is_done(self) -> bool:
        if self._close_by is None:
            return False
        return monotonic() > self._close_by or not any(viewer.has_waiting for viewer in self._viewers.values())

    def _patience(self) -> float | None:
        is_waited = self.wants_keyframe or not all(viewer.is_admitted for viewer in self._viewers.values())
        return POLL_SECONDS if is_waited or self._close_by is not None else None

    def _answer_bell(self) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(64)
        self._is_rung = False

    def _receive(self, viewer: Viewer | None) -> None:
        was_admitted = viewer is not None and viewer.is_admitted
        self._guarded(viewer, Viewer.receive)
        if viewer is not None and viewer.is_admitted and not was_admitted:
            self._refuse_surplus(viewer)

    def _accept(self) -> None:
        try:
            connection, _ = self.place.listener.accept()
        except OSError:  # already gone
            return
        connection.setblocking(False)
        viewer = Viewer(connection, self.place.secret, self._header)
        self._viewers[connection] = viewer
        self._selector.register(connection, selectors.EVENT_READ)
        if viewer.is_admitted:
            self._refuse_surplus(viewer)
        strangers = [one for one in self._viewers.values() if not one.is_admitted]
        if len(strangers) > MAX_STRANGERS:
            self._send_off(strangers[0], "no secret came")

    def _refuse_surplus(self, viewer: Viewer) -> None:
        if sum(one.is_admitted for one in self._viewers.values()) > MAX_VIEWERS:
            self._send_off(viewer, f"{MAX_VIEWERS} viewers are already attached")

    def _send_off(self, viewer: Viewer, why: str) -> None:
        self._guarded(viewer, lambda one: one.refuse(why))
        self._drop(viewer)

    def _hand_on(self) -> None:
        for _ in range(MAX_MESSAGES_AT_ONCE):
            try:
                item = self._queue.get(block=False)
            except Empty:
                return
            if item is None:
                self._close_by = monotonic() + self._linger
                return
            message, num_events = item
            self._send(message, num_events)
            self._num_taken += num_events
        self._wake()  # there may be more

    def _send(self, message: Message, num_events: int) -> None:
        line = line_of(message)
        for viewer in self._viewers.values():
            if not viewer.is_admitted:
                continue
            if "k" in message and (viewer.is_following or not viewer.has_waiting):
                viewer.put(_keyframe_for(viewer, message, line), num_events)
            elif viewer.is_following or "end" in message:
                viewer.put(line, num_events)
            else:
                viewer.miss(num_events)

    def _look_after(self, viewer: Viewer) -> None:
        if viewer.is_overdue:
            return self._send_off(viewer, "no secret came")
        if viewer.has_waiting:
            self._guarded(viewer, Viewer.send)
        if viewer.connection in self._viewers:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if viewer.has_waiting else 0)
            self._selector.modify(viewer.connection, wanted)

    def _guarded(self, viewer: Viewer | None, act: Callable[[Viewer], None]) -> None:
        if viewer is None:
            return
        try:
            act(viewer)
        except BlockingIOError:
            pass
        except (ViewerGone, OSError):
            self._drop(viewer)

    def _drop(self, viewer: Viewer) -> None:
        if self._viewers.pop(viewer.connection, None) is not None:
            self._selector.unregister(viewer.connection)
            viewer.connection.close()


def _keyframe_for(viewer: Viewer, message: Message, line: bytes) -> bytes:
    """Return the line of a keyframe for one viewer, with its own loss of events, or else the loss of all viewers."""
    was_following = viewer.is_following
    lost = viewer.follow()
    if was_following or (lost is None and "lost" not in message):
        return line
    kept = {name: value for name, value in message.items() if name != "lost"}
    return line_of({**kept, "lost": lost} if lost else kept)
