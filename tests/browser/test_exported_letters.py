"""An exported page gives contents the same letters with scripts, without them, and in print."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser

from browser.exported_page import opened
from widgets.pictures.lettered import BEADS, letters_in, two_that_part


def test_an_exported_page_without_scripts_says_what_it_says_with_them(browser: Browser, tmp_path: Path) -> None:
    with two_that_part() as lab:
        path = lab.export_html(tmp_path / "run.html")
        with opened(browser, path) as page:
            page.press("End")
            beads = {block: letter for letter, block in page.page.evaluate(BEADS)}
        [still] = re.findall(r"<pre>(.*?)</pre>", path.read_text(encoding="utf-8"), re.DOTALL)
        assert letters_in(still.replace("&gt;", ">")) == beads == letters_in(repr(lab))
