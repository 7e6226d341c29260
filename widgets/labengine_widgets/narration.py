"""A lab's words: the beats of a stretch and the sentence of a moment, by a teller that keeps its place."""

from __future__ import annotations

import threading
from collections.abc import Callable

from labengine.timeline import Timeline
from labengine_widgets.beats import Beat, Teller, beats


class Narration:
    """Asked from any thread. Contents are named by signs, for a browser half, which has numbered them itself."""

    def __init__(self, recording: Callable[[], Timeline], token_text: Callable[[int], str]) -> None:
        self._recording, self._token_text = recording, token_text
        self._guard = threading.RLock()
        self._teller: Teller | None = None

    def forget(self) -> None:
        """Begin anew: the recording is another one, or the teller stumbled."""
        with self._guard:
            self._teller = None

    def tell(self, start: int, end: int) -> list[Beat]:
        """The beats between two moments."""
        with self._guard:
            return self._known().tell(start, end)

    def rest(self, moment: int) -> str:
        """What is said to somebody who comes at this moment."""
        with self._guard:
            return self._known().rest(moment)

    def plain(self, start: int, end: int) -> list[Beat]:
        """The beats with Python's own letters, as text to read."""
        return beats(self._recording(), start, end, self._token_text)

    def _known(self) -> Teller:
        if self._teller is None:
            self._teller = Teller(self._recording(), self._token_text, signs=True)
        return self._teller
