"""The pool draws a block whose KV is known to be another than its hash stands for, from its load on."""

from __future__ import annotations

import pytest

import labengine
from labengine import events as ev
from widgets.browser.views.mounted_view import MountedView, show_view
from widgets.browser.views.view_recordings import moment_after

pytestmark = pytest.mark.browser


def test_the_letter_of_its_hash_and_of_its_kv_differ_until_it_is_evicted() -> None:
    with labengine.bug("sglang-27444").broken() as lab:
        assert lab.timeline is not None
        lab.run()
        lab.generate([range(1000, 1040)], max_tokens=1)
        events = lab.timeline.events()

    def named(mounted: MountedView) -> dict[int, tuple[str, str]]:
        rows = mounted.page.evaluate("() => window.mounted.view.csv()")[1:]
        return {row[0]: (row[2], row[3]) for row in rows if row[2] != row[3]}

    def check(mounted: MountedView) -> None:
        loaded = moment_after(events, ev.BlocksLoaded)
        mounted.at(loaded - 1)
        assert named(mounted) == {}
        mounted.at(loaded)
        assert named(mounted) == {1: (2, 0), 2: (3, 1)}
        for theme in ("light", "dark"):
            mounted.picture("misnamed", theme)
        mounted.at(len(events))
        assert named(mounted) == {}

    show_view(check, "pool", events)
