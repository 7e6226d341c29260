"""The block tables name a beam by its search and its number, also where the recording begins with a keyframe."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine.record.files import codec
from labengine.record.files.keyframe import keyframe
from widgets.browser.views.mounted_view import MountedView, show_view

pytestmark = pytest.mark.browser

FROM_KEYFRAME = """(payload) => {
  const { side, view } = window.mounted;
  side.begin(JSON.parse(payload), null);
  window.isPainted = false;
  window.goTo(side.recording.end);
}"""


def test_a_beam_has_a_label_and_a_fork_has_none() -> None:
    with Lab("simulated", num_blocks=24, block_size=4) as lab:
        lab.add(token_ids=range(30, 40), n=2, max_tokens=4)
        lab.add(token_ids=range(10, 20), beams=3, max_tokens=8)
        lab.step(3)
        assert lab.timeline is not None
        events, state = list(lab.timeline.events()), lab.timeline.state(lab.timeline.end)

    def check(mounted: MountedView) -> None:
        labels = ["", "", "beam C.1", "beam C.2", "beam C.3"]
        assert mounted.texts(".le-tables-beam") == labels
        header = {"kinds": codec.KINDS, "title": "test", "is_live": False}
        late = {"header": header, "start": len(events), "keyframe": keyframe(state), "events": [], "texts": []}
        mounted.page.evaluate(FROM_KEYFRAME, codec.dumps(late).decode())
        assert mounted.texts(".le-tables-beam") == labels

    show_view(check, "tables", events)
