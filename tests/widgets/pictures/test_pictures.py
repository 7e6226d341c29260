from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import labengine
from labengine import Lab
from labengine.record.fold import fold
from labengine.record.snapshot import Snapshot
from labengine_widgets import block_map, block_map_svg
from labengine_widgets.pictures.svg import HUES, LOST_HUE
from widgets.story_219 import begin, merging_step, overwriting_step

SVG = "{http://www.w3.org/2000/svg}"


def merged() -> Snapshot:
    return fold(begin() + merging_step())


def overwritten() -> Snapshot:
    return fold(begin() + overwriting_step())


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_text_picture_after_the_merge() -> None:
    assert block_map(merged()) == (
        "step 1 · 5 of 12 blocks used · 3 findable · 0 lost\n"
        "\n"
        "pool    #0 [p]x2    #1 [q]x2    #2 [r]x2    #3 [~]      #4  ·       #5  ·       #6  ·       #7 [~]\n"
        "        #8  ·       #9  ·      #10  ·      #11  ·\n"
        "\n"
        "A     running, 14 of 15 tokens -> #0 #1 #2 #3\n"
        "B     running, 14 of 15 tokens -> #0 #1 #2 #7\n"
        "map   p->#0  q->#1  r->#2\n"
        "queue head #6 #5 #4 #8 #9 #10 #11\n"
        "\n"
        "[p] live · (p) freed, still cached · [~] not full · !p! lost: alive, not findable · x2 ref count"
    )


def test_the_text_picture_shows_twins_and_what_is_lost() -> None:
    text = block_map(overwritten())
    assert "8 of 12 blocks used · 3 findable · 3 lost" in text
    assert "#0 !p!" in text and "#4 [p]" in text
    assert "p->#4  q->#5  r->#6" in text


def test_freed_blocks_stay_in_the_picture_and_large_pools_are_small() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        assert "#0 (p)" in repr(lab) and "p->(#0)" in repr(lab) and "1 finished" in repr(lab)
    with Lab("simulated", num_blocks=65536, block_size=4) as lab:
        lab.add(token_ids=list(range(400)))
        lab.step()
        lines = repr(lab).splitlines()
        assert len(lines) < 30 and max(map(len, lines)) <= 100
        assert any("and 64768 more" in line for line in lines)


def test_the_svg_shows_the_same() -> None:
    svg = block_map_svg(overwritten(), lambda token_id: f"t{token_id}", title="demo")
    words = texts(svg)
    assert {"demo", "8", "used of 12 · 3 findable · 3 lost · step 1"} <= set(words)
    assert [word for word in words if word.endswith(" lost")] == ["A lost"] * 3
    assert "prefix map:  p → #4   q → #5   r → #6" in words
    assert LOST_HUE in svg and LOST_HUE not in block_map_svg(merged()).split("</defs>")[1]


def test_what_is_free_and_kept_has_its_letter_in_the_svg_too() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.generate([[1, 2, 3, 4, 5, 6, 7, 8, 9]], max_tokens=2)
        words = texts(block_map_svg(lab.snapshot()))
    assert words.count("kept") == 2 and {"p", "q"} <= set(words)
    assert "freed" not in words


def test_the_svg_escapes_what_models_and_people_write() -> None:
    evil = '</text><script>alert(1)</script>&"'
    svg = block_map_svg(merged(), lambda _: evil, title=evil)
    assert "<script" not in svg
    assert not list(ElementTree.fromstring(svg).iter(f"{SVG}script"))
    assert evil in texts(svg)


def test_the_svg_of_a_large_pool_is_small() -> None:
    with Lab("simulated", num_blocks=65536, block_size=4, max_num_batched_tokens=8192) as lab:
        lab.add(token_ids=list(range(8000)))
        lab.step()
        svg = block_map_svg(lab.snapshot())
    assert len(svg) < 40_000
    assert "… and 64512 more blocks" in texts(svg)


def test_both_halves_use_one_palette(project_root: Path) -> None:
    script = (project_root / "widgets" / "browser" / "look" / "palette.ts").read_text(encoding="utf-8")
    assert f"const HUES = {list(HUES)}".replace("'", '"') in script
    assert f'LOST_HUE = "{LOST_HUE}"' in script


def test_the_svg_shows_what_the_tier_holds_and_pins() -> None:
    with labengine.bug("lmcache-5095").lab("unpinned once") as lab:
        assert not any("external tier" in word for word in texts(block_map_svg(lab.snapshot(), timeline=lab.timeline)))
        lab.fill_external(token_ids=range(1, 10))
        words = texts(block_map_svg(lab.snapshot(), timeline=lab.timeline))
        assert "external tier, 2 blocks; ● also in the pool, ○ only there:" in words
        assert sum(word.endswith("… ○") for word in words) == 2, "no prompt has named them yet"
        lab.add(token_ids=range(1, 10), max_tokens=2)
        lab.step()
        assert (
            sum(word.endswith("… ○ pin") for word in texts(block_map_svg(lab.snapshot(), timeline=lab.timeline))) == 2
        )
        lab.run()
        assert {"p ●", "q ●"} <= set(texts(block_map_svg(lab.snapshot(), timeline=lab.timeline)))
