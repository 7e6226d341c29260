"""The prefix caches of running engines, which follow their publishers until they are closed."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from threading import Event, Thread, current_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from labengine.vllm.cache_events.document import TokensText
from labengine.vllm.cache_events.kv_files import EventRecorder
from labengine.vllm.cache_events.places import PublisherPlace
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.cache_events.stream import EventStream
from labengine.vllm.cache_events.subscriber import Subscriber

if TYPE_CHECKING:
    from ipywidgets import HTML

SECONDS_TO_WAIT = 0.1
SECONDS_OF_SILENCE = 2.0
"""Seconds after which the replay is asked for missed batches."""

SECONDS_BETWEEN_VIEWS = 1.0
SHARE_FOR_VIEWS = 10
"""A pause between views lasts at least this many times as long as the last view took, to leave time for reading."""

NOTHING_YET = (
    "no batch has arrived yet: engines publish when they store or remove blocks. vLLM and SGLang bind only endpoints "
    "with * or ipc://; if theirs names a host, they connect, so the place here must start with kv:bind:"
)


class LivePrefixes(CachedPrefixes):
    """Follows publishers in a separate thread. show() returns a view that is kept up to date."""

    def __init__(
        self, subscriber: Subscriber, stream: EventStream, text_of: TokensText, recorder: EventRecorder | None
    ) -> None:
        super().__init__(stream, text_of)
        self._subscriber, self._recorder = subscriber, recorder
        self._closing = Event()
        self._failure = ""
        self._shown: HTML | None = None
        self._threads = [Thread(target=self._read, name="labengine-kv-events", daemon=True)]
        self._threads[0].start()

    @classmethod
    def attached(
        cls,
        publishers: Sequence[PublisherPlace],
        topic: str,
        record: str | PathLike[str] | None,
        text_of: TokensText,
        max_blocks: int,
    ) -> Self:
        """Attach to publishers. Raises ConfigError for an unusable endpoint, and for a file that exists."""
        sources = tuple(publisher.name for publisher in publishers)
        subscriber = Subscriber(publishers, topic)
        try:
            recorder = None if record is None else EventRecorder(record, sources)
            keep = None if recorder is None else recorder.keep
            stream = EventStream(sources, subscriber.replay, keep, max_blocks)
        except BaseException:
            subscriber.close()
            raise
        return cls(subscriber, stream, text_of, recorder)

    @property
    def is_connected(self) -> bool:
        """False once it is closed, or reading has failed."""
        return self._threads[0].is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until reading has ended. Returns False if it has not after `seconds`."""
        self._threads[0].join(seconds)
        return not self._threads[0].is_alive()

    def show(self) -> HTML:
        """Return the view, which follows the engine until close()."""
        from ipywidgets import HTML

        if self._shown is None:
            self._shown = HTML(self.html())
            self._threads.append(Thread(target=self._refresh, name="labengine-kv-view", daemon=True))
            self._threads[-1].start()
        return self._shown

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return the view that follows the engine, and its present content for a saved notebook."""
        bundle = self.show()._repr_mimebundle_(**options) or {}
        return {**bundle, "text/html": self.html(), "text/plain": repr(self)}

    def close(self) -> None:
        """Disconnect from the publishers; the content stays readable. Twice is harmless."""
        self._closing.set()
        self._subscriber.is_closing = True
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(2.0)

    def _about_end(self) -> list[str]:
        if self._failure:
            return [f"reading ended: {self._failure}"]
        return [] if self.stream.num_batches else [NOTHING_YET]

    def _read(self) -> None:
        try:
            self._catch_up()
            newest = monotonic()
            while not self._closing.is_set():
                for message in self._subscriber.messages(SECONDS_TO_WAIT):
                    newest = monotonic()
                    with self._guard:
                        self.stream.take(message)
                if monotonic() - newest > SECONDS_OF_SILENCE:
                    self._catch_up()
                    newest = monotonic()
        except Exception as error:  # a full disk, no memory: the content so far stays readable
            self._failure = f"{error}" or type(error).__name__
        finally:
            self._subscriber.close()
            if self._recorder is not None:
                self._recorder.close()

    def _catch_up(self) -> None:
        """Ask for batches published before the connection was ready, which no later batch has shown to be missing."""
        for source in range(len(self.stream.sources)):
            answers = list(self._subscriber.replay(source, self.stream.newest_number(source)))
            with self._guard:
                self.stream.catch_up(answers)

    def _refresh(self) -> None:
        shown, pause = -1, SECONDS_BETWEEN_VIEWS
        while not self._closing.wait(pause):
            if self._shown is not None and shown != self.stream.num_batches:
                shown, begun = self.stream.num_batches, monotonic()
                self._shown.value = self.html()
                pause = max(SECONDS_BETWEEN_VIEWS, SHARE_FOR_VIEWS * (monotonic() - begun))
