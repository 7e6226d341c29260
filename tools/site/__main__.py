"""Write the site: python -m tools.site [FOLDER]."""

import sys
from pathlib import Path

from tools.site.live_page import build

front = build(Path(*sys.argv[1:2] or ["site"]))
size = sum(file.stat().st_size for file in front.parent.rglob("*") if file.is_file())
print(f"site: {front}, {size / 1e6:.0f} MB in all. To look at it: python -m http.server -d {front.parent}")
