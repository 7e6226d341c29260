"""Varying text has the name of what it is; text that comes in another order, or is cut in a chat, is told apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labengine.prefix_doctor.causes.cures import changes_for
from labengine.prefix_doctor.causes.finding import Kind
from labengine.prefix_doctor.causes.kept_history import with_history_kept
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from prefix_doctor import traffics
from prefix_doctor.traffics import Words, numbered, traffic_of

SETTING = traffics.all_new().setting


def ledger_of(traffic: Traffic, setting: Setting = SETTING) -> Ledger:
    ledger = Ledger(setting.config.groups, setting.config.num_blocks, traffic.token_text)
    play(traffic, setting, ledger.add)
    return ledger


VALUES: dict[str, tuple[Kind, Callable[[int], str]]] = {
    "iso": ("clock", lambda n: f"2026-03-{n % 28 + 1:02}T08:{n % 60:02}:00Z"),
    "unix": ("clock", lambda n: f"{1_774_000_000 + 977 * n}"),
    "date": ("clock", lambda n: f"{('Mon', 'Tues', 'Wednes')[n % 3]}day, {n % 28 + 1} March 2026"),
    "uuid": ("id", lambda n: f"{n * 2654435761 % 2**32:08x}-1a2b-4c3d-8e9f-{n * 40503 % 2**48:012x}"),
    "counter": ("counter", lambda n: f"{4000 + n}"),
    "picture": ("image", lambda n: f"<picture {n * 11400714819323198485 % 2**64:016x}>"),
    "words": ("varying_text", lambda n: "".join("abcdefgh"[n * k % 8] + "aeiou"[n * k % 5] for k in (1, 3, 7, 11))),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_varying_text_is_named_by_its_characters(name: str) -> None:
    kind, value = VALUES[name]
    words = Words(21)
    rules = [*words.of(" |"), *words.random(100)]
    texts = ([*words.of("Now", ":", " ", *value(n)), *rules, *words.random(20)] for n in range(30))
    found = ledger_of(traffic_of(words, name, numbered(texts))).findings()
    assert [one.kind for one in found] == [kind]


def test_without_text_nothing_is_called_a_clock() -> None:
    made = traffics.clock_first()
    traffic = Traffic("ids", made.traffic.read)
    assert [one.kind for one in ledger_of(traffic).findings()] == ["varying_text"]


def test_documents_in_another_order() -> None:
    words = Words(22)
    system, documents = words.random(48), [words.random(64) for _ in range(6)]

    def prompt() -> list[int]:
        chosen = words.rng.sample(documents, 4)
        return [*system, *(token for document in chosen for token in document), *words.random(20)]

    first, *others = ledger_of(traffic_of(words, "documents", numbered(prompt() for _ in range(60)))).findings()
    assert first.kind == "varying_text"
    assert "another order" in first.title
    assert sum(one.num_lost for one in others) < first.num_lost / 10


@pytest.mark.parametrize("make", [traffics.edited_history, traffics.truncated_history])
def test_a_conversation_is_found_without_its_session(make: Callable[[], traffics.Made]) -> None:
    made = make()

    def read() -> list[Prompt]:
        return [Prompt(one.name, one.token_ids, num_answer=one.num_answer, answer=one.answer) for one in made.traffic]

    traffic = Traffic("chats", lambda: iter(read()), made.traffic.token_text)
    assert ledger_of(traffic).findings()[0].kind == made.kind
    left = ledger_of(with_history_kept(traffic)).findings()
    assert sum(one.num_lost for one in left) < made.num_lost / 10


def test_most_values_decide_and_one_that_comes_again_is_no_name() -> None:
    words = Words(23)
    rules = words.random(100)
    clocks = [[*words.of("It is ", f"12:00:{n:02}", ". You"), *rules, *words.random(20)] for n in range(3)]
    plain = [[*words.of("You"), *rules, *words.random(20)] for _ in range(4)]
    (found,) = ledger_of(traffic_of(words, "clock, then none", numbered([*clocks, *plain]))).findings()
    assert found.kind == "clock"


def test_a_single_prompt_diverges() -> None:
    words = Words(24)
    rules = words.random(100)
    texts = ([*words.random(5), *rules] for _ in range(2))
    (found,) = ledger_of(traffic_of(words, "two", numbered(texts))).findings()
    assert found.sentence.startswith("1 of 2 prompts diverges at token 0")


def test_what_a_block_shares_ends_where_the_texts_differ() -> None:
    made = traffics.short_prompts()
    (found,) = ledger_of(made.traffic, made.setting).findings()
    one = found.examples[0]
    assert (one.position, one.again) == (40, "")
    assert one.mine != one.its and one.mine and one.its


def test_the_same_text_behind_known_pieces_is_one_finding() -> None:
    words = Words(25)
    rules, names, styles = words.random(300), *([words.random(40) for _ in range(8)] for _ in range(2))
    texts = [[*words.rng.choice(names), *words.rng.choice(styles), *rules, *words.random(15)] for _ in range(60)]
    (found,) = ledger_of(traffic_of(words, "names and styles", numbered(texts))).findings()
    assert "before 300 equal tokens" in found.title


def test_prompts_that_end_with_repeated_text_continue_no_conversation() -> None:
    words = Words(26)
    rules = 3 * words.random(40)
    texts = ([*words.of("It is ", f"12:00:{n:02}", "."), *rules, *words.random(3)] for n in range(6))
    (found,) = ledger_of(traffic_of(words, "repeated", numbered(texts))).findings()
    assert found.title == "a clock before 121 equal tokens"


def test_a_text_of_few_words_is_found_again() -> None:
    """It has few different pairs of tokens, and perhaps none that is an anchor by itself."""
    for words in (["please", "answer", "in", "json"], ["hello", "world"]):
        ids = {word: number for number, word in enumerate(words, 1000)}
        prompts = [Prompt(str(i), [5, i + 50_000, 6, *(ids[word] for word in words * 60)]) for i in range(40)]
        found = ledger_of(Traffic("", prompts.__iter__)).findings()
        assert found and found[0].num_lost > 0.8 * sum(len(one.token_ids) for one in prompts), words


def test_short_questions_of_one_session_behind_a_clock_continue_no_conversation() -> None:
    words = Words(27)
    rules = words.random(100)
    texts = ([*words.of("It is ", f"12:00:{n:02}", "."), *rules, *words.random(1 + n % 6)] for n in range(20))
    ledger = ledger_of(traffic_of(words, "questions", numbered(texts, session="one")))
    (evidence,) = ledger.evidence()
    (change,) = changes_for(evidence, ledger, SETTING)
    assert change.words == "move the clock behind the text that is the same"


def test_equal_answers_are_no_part_of_the_text_before_which_a_clock_stands() -> None:
    words = Words(28)
    rules, answer = words.random(100), words.random(20)
    texts = ([*words.of("It is ", f"12:00:{n:02}", "."), *rules] for n in range(20))
    (found,) = ledger_of(traffic_of(words, "answers", numbered(texts, answer=answer, num_answer=20))).findings()
    assert found.title == "a clock before 101 equal tokens"
