from __future__ import annotations

import pytest

from labengine.record.wording import counted, joined, listed, readable, request_name
from labengine_widgets.words.names import ContentIndex, content_name


@pytest.mark.parametrize(("number", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (702, "AAA")])
def test_requests_are_named_like_columns(number: int, name: str) -> None:
    assert request_name(number) == name


@pytest.mark.parametrize(("number", "name"), [(0, "p"), (10, "z"), (11, "p1"), (21, "z1"), (22, "p2")])
def test_contents_are_named_from_p_to_z_and_on(number: int, name: str) -> None:
    assert content_name(number) == name


def test_readable_text_has_no_hidden_characters() -> None:
    assert readable("a\nb\tc") == "a⏎b⇥c"
    assert readable("x\u202eevil\u2066\x00\x1b[0m") == "x·evil···[0m"
    assert readable("naïve 中文 👍") == "naïve 中文 👍"


def test_long_text_is_cut_at_the_limit() -> None:
    assert readable("abcdef", 6) == "abcdef"
    assert readable("abcdefg", 6) == "abcde…"


def test_lists_are_words() -> None:
    assert listed([]) == "nothing"
    assert listed(["#0"]) == "#0"
    assert listed(["#0", "#1"]) == "#0 and #1"
    assert listed(["#0", "#1", "#2"]) == "#0, #1 and #2"
    assert listed([f"#{i}" for i in range(9)]) == "#0, #1 … #8"
    assert (counted(1, "block"), counted(3, "block")) == ("1 block", "3 blocks")


def test_numbers_are_parted_and_words_are_not() -> None:
    assert joined(["12", "7"]) == "12 7"
    assert joined(["Once", " upon"]) == "Once upon"


def test_a_character_in_several_tokens_is_whole() -> None:
    texts = {"😀": ["\\xf0\\x9f", "\\x98\\x80"], "a é中!": ["a \\xc3", "\\xa9\\xe4", "\\xb8\\xad", "!"]}
    assert {text: joined(tokens) for text, tokens in texts.items()} == {text: text for text in texts}
    assert joined(["\\xf0\\x9f", "!", "\\x98\\x80"]) == r"\xf0\x9f!\x98\x80"
    assert joined(["\\x", "f0", "\\", "x9f"]) == r"\xf0\x9f", "as somebody has typed it"


def test_a_hash_takes_the_letter_of_its_prefix() -> None:
    contents = ContentIndex()
    assert contents.of_prefix("a") == 0
    assert contents.of_hash("hash of a", "a") == 0
    assert contents.of_hash("hash of b", "b") == 1
    assert contents.of_prefix("b") == 1
    assert contents.of_hash("hash of a") == 0


def test_two_hashes_of_one_prefix_are_two_contents() -> None:
    contents = ContentIndex()
    assert contents.of_hash("salted", "a") == 0
    assert contents.of_hash("not salted", "a") == 1
    assert contents.of_hash("salted", "a") == 0
