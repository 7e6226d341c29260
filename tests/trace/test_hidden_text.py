"""What hides text: every code point of Unicode is judged, and the gaps that fill a screen."""

from __future__ import annotations

import unicodedata

import pytest

from hidden_texts import is_hidden
from labengine.record.hidden_text import GAP_COLUMNS, GAP_LINES, hiding, with_escapes
from labengine.record.wording import readable, visible
from widgets.browser.model.model_page import model_page

ALL = "".join(map(chr, range(0x110000)))
EMOJI = "\u2764\ufe0f\u200d\U0001f525 \U0001f469\U0001f3fd\u200d\U0001f680 \u0645\u06cc\u200c\u062e\u0648"
"""A heart on fire, an astronaut, and Persian with a joiner: these draw something."""
FAR = (" " * 200, "\t" * 300, " \t" * 150, "\n" * 3_000, "\n" + " \n\t\n" * 40)


def test_each_code_point_that_draws_nothing_has_a_sign_and_an_escape_and_is_refused_in_code() -> None:
    shown, wrong = readable(ALL, len(ALL)), []
    assert len(shown) == len(ALL)
    for number, (one, sign) in enumerate(zip(ALL, shown, strict=True)):
        if (one != sign) != is_hidden(number):
            wrong.append(f"{number:04X} {unicodedata.name(one, '')}")
    assert wrong == []
    hidden = [one for one in ALL if is_hidden(ord(one)) and one not in "\n\t"]
    assert [one for one in hidden[::97] if not hiding(f"x = 'a{one}b'")] == []
    assert not hiding("".join(one for one in ALL if not is_hidden(ord(one))))
    assert with_escapes("".join(hidden)).isascii()


@pytest.mark.parametrize("gap", FAR, ids=["blanks", "tabs", "both", "lines", "lines of blanks"])
def test_a_gap_that_fills_a_screen_is_marked_and_refused_in_code(gap: str) -> None:
    code = f"x = 1{gap};y"
    assert ("blanks" in hiding(code) or "empty lines" in hiding(code)) and "'x = 1" in hiding(code)
    marked = visible(code)
    assert "⟨" in marked and marked.count("\n") == code.count("\n") and visible(marked) == marked
    assert not hiding(code.removesuffix(";y")), "nothing is behind it"


def test_what_is_seen_is_left_alone() -> None:
    for text in (EMOJI, f"x{' ' * (GAP_COLUMNS - 1)}y", f"x{chr(10) * GAP_LINES}y", "\n\t\tx = 'é 日本 עברית'  # a"):
        assert visible(text) == text and not hiding(text)
    assert with_escapes(EMOJI) == EMOJI
    assert readable("a\u200db 1\ufe0f \U0001f469\u200d\u200d") == "a·b 1· \U0001f469··"


@pytest.mark.browser
def test_the_browser_shows_the_same() -> None:
    texts = [*(f"x{gap}y" for gap in FAR), EMOJI, "a\u200db 1\ufe0f", " " * 200, "x" + " " * 79 + "y", "a\r\nb"]
    with model_page() as page:
        assert page.evaluate("texts => texts.map(model.visible)", texts) == [*map(visible, texts)]
        read = "() => { let all = ''; for (let i = 0; i < 0x110000; i++) if (i < 0xd800 || i > 0xdfff) "
        read += "all += String.fromCodePoint(i); return model.readable(all, 2e6); }"
        assert page.evaluate(read) == readable(ALL[:0xD800] + ALL[0xE000:], len(ALL))
        draws = "() => { const odd = []; for (let i = 0; i < 0x110000; i++) { const one = String.fromCodePoint(i); "
        draws += r"if (/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{DI}]|[^\P{Zs} ]/u.test(one) "
        draws += "&& model.readable(one, 9) === one) odd.push(i); } return odd; }"
        assert page.evaluate(draws) == [], "by the browser's own tables of Unicode"
